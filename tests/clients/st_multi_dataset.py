"""Several data sets with a loss each, with sentence-transformers."""

from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import (
    CosineSimilarityLoss,
    MultipleNegativesRankingLoss,
)

from small import finish, sentences, settings
from st_models import saved_bert

model = SentenceTransformer(saved_bert(), device="cpu")
pairs = Dataset.from_dict({"anchor": sentences(24, 1), "positive": sentences(24, 2)})
scored = Dataset.from_dict(
    {"one": sentences(32, 3), "other": sentences(32, 4), "score": [(number % 5) / 4 for number in range(32)]}
)
finish(
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(**settings(multi_dataset_batch_sampler="proportional")),
        train_dataset=DatasetDict({"pairs": pairs, "scored": scored}),
        eval_dataset={"pairs": pairs.select(range(8)), "scored": scored.select(range(8))},
        loss={"pairs": MultipleNegativesRankingLoss(model), "scored": CosineSimilarityLoss(model)},
    )
)
