"""Supervised fine-tuning with TRL: plain, packed, or with LoRA."""

import sys

from datasets import Dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

from small import finish, llama, sentences, settings, tokenizer

kind = sys.argv[2]
rows = Dataset.from_dict({"text": sentences(48)})
options = {"packing": True, "packing_strategy": "wrapped"} if kind == "packed" else {}
trainer = SFTTrainer(
    model=llama(),
    args=SFTConfig(**settings(max_length=32, gradient_accumulation_steps=2, **options)),
    train_dataset=rows,
    eval_dataset=rows.select(range(12)),
    processing_class=tokenizer(),
    peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]) if kind == "lora" else None,
)
finish(trainer)
