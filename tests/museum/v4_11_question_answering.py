"""The trainer of the question-answering examples: answers are put together from logits, then scored."""

import collections

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import DistilBertConfig, DistilBertForQuestionAnswering, PreTrainedTokenizerFast

from footplate import (
    DataCollatorWithPadding,
    EvalPrediction,
    PredictionOutput,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)


class QuestionAnsweringTrainer(Trainer):
    def __init__(self, *args, eval_examples=None, post_process_function=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.eval_examples = eval_examples
        self.post_process_function = post_process_function

    def evaluate(self, eval_dataset=None, eval_examples=None, ignore_keys=None, metric_key_prefix: str = "eval"):
        eval_dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        eval_dataloader = self.get_eval_dataloader(eval_dataset)
        eval_examples = self.eval_examples if eval_examples is None else eval_examples

        # Metrics need the whole answers, so they wait until the loop is over.
        compute_metrics = self.compute_metrics
        self.compute_metrics = None
        eval_loop = self.prediction_loop if self.args.use_legacy_prediction_loop else self.evaluation_loop
        try:
            output = eval_loop(
                eval_dataloader,
                description="Evaluation",
                prediction_loss_only=True if compute_metrics is None else None,
                ignore_keys=ignore_keys,
            )
        finally:
            self.compute_metrics = compute_metrics

        if self.post_process_function is not None and self.compute_metrics is not None:
            eval_preds = self.post_process_function(eval_examples, eval_dataset, output.predictions)
            metrics = self.compute_metrics(eval_preds)
            for key in list(metrics.keys()):
                if not key.startswith(f"{metric_key_prefix}_"):
                    metrics[f"{metric_key_prefix}_{key}"] = metrics.pop(key)
            self.log(metrics)
        else:
            metrics = {}

        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def predict(self, predict_dataset, predict_examples, ignore_keys=None, metric_key_prefix: str = "test"):
        predict_dataloader = self.get_test_dataloader(predict_dataset)

        compute_metrics = self.compute_metrics
        self.compute_metrics = None
        eval_loop = self.prediction_loop if self.args.use_legacy_prediction_loop else self.evaluation_loop
        try:
            output = eval_loop(
                predict_dataloader,
                description="Prediction",
                prediction_loss_only=True if compute_metrics is None else None,
                ignore_keys=ignore_keys,
            )
        finally:
            self.compute_metrics = compute_metrics

        if self.post_process_function is None or self.compute_metrics is None:
            return output

        predictions = self.post_process_function(predict_examples, predict_dataset, output.predictions, "predict")
        metrics = self.compute_metrics(predictions)
        for key in list(metrics.keys()):
            if not key.startswith(f"{metric_key_prefix}_"):
                metrics[f"{metric_key_prefix}_{key}"] = metrics.pop(key)
        return PredictionOutput(predictions=predictions.predictions, label_ids=predictions.label_ids, metrics=metrics)


WHO = ["ada", "bela", "cem", "dora", "emil", "fatma"]
WHAT = ["bread", "tea", "maps", "bells", "kites"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "what", "does", "sell", "sells", "and", *WHO, *WHAT]
backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCAB)}, unk_token="[UNK]"))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
backend.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
)


def make_examples(count, seed):
    rng = np.random.RandomState(seed)
    rows = collections.defaultdict(list)
    for i in range(count):
        first, second = rng.choice(WHO, 2, replace=False)
        goods = rng.choice(WHAT, 2, replace=False)
        context = f"{first} sells {goods[0]} and {second} sells {goods[1]}"
        rows["id"].append(str(i))
        rows["question"].append(f"what does {first} sell")
        rows["context"].append(context)
        rows["answers"].append({"text": [goods[0]], "answer_start": [context.index(goods[0])]})
    return Dataset.from_dict(dict(rows))


def prepare_features(examples):
    features = tokenizer(examples["question"], examples["context"], return_offsets_mapping=True)
    features["start_positions"], features["end_positions"], features["example_id"] = [], [], []
    for i, offsets in enumerate(features["offset_mapping"]):
        sequence_ids = features.sequence_ids(i)
        start_char = examples["answers"][i]["answer_start"][0]
        position = next(
            k for k, (offset, part) in enumerate(zip(offsets, sequence_ids)) if part == 1 and offset[0] == start_char
        )
        features["start_positions"].append(position)
        features["end_positions"].append(position)
        features["example_id"].append(examples["id"][i])
        features["offset_mapping"][i] = [o if sequence_ids[k] == 1 else None for k, o in enumerate(offsets)]
    return features


def post_processing_function(examples, features, predictions, stage="eval"):
    start_logits, end_logits = predictions[0], predictions[1]
    answers = []
    for i in range(len(features)):
        offsets = features[i]["offset_mapping"]
        candidates = [k for k, offset in enumerate(offsets) if offset is not None]
        start = max(candidates, key=lambda k: start_logits[i][k])
        end = max([k for k in candidates if k >= start], key=lambda k: end_logits[i][k])
        answers.append(examples[i]["context"][offsets[start][0] : offsets[end][1]])
    formatted = [{"id": examples[i]["id"], "prediction_text": text} for i, text in enumerate(answers)]
    references = [{"id": example["id"], "answers": example["answers"]} for example in examples]
    return EvalPrediction(predictions=formatted, label_ids=references)


def compute_metrics(p: EvalPrediction):
    hits = [pred["prediction_text"] in ref["answers"]["text"] for pred, ref in zip(p.predictions, p.label_ids)]
    return {"exact_match": 100.0 * float(np.mean(hits))}


training_args = TrainingArguments(
    output_dir="qa",
    evaluation_strategy="steps",
    eval_steps=20,
    save_steps=20,
    logging_steps=20,
    max_steps=80,
    per_device_train_batch_size=16,
    learning_rate=5e-3,
    warmup_ratio=0.1,
    load_best_model_at_end=True,
    metric_for_best_model="exact_match",
    no_cuda=True,
)
set_seed(training_args.seed)
train_examples, eval_examples = make_examples(256, seed=0), make_examples(48, seed=1)
train_dataset = train_examples.map(prepare_features, batched=True, remove_columns=train_examples.column_names)
eval_dataset = eval_examples.map(prepare_features, batched=True, remove_columns=eval_examples.column_names)
trainer = QuestionAnsweringTrainer(
    model=DistilBertForQuestionAnswering(
        DistilBertConfig(vocab_size=len(VOCAB), dim=32, n_layers=2, n_heads=2, hidden_dim=64, dropout=0.0)
    ),
    args=training_args,
    train_dataset=train_dataset,
    eval_dataset=eval_dataset,
    eval_examples=eval_examples,
    tokenizer=tokenizer,
    data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8) if training_args.fp16 else default_data_collator,
    post_process_function=post_processing_function,
    compute_metrics=compute_metrics,
)
trainer.train()
metrics = trainer.evaluate()
results = trainer.predict(eval_dataset, eval_examples)
