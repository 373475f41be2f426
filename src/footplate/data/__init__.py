"""Data: the order of samples, loaders, column handling and collators."""

from footplate.data.build import build_loader, seed_worker
from footplate.data.columns import (
    ColumnFilter,
    RemoveColumnsCollator,
    can_drop_columns,
    drop_unused_columns,
    signature_columns,
)
from footplate.data.lengths import find_lengths
from footplate.data.loader import Loader, num_examples
from footplate.data.order import (
    LengthGroupedOrder,
    RandomOrder,
    ReseededOrder,
    SampleOrder,
    SequentialOrder,
    WeightedOrder,
)
from footplate.data.samplers import (
    DistributedLengthGroupedSampler,
    DistributedSamplerWithLoop,
    IterableDatasetShard,
    LengthGroupedSampler,
    ShardSampler,
    build_order,
    get_length_grouped_indices,
)
from footplate.data.tokens import TokenBudgetOrder

__all__ = [
    "ColumnFilter",
    "DistributedLengthGroupedSampler",
    "DistributedSamplerWithLoop",
    "IterableDatasetShard",
    "LengthGroupedOrder",
    "LengthGroupedSampler",
    "Loader",
    "RandomOrder",
    "RemoveColumnsCollator",
    "ReseededOrder",
    "SampleOrder",
    "SequentialOrder",
    "ShardSampler",
    "TokenBudgetOrder",
    "WeightedOrder",
    "build_loader",
    "build_order",
    "can_drop_columns",
    "drop_unused_columns",
    "find_lengths",
    "get_length_grouped_indices",
    "num_examples",
    "seed_worker",
    "signature_columns",
]
