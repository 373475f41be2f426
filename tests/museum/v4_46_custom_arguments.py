"""Settings of the script's own beside the usual ones, from the command line or a dictionary."""

import sys
from dataclasses import asdict, dataclass, field
from typing import Literal, Optional

import torch
from torch import nn

from footplate import EvalPrediction, HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class ContrastiveArguments(TrainingArguments):
    temperature: float = field(default=0.05, metadata={"help": "Softmax temperature."})
    distance: Literal["cosine", "dot"] = field(default="cosine", metadata={"help": "How pairs are compared."})
    hidden: int = field(default=8)
    freeze: Optional[str] = field(default=None, metadata={"help": "Prefix of parameters to freeze."})
    label_names: Optional[list[str]] = field(default_factory=lambda: ["other"])

    def __post_init__(self):
        super().__post_init__()
        if self.temperature <= 0:
            raise ValueError("temperature must be positive")


@dataclass
class DataArguments:
    num_pairs: int = 64
    noise: float = 0.1


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.first = nn.Linear(6, hidden)
        self.second = nn.Linear(hidden, hidden)

    def forward(self, anchor, other=None):
        return {"embedding": self.second(torch.relu(self.first(anchor)))}


class ContrastiveTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        one = model(anchor=inputs["anchor"])["embedding"]
        two = model(anchor=inputs["other"])["embedding"]
        if self.args.distance == "cosine":
            one, two = nn.functional.normalize(one, dim=-1), nn.functional.normalize(two, dim=-1)
        scores = one @ two.T / self.args.temperature
        loss = nn.functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))
        return (loss, {"scores": scores.argmax(-1)}) if return_outputs else loss


def compute_metrics(p: EvalPrediction):
    batch_size = 16
    expected = torch.arange(len(p.predictions)).numpy() % batch_size
    return {"retrieval": float((p.predictions == expected).mean()), "mean_loss": float(p.losses.mean())}


def main():
    parser = HfArgumentParser((ContrastiveArguments, DataArguments))
    args, data_args = parser.parse_args_into_dataclasses(sys.argv[1:])
    set_seed(args.seed)

    anchors = torch.randn(data_args.num_pairs, 6)
    others = anchors.flip(-1) + data_args.noise * torch.randn_like(anchors)
    rows = [{"anchor": one, "other": two} for one, two in zip(anchors, others)]
    model = Encoder(args.hidden)
    if args.freeze is not None:
        for name, parameter in model.named_parameters():
            parameter.requires_grad = not name.startswith(args.freeze)
    trainer = ContrastiveTrainer(
        model, args, train_dataset=rows, eval_dataset=rows[:48], compute_metrics=compute_metrics
    )
    before = trainer.evaluate()
    trainer.train()
    metrics = trainer.evaluate()
    metrics["eval_loss_before"] = before["eval_loss"]
    metrics["num_settings"] = len(asdict(args))
    trainer.save_metrics("eval", metrics)
    trainer.save_model()


if __name__ == "__main__":
    main()
