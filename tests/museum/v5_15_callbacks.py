"""Callbacks of one's own: generate text now and then, watch gradients, count what must survive a restart."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from footplate import (
    DataCollatorForLanguageModeling,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

SONG = "row row row your boat gently down the stream merrily merrily merrily life is but a dream".split()
words = ["<pad>", "<eos>", *dict.fromkeys(SONG)]
backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")


class GenerateCallback(TrainerCallback):
    def __init__(self, prompt: str):
        self.prompt = prompt
        self.said: list[str] = []

    def on_evaluate(self, args, state, control, model=None, processing_class=None, **kwargs):
        batch = processing_class(self.prompt, return_tensors="pt", return_token_type_ids=False)
        model.eval()
        with torch.no_grad():
            answer = model.generate(**batch, max_new_tokens=4, do_sample=False, use_cache=False)
        self.said.append(processing_class.decode(answer[0], skip_special_tokens=True))


class GradientWatch(TrainerCallback):
    """Norms before the optimizer steps, rates after."""

    def __init__(self):
        self.norms, self.rates = [], []

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model=None, **kwargs
    ):
        norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        self.norms.append(torch.stack(norms).norm().item())

    def on_optimizer_step(self, args, state, control, optimizer=None, lr_scheduler=None, **kwargs):
        self.rates.append(optimizer.param_groups[0]["lr"])


class Journal(TrainerCallback):
    def __init__(self):
        self.events, self.logs = [], []

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.events.append(("train_begin", len(train_dataloader)))

    def on_epoch_end(self, args, state, control, **kwargs):
        self.events.append(("epoch_end", state.global_step))

    def on_save(self, args, state, control, **kwargs):
        self.events.append(("save", state.global_step))

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_local_process_zero:
            self.logs.append(dict(logs))

    def on_train_end(self, args, state, control, **kwargs):
        self.events.append(("train_end", state.global_step))


args = TrainingArguments(
    output_dir="song",
    num_train_epochs=20,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    learning_rate=1e-2,
    max_grad_norm=0.0,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=2,
    logging_strategy="epoch",
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    greater_is_better=False,
    include_num_input_tokens_seen="non_padding",
    report_to="none",
    use_cpu=True,
)
set_seed(args.seed)
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=len(words), n_embd=32, n_layer=1, n_head=2, n_positions=24, bos_token_id=1, eos_token_id=1, pad_token_id=0
    )
)
rows = [tokenizer(" ".join(SONG[i : i + 6]), return_token_type_ids=False) for i in range(len(SONG) - 5)] * 4
generate, watch, journal = GenerateCallback("gently down"), GradientWatch(), Journal()
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=rows,
    eval_dataset=rows[:12],
    processing_class=tokenizer,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    callbacks=[generate, watch, EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=0.05)],
)
trainer.add_callback(journal)
trainer.train()
