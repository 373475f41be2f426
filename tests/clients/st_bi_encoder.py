"""A bi-encoder with sentence-transformers, with an evaluator and a batch sampler without duplicates."""

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from small import finish, sentences, settings
from st_models import saved_bert

model = SentenceTransformer(saved_bert(), device="cpu")
rows = Dataset.from_dict({"anchor": sentences(48, 1), "positive": sentences(48, 2)})
scores = [number / 12 for number in range(12)]
evaluator = EmbeddingSimilarityEvaluator(sentences(12, 3), sentences(12, 4), scores, name="pairs")
finish(
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(**settings(batch_sampler=BatchSamplers.NO_DUPLICATES)),
        train_dataset=rows,
        eval_dataset=rows.select(range(12)),
        loss=MultipleNegativesRankingLoss(model),
        evaluator=evaluator,
    )
)
