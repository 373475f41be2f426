"""Every argument under the name it had then, then a second run from a checkpoint."""

import torch

from transformers import BertConfig, BertForSequenceClassification

from footplate import Trainer, TrainingArguments, set_seed


class Texts(torch.utils.data.Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(size)
        lengths = torch.randint(2, 12, (size,), generator=generator)
        self.rows = [torch.randint(5, 30, (int(length),), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index].tolist(), "labels": int(len(self.rows[index]) > 6)}


def pad(features):
    longest = max(len(feature["input_ids"]) for feature in features)
    ids = [feature["input_ids"] + [0] * (longest - len(feature["input_ids"])) for feature in features]
    labels = [feature["labels"] for feature in features]
    ids = torch.tensor(ids)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor(labels)}


class NoteLengths:
    """Collator that remembers how much of what it made is padding."""

    def __init__(self):
        self.padding, self.total = 0, 0

    def __call__(self, features):
        batch = pad(features)
        self.padding += (batch["input_ids"] == 0).sum().item()
        self.total += batch["input_ids"].numel()
        return batch


def build_model():
    set_seed(3)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=30,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
    )


def build_arguments(**changes):
    settings = dict(
        output_dir="old_names",
        overwrite_output_dir=True,
        do_train=True,
        do_eval=True,
        evaluation_strategy="steps",
        eval_steps=10,
        prediction_loss_only=True,
        per_gpu_train_batch_size=8,
        per_gpu_eval_batch_size=16,
        gradient_accumulation_steps=1,
        eval_accumulation_steps=None,
        learning_rate=1e-2,
        weight_decay=0.01,
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
        max_grad_norm=1.0,
        num_train_epochs=3.0,
        max_steps=-1,
        lr_scheduler_type="linear",
        warmup_ratio=0.1,
        warmup_steps=0,
        logging_dir="old_names/runs",
        logging_strategy="steps",
        logging_first_step=True,
        logging_steps=5,
        save_strategy="steps",
        save_steps=10,
        save_total_limit=2,
        no_cuda=True,
        seed=42,
        fp16=False,
        fp16_opt_level="O1",
        fp16_backend="auto",
        fp16_full_eval=False,
        local_rank=-1,
        tpu_num_cores=None,
        tpu_metrics_debug=False,
        debug=False,
        dataloader_drop_last=False,
        dataloader_num_workers=0,
        past_index=-1,
        run_name="museum",
        disable_tqdm=True,
        remove_unused_columns=True,
        label_names=None,
        load_best_model_at_end=False,
        metric_for_best_model=None,
        greater_is_better=None,
        ignore_data_skip=False,
        sharded_ddp="",
        deepspeed=None,
        label_smoothing_factor=0.0,
        adafactor=True,
        group_by_length=True,
        length_column_name="length",
        report_to=[],
        ddp_find_unused_parameters=None,
        dataloader_pin_memory=True,
        skip_memory_metrics=True,
        mp_parameters="",
    )
    settings.update(changes)
    return TrainingArguments(**settings)


args = build_arguments()
collator = NoteLengths()
trainer = Trainer(
    model=build_model(), args=args, data_collator=collator, train_dataset=Texts(160), eval_dataset=Texts(32)
)
result = trainer.train()

resumed = Trainer(
    model=build_model(),
    args=build_arguments(),
    data_collator=pad,
    train_dataset=Texts(160),
    eval_dataset=Texts(32),
)
second_result = resumed.train(model_path="old_names/checkpoint-50")
same_weights = all(
    torch.equal(one, other) for one, other in zip(trainer.model.parameters(), resumed.model.parameters())
)

