"""The Trainer itself with a model that PEFT wrapped."""

from peft import LoraConfig, get_peft_model
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

from small import finish, llama, sentences, settings, tokenizer

words = tokenizer()
rows = [dict(words(text)) for text in sentences(48)]
model = get_peft_model(
    llama(), LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM", lora_dropout=0.1)
)
finish(
    Trainer(
        model=model,
        args=TrainingArguments(**settings(load_best_model_at_end=True)),
        train_dataset=rows,
        eval_dataset=rows[:12],
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
    )
)
