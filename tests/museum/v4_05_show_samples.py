"""Question answering that prints what the model says every few steps."""

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.cuda.amp import autocast
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedTokenizerFast

from footplate import Trainer, TrainingArguments, set_seed

NAMES = ["anna", "boris", "clara", "dmitri", "eun", "farid", "greta", "hugo"]
CITIES = ["berlin", "seoul", "lagos", "lima"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = SPECIAL + NAMES + CITIES + ["where", "does", "live", "lives", "in"]


def build_tokenizer():
    vocab = {word: number for number, word in enumerate(WORDS)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


class LivesIn(torch.utils.data.Dataset):
    def __init__(self, tokenizer):
        self.rows = []
        for name in NAMES:
            for city in CITIES:
                text = f"[CLS] where does {name} live [SEP] {name} lives in {city} [SEP]"
                row = tokenizer(text, add_special_tokens=False)
                position = row["input_ids"].index(tokenizer.convert_tokens_to_ids(city))
                self.rows.append({**row, "start_positions": position, "end_positions": position})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {name: torch.tensor(value) for name, value in self.rows[index].items()}


def logging_console(question_context, prediction, ground_truth):
    print("Question and context:", question_context)
    print("Prediction:", prediction)
    print("Answer:", ground_truth)


class MyQuestionAnsweringTrainer(Trainer):
    def __init__(self, *args, model_tokenizer=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.tokenizer = model_tokenizer
        self.samples = []

    def compute_loss(self, model, inputs, return_outputs=True):
        if self.label_smoother is not None and "labels" in inputs:
            labels = inputs.pop("labels")
        else:
            labels = None
        outputs = model(**inputs)
        if self.args.past_index >= 0:
            self._past = outputs[self.args.past_index]
        if labels is not None:
            loss = self.label_smoother(outputs, labels)
        else:
            loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model: nn.Module, inputs: dict[str, torch.Tensor | Any]) -> torch.Tensor:
        model.train()
        inputs = self._prepare_inputs(inputs)

        if self.use_amp:
            with autocast():
                loss, output = self.compute_loss(model, inputs)
        else:
            loss, output = self.compute_loss(model, inputs)

        if self.args.n_gpu > 1:
            loss = loss.mean()
        if self.args.gradient_accumulation_steps > 1 and not self.deepspeed:
            loss = loss / self.args.gradient_accumulation_steps

        if self.use_amp:
            self.scaler.scale(loss).backward()
        elif self.deepspeed:
            loss = self.deepspeed.backward(loss)
        else:
            loss.backward()

        if self.state.global_step % 20 == 0:
            self.show_samples(inputs, output, amount=2)
        return loss.detach()

    def show_samples(self, inputs, output, amount):
        starts = torch.argmax(output["start_logits"], dim=1).detach().cpu().numpy()
        ends = torch.argmax(output["end_logits"], dim=1).detach().cpu().numpy()
        true_starts = inputs["start_positions"].detach().cpu().numpy()
        true_ends = inputs["end_positions"].detach().cpu().numpy()
        for i in range(amount):
            ids = inputs["input_ids"][i]
            context = self.tokenizer.decode(ids, skip_special_tokens=True)
            prediction = self.tokenizer.decode(ids[starts[i] : ends[i] + 1], skip_special_tokens=True)
            answer = self.tokenizer.decode(ids[true_starts[i] : true_ends[i] + 1], skip_special_tokens=True)
            logging_console(context, prediction, answer)
            self.samples.append((self.state.global_step, prediction, answer))


set_seed(7)
tokenizer = build_tokenizer()
config = BertConfig(
    vocab_size=len(WORDS),
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=16,
)
training_args = TrainingArguments(
    output_dir="./results",
    overwrite_output_dir=True,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    num_train_epochs=30,
    learning_rate=5e-3,
    logging_steps=20,
    save_steps=1000,
    no_cuda=True,
)
trainer = MyQuestionAnsweringTrainer(
    model=BertForQuestionAnswering(config),
    args=training_args,
    train_dataset=LivesIn(tokenizer),
    model_tokenizer=tokenizer,
)
trainer.train()
