"""Two processes train by tokens, are cut short and go on; each says whether all is as it should be.

torchrun --nproc-per-node 2 token_processes.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from test_tokens import BUDGET, NUM_ROWS, Recorder, Terminate, build, outcome

NUM_RANKS, STOP = 2, 6


def run(folder: Path, workers: int) -> Recorder:
    """A run that is never cut, and the same one cut and resumed: equal to the last bit."""
    settings = {"dataloader_num_workers": workers, "gradient_accumulation_steps": 2, "num_train_epochs": 3}
    whole = build(folder / "whole", **settings)
    whole.train()
    cut = build(folder / "cut", Terminate(STOP), **settings)
    try:
        cut.train()
    except SystemExit:
        pass
    else:
        raise AssertionError("the run was not cut")
    rest = build(folder / "cut", **settings)
    rest.train(resume_from_checkpoint=True)
    assert cut.state.global_step == STOP
    assert cut.seen + rest.seen == whole.seen
    assert outcome(rest) == outcome(whole)
    assert all(rows * length <= BUDGET or rows == 1 for rows, length in whole.sizes)
    return whole


def check(folder: Path) -> None:
    """Every row of an epoch on one of the ranks, and as many batches on each."""
    trainer = run(folder / "none", workers=0)
    run(folder / "two", workers=2)
    seen: list[list[list[int]]] = [[]] * NUM_RANKS
    torch.distributed.all_gather_object(seen, trainer.seen)
    per_epoch = len(trainer.get_train_dataloader())
    assert [len(batches) for batches in seen] == [3 * per_epoch] * NUM_RANKS
    for epoch in range(3):
        batches = [batch for own in seen for batch in own[epoch * per_epoch : (epoch + 1) * per_epoch]]
        rows = [index for batch in batches for index in batch]
        assert set(rows) == set(range(NUM_ROWS))
        assert len(rows) == NUM_ROWS + NUM_ROWS % NUM_RANKS  # one is repeated, to fill the last round
    print("equal", flush=True)


if __name__ == "__main__":
    check(Path(sys.argv[1]))
    torch.distributed.destroy_process_group()
