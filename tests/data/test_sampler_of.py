"""The sampler inside a loader."""

from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from footplate.data.sampler_of import get_dataloader_sampler


def test_the_sampler_is_found_behind_a_batch_sampler():
    sampler = SequentialSampler([1, 2, 3])
    assert get_dataloader_sampler(DataLoader([1, 2, 3], sampler=sampler)) is sampler
    batches = BatchSampler(sampler, 2, drop_last=False)
    assert get_dataloader_sampler(DataLoader([1, 2, 3], batch_sampler=batches)) is sampler
    assert get_dataloader_sampler([1, 2]) is None
