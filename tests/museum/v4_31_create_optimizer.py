"""`create_optimizer` with a faster head, and a schedule made by name."""

import torch
from transformers import ViTConfig, ViTForImageClassification

from footplate import Trainer, TrainingArguments, get_parameter_names, get_scheduler, set_seed


class FastHeadTrainer(Trainer):
    def create_optimizer(self):
        opt_model = self.model
        if self.optimizer is None:
            decay_parameters = get_parameter_names(opt_model, [torch.nn.LayerNorm])
            decay_parameters = [name for name in decay_parameters if "bias" not in name]
            groups = []
            for is_head in (False, True):
                for decays in (False, True):
                    chosen = [
                        p
                        for n, p in opt_model.named_parameters()
                        if p.requires_grad and n.startswith("classifier") == is_head and (n in decay_parameters) == decays
                    ]
                    group = {"params": chosen, "weight_decay": self.args.weight_decay if decays else 0.0}
                    if is_head:
                        group["lr"] = self.args.learning_rate * 10
                    groups.append(group)
            optimizer_cls, optimizer_kwargs = Trainer.get_optimizer_cls_and_kwargs(self.args)
            self.optimizer = optimizer_cls(groups, **optimizer_kwargs)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer = None):
        if self.lr_scheduler is None:
            self.lr_scheduler = get_scheduler(
                "polynomial",
                optimizer=self.optimizer if optimizer is None else optimizer,
                num_warmup_steps=self.args.get_warmup_steps(num_training_steps),
                num_training_steps=num_training_steps,
            )
        return self.lr_scheduler


def collate_fn(examples):
    pixel_values = torch.stack([example["pixel_values"] for example in examples])
    return {"pixel_values": pixel_values, "labels": torch.tensor([example["label"] for example in examples])}


args = TrainingArguments(
    output_dir="vit",
    remove_unused_columns=False,
    evaluation_strategy="epoch",
    save_strategy="no",
    num_train_epochs=4,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    learning_rate=2e-3,
    weight_decay=0.01,
    warmup_ratio=0.25,
    optim="adamw_hf",
    logging_steps=1,
    dataloader_num_workers=0,
    report_to="none",
    use_cpu=True,
)
set_seed(args.seed)
model = ViTForImageClassification(
    ViTConfig(
        image_size=8,
        patch_size=4,
        num_channels=1,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=2,
    )
)
images = torch.randn(64, 1, 8, 8)
rows = [{"pixel_values": image + (i % 2), "label": i % 2, "file": f"{i}.png"} for i, image in enumerate(images)]
trainer = FastHeadTrainer(
    model=model, args=args, data_collator=collate_fn, train_dataset=rows, eval_dataset=rows[:32]
)
trainer.train()
metrics = trainer.evaluate()
trainer.log_metrics("eval", metrics)
trainer.save_metrics("eval", metrics)
