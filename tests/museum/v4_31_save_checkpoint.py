"""LoRA: a callback that keeps the adapter alone, and checkpoints that hold their metrics."""

import json
import os

import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from footplate import (
    PREFIX_CHECKPOINT_DIR,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)


class SavePeftModelCallback(TrainerCallback):
    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs):
        checkpoint_folder = os.path.join(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        peft_model_path = os.path.join(checkpoint_folder, "adapter_model")
        kwargs["model"].save_pretrained(peft_model_path)
        for unneeded in ("pytorch_model.bin", "model.safetensors"):
            path = os.path.join(checkpoint_folder, unneeded)
            if os.path.exists(path):
                os.remove(path)
        return control


class MetricsInCheckpointTrainer(Trainer):
    def _save_checkpoint(self, model, trial, metrics=None):
        super()._save_checkpoint(model, trial, metrics=metrics)
        checkpoint_folder = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        output_dir = os.path.join(self._get_output_dir(trial=trial), checkpoint_folder)
        if metrics is not None:
            with open(os.path.join(output_dir, "metrics.json"), "w") as file:
                json.dump(metrics, file)

    def _save(self, output_dir=None, state_dict=None):
        super()._save(output_dir, state_dict)
        with open(os.path.join(output_dir or self.args.output_dir, "who.txt"), "w") as file:
            file.write("saved by the subclass\n")


class CharTokenizer:
    """Just enough of a tokenizer for a collator of labels."""

    pad_token_id, pad_token, mask_token = 0, "_", None

    def pad(self, features, return_tensors=None, **kwargs):
        return {"input_ids": torch.tensor([feature["input_ids"] for feature in features])}


set_seed(0)
base = GPT2LMHeadModel(
    GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=1)
)
model = get_peft_model(
    base,
    LoraConfig(task_type=TaskType.CAUSAL_LM, r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["c_attn", "c_fc"]),
)
model.print_trainable_parameters()
rows = [{"input_ids": [2 + (3 * i + k) % 29 for k in range(10)]} for i in range(64)]
args = TrainingArguments(
    output_dir="lora",
    evaluation_strategy="steps",
    eval_steps=10,
    save_steps=10,
    max_steps=30,
    per_device_train_batch_size=8,
    learning_rate=2e-2,
    logging_steps=10,
    optim="adamw_torch",
    group_by_length=False,
    ddp_find_unused_parameters=False,
    report_to=None,
    run_name=None,
    no_cuda=True,
)
trainer = MetricsInCheckpointTrainer(
    model=model,
    args=args,
    train_dataset=rows,
    eval_dataset=rows[:16],
    data_collator=DataCollatorForLanguageModeling(CharTokenizer(), mlm=False),
    callbacks=[SavePeftModelCallback],
)
model.config.use_cache = False
trainer.train()
model.save_pretrained("lora_final")
