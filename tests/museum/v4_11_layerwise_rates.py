"""Optimizer and schedule of the script's own: slower lower layers, no decay for biases and norms."""

from transformers import RobertaConfig, RobertaForMaskedLM

from footplate import AdamW, Trainer, TrainingArguments, get_linear_schedule_with_warmup, set_seed


class LayerwiseTrainer(Trainer):
    def create_optimizer_and_scheduler(self, num_training_steps: int):
        no_decay = ["bias", "LayerNorm.weight"]
        groups = []
        for depth, layer in enumerate(self.model.roberta.encoder.layer):
            rate = self.args.learning_rate * 0.5 ** (len(self.model.roberta.encoder.layer) - 1 - depth)
            for decays in (True, False):
                chosen = [p for n, p in layer.named_parameters() if any(nd in n for nd in no_decay) != decays]
                groups.append({"params": chosen, "lr": rate, "weight_decay": self.args.weight_decay * decays})
        head = list(self.model.lm_head.parameters()) + list(self.model.roberta.embeddings.parameters())
        groups.append({"params": list({id(p): p for p in head}.values()), "weight_decay": 0.0})
        self.optimizer = AdamW(groups, lr=self.args.learning_rate, eps=self.args.adam_epsilon)
        self.lr_scheduler = get_linear_schedule_with_warmup(
            self.optimizer, num_warmup_steps=self.args.warmup_steps, num_training_steps=num_training_steps
        )


args = TrainingArguments(
    output_dir="layerwise",
    do_train=True,
    max_steps=40,
    per_device_train_batch_size=8,
    learning_rate=5e-3,
    weight_decay=0.1,
    warmup_steps=4,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    no_cuda=True,
)
set_seed(args.seed)
model = RobertaForMaskedLM(
    RobertaConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
)
rows = [{"input_ids": [2 + (i + k) % 30 for k in range(8)]} for i in range(64)]
for row in rows:
    row["labels"] = list(row["input_ids"])
trainer = LayerwiseTrainer(model=model, args=args, train_dataset=rows)
trainer.train()
