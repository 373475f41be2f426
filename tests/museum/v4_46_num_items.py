"""A token loss summed by hand and divided by the items of the whole update."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from footplate import Trainer, TrainingArguments, set_seed


class TokenLossTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = True
        self.seen_counts = []

    def get_batch_samples(self, epoch_iterator, num_batches):
        batch_samples = []
        for _ in range(num_batches):
            try:
                batch_samples += [next(epoch_iterator)]
            except StopIteration:
                break
        num_items_in_batch = sum((batch["labels"][:, 1:] != -100).sum() for batch in batch_samples)
        return batch_samples, num_items_in_batch

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].float()
        targets = labels[:, 1:]
        reduction = "sum" if num_items_in_batch is not None else "mean"
        loss = nn.functional.cross_entropy(
            logits.reshape(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-100, reduction=reduction
        )
        if num_items_in_batch is not None:
            if model.training:
                self.seen_counts.append(int(num_items_in_batch))
            loss = loss / num_items_in_batch
        return (loss, outputs) if return_outputs else loss


def make_rows():
    generator = torch.Generator().manual_seed(0)
    rows = []
    for i in range(44):
        start = int(torch.randint(0, 20, (1,), generator=generator))
        ids = [1 + (start + k) % 20 for k in range(12)]
        prompt = i % 9
        rows.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    return rows


def train(batch_size, accumulation):
    set_seed(3)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=24,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
    )
    args = TrainingArguments(
        output_dir="tokens",
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        num_train_epochs=4,
        learning_rate=1e-2,
        logging_steps=1,
        average_tokens_across_devices=False,
        eval_use_gather_object=False,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    trainer = TokenLossTrainer(model=model, args=args, train_dataset=make_rows(), eval_dataset=make_rows()[:8])
    trainer.train()
    return trainer


whole = train(16, accumulation=1)
trainer = train(4, accumulation=4)
metrics = trainer.evaluate()
