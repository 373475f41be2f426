"""A cross-encoder with sentence-transformers."""

from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

from small import finish, sentences, settings
from st_models import saved_bert

model = CrossEncoder(saved_bert(is_classifier=True), num_labels=1, device="cpu")
labels = [float(number % 2) for number in range(48)]
rows = Dataset.from_dict({"query": sentences(48, 1), "answer": sentences(48, 2), "label": labels})
finish(
    CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(**settings()),
        train_dataset=rows,
        eval_dataset=rows.select(range(12)),
        loss=BinaryCrossEntropyLoss(model),
    )
)
