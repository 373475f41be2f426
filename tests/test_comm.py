"""Nested tensors against the original's functions, and collectives in one process and in two."""

import time
from collections import OrderedDict, defaultdict, namedtuple
from datetime import timedelta

import numpy as np
import pytest
import torch
from transformers import BatchEncoding, trainer_pt_utils
from transformers.modeling_outputs import TokenClassifierOutput

import ranks
from footplate import comm

Pair = namedtuple("Pair", "left right")


def assert_equal(ours, theirs):
    """Same types, shapes, element types and values, all the way down."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert torch.equal(ours, theirs)
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            assert_equal(our_item, their_item)
    elif hasattr(theirs, "items"):
        assert list(ours) == list(theirs)
        for key in theirs:
            assert_equal(ours[key], theirs[key])
    else:
        assert ours == theirs


def random_tensor(shape, dtype, seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 50
    return values.to(dtype)


SHAPE_PAIRS = [
    ((), ()),
    ((3,), (2,)),
    ((), (2,)),
    ((0,), (2,)),
    ((3, 4), (2, 4)),
    ((3, 4), (2, 6)),
    ((3, 6), (2, 4)),
    ((3, 0), (2, 4)),
    ((1, 4, 5), (2, 4, 5)),
    ((1, 4, 5), (2, 7, 5)),
    ((2, 3, 2, 2), (2, 1, 2, 2)),
]
TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("shapes", SHAPE_PAIRS, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_nested_concat_of_tensors_is_the_originals(shapes, dtype):
    first, second = random_tensor(shapes[0], dtype), random_tensor(shapes[1], dtype, seed=1)
    assert_equal(comm.nested_concat(first, second), trainer_pt_utils.nested_concat(first, second))


@pytest.mark.parametrize("shapes", SHAPE_PAIRS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_], ids=str)
def test_nested_concat_of_arrays_is_the_originals(shapes, dtype):
    first, second = (random_tensor(shape, torch.float32).numpy().astype(dtype) for shape in shapes)
    assert_equal(
        comm.nested_concat(first, second, padding_index=1),
        trainer_pt_utils.nested_concat(first, second, padding_index=1),
    )


@pytest.mark.parametrize("types", [(torch.int64, torch.float32), (torch.float32, torch.int64)], ids=str)
@pytest.mark.parametrize("shapes", [((2, 3), (1, 3), (2, 4)), ((2, 3), (1, 4), (2, 4))], ids=str)
def test_joining_mixed_types_gives_the_type_the_original_ends_with(types, shapes):
    parts = [random_tensor(shapes[i], types[i % 2], seed=i) for i in range(3)]
    theirs = trainer_pt_utils.nested_concat(trainer_pt_utils.nested_concat(parts[0], parts[1]), parts[2])
    assert_equal(comm.nested_join(parts), theirs)


def nested_batch(width, seed):
    return {
        "logits": (
            random_tensor((2, width, 3), torch.float32, seed),
            [random_tensor((2,), torch.int64, seed)],
        ),
        "mask": OrderedDict(mask=random_tensor((2, width), torch.bool, seed)),
        "loss": random_tensor((), torch.float32, seed),
    }


def test_nested_concat_keeps_structures_of_every_kind():
    first, second = nested_batch(4, 0), nested_batch(6, 1)
    assert_equal(comm.nested_concat(first, second), trainer_pt_utils.nested_concat(first, second))
    encoding = [BatchEncoding({"input_ids": random_tensor((2, width), torch.int64)}) for width in (3, 5)]
    assert_equal(comm.nested_concat(*encoding), trainer_pt_utils.nested_concat(*encoding))


def test_nested_concat_takes_named_tuples_and_none():
    joined = comm.nested_concat(Pair(torch.ones(2), None), Pair(torch.zeros(1), None))
    assert_equal(joined, Pair(torch.tensor([1.0, 1.0, 0.0]), None))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (torch.ones(2), np.ones(2), "ndarray cannot be joined to one of Tensor"),
        ((torch.ones(2),), (torch.ones(2), torch.ones(2)), "2 parts cannot be joined to one of 1 parts"),
        ({"a": torch.ones(2)}, {"b": torch.ones(2)}, r"keys \['b'\] cannot be joined"),
        (torch.ones(2, 3, 4), torch.ones(2, 3, 5), "only dimensions 0 and 1 may differ"),
        (torch.ones(2), torch.ones(2, 2), "eval_do_concat_batches=False"),
        ("a", "b", "Batches of str"),
    ],
)
def test_batches_that_do_not_line_up_are_refused(first, second, message):
    with pytest.raises((TypeError, ValueError), match=message):
        comm.nested_concat(first, second)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_numpify_truncate_and_batch_size_are_the_originals(dtype):
    batch = {
        "a": [random_tensor((), dtype), (random_tensor((4, 2), dtype),)],
        "b": random_tensor((4,), dtype),
    }
    assert_equal(comm.nested_numpify(batch), trainer_pt_utils.nested_numpify(batch))
    del batch["a"][0]
    assert_equal(comm.nested_truncate(batch, 3), trainer_pt_utils.nested_truncate(batch, 3))
    assert comm.find_batch_size(batch) == trainer_pt_utils.find_batch_size(batch) == 4


@pytest.mark.parametrize(
    "batch",
    [
        {"id": "x", "scalar": torch.tensor(1), "rows": np.ones((3, 2))},
        [{}, (None, torch.ones(5, 1))],
        BatchEncoding({"input_ids": torch.ones(7, 2)}),
        {"only": "text"},
        torch.tensor(1.0),
        "text",
    ],
    ids=str,
)
def test_batch_size_is_found_where_the_original_finds_it(batch):
    assert comm.find_batch_size(batch) == trainer_pt_utils.find_batch_size(batch)


def test_detach_cuts_every_tensor_from_its_graph():
    weight = torch.ones(2, requires_grad=True)
    nested = {"a": (weight * 2, "text"), "b": [weight * 3]}
    detached = comm.nested_detach(nested)
    assert_equal(detached, trainer_pt_utils.nested_detach(nested))
    assert not detached["a"][0].requires_grad
    assert not detached["b"][0].requires_grad


class MovesItself:
    def __init__(self, device="cpu"):
        self.device = torch.device(device)

    def to(self, device):
        return MovesItself(device)


def test_moving_keeps_types_and_leaves_the_batch_of_the_loader_alone():
    batch = {
        "encoding": BatchEncoding({"input_ids": torch.ones(1)}),
        "output": TokenClassifierOutput(logits=torch.ones(1)),
        "pair": Pair(torch.ones(1), ["text", 3]),
        "graph": MovesItself(),
    }
    moved = comm.move_to_device(batch, "meta")
    assert moved["encoding"]["input_ids"].device.type == "meta"
    assert type(moved["encoding"]) is BatchEncoding
    assert moved["output"].logits.device.type == "meta"
    assert type(moved["pair"]) is Pair
    assert moved["pair"].left.device.type == "meta"
    assert moved["pair"].right == ["text", 3]
    assert moved["graph"].device.type == "meta"
    moved.pop("pair")
    assert "pair" in batch
    assert batch["encoding"]["input_ids"].device.type == "cpu"


def test_moving_to_where_a_tensor_is_copies_no_tensor():
    batch = {"a": torch.ones(1)}
    moved = comm.move_to_device(batch, torch.device("cpu"))
    assert moved["a"] is batch["a"]
    assert moved is not batch


def test_a_mapping_that_cannot_be_rebuilt_becomes_a_dictionary():
    batch = defaultdict(list, a=torch.ones(1))
    assert comm.move_to_device(batch, "cpu") == {"a": batch["a"]}


def test_one_process_is_a_world_of_its_own():
    tensors = {"a": torch.ones(2)}
    comm.barrier()
    assert (comm.world_size(), comm.rank()) == (1, 0)
    assert comm.gather(tensors) is tensors


def test_one_process_exchanges_nothing_and_needs_no_group(tmp_path):
    tensor = torch.ones(2)
    comm.broadcast_tensors([tensor])
    assert comm.sum_tensor(tensor) is tensor
    assert comm.sum_integers((3, 4)) == [3, 4]
    assert comm.gather_objects("a") == comm.gather_objects_to_first("a") == ["a"]
    assert comm.broadcast_object("a") == comm.ask_first(lambda: "a") == "a"
    assert comm.is_same_everywhere({"x": tensor})
    assert comm.find_store() is None
    comm.raise_together(None)
    with pytest.raises(KeyError):
        comm.raise_together(KeyError("alone"))
    with pytest.raises(ValueError, match=r"distributed_concat needs processes.*torchrun"):
        comm.distributed_concat(tensor)


def raised_by(function):
    """The error of a call as text."""
    try:
        function()
    except Exception as error:
        return repr(error)
    return "nothing"


def fail():
    raise KeyError("only on the first")


def exchange(rank):
    """Every exchange once, in two processes with different values."""
    comm.barrier()
    own, number = torch.full((2,), float(rank)), torch.tensor(float(rank))
    gathered = comm.gather({"rows": own, "loss": number, "none": None})
    summed = comm.sum_tensor(own)
    first, second = torch.tensor([rank, 2.0]), torch.tensor([[4.0 * rank]])
    comm.average_gradients([first, second])
    comm.average_gradients([])
    buffers = [torch.tensor([rank + 5]), torch.tensor(rank + 7.0)]
    comm.broadcast_tensors(buffers)
    asked = []
    answer = comm.ask_first(lambda: asked.append(rank) or "answer")
    group = comm.new_group()
    return {
        "place": (comm.is_distributed(), comm.world_size(), comm.rank(), comm.total_processes_number(-1)),
        "gathered": {key: value.tolist() for key, value in gathered.items() if value is not None},
        "cut": comm.distributed_concat(own, 3).tolist(),
        "scalars": comm.distributed_broadcast_scalars([rank, 9.0]).tolist(),
        "nested": comm.nested_gather(own, "distributed").tolist(),
        "not parallel": comm.nested_gather(own, "not_parallel") is own,
        "sums": comm.sum_integers([rank, 2**40]),
        "sum": (summed.tolist(), own.tolist()),
        "means": (first.tolist(), second.tolist()),
        "broadcast": [buffer.tolist() for buffer in buffers],
        "objects": comm.gather_objects({"rank": rank}),
        "objects of a group": comm.gather_objects(rank, group),
        "to the first": comm.gather_objects_to_first(rank),
        "of the first": (comm.broadcast_object(f"rank {rank}"), comm.broadcast_object(rank, group)),
        "asked": (answer, asked),
        "refused": raised_by(lambda: comm.ask_first(fail)),
        "one raises": raised_by(lambda: comm.raise_together(ValueError("second") if rank else None)),
        "both raise": raised_by(lambda: comm.raise_together(ValueError(rank))),
        "none raises": raised_by(lambda: comm.raise_together(None)),
        "same": [comm.is_same_everywhere({"x": value}) for value in (torch.ones(2), own, [rank], "text")],
        "store": comm.find_store() is not None,
        "device": str(comm.exchange_device()),
    }


def test_two_processes_exchange_what_they_have(tmp_path):
    answers = ranks.fork(exchange, tmp_path)
    for rank, found in enumerate(answers):
        assert found == {
            "place": (True, 2, rank, 2),
            "gathered": {"rows": [0.0, 0.0, 1.0, 1.0], "loss": [0.0, 1.0]},
            "cut": [0.0, 0.0, 1.0],
            "scalars": [0.0, 9.0, 1.0, 9.0],
            "nested": [0.0, 0.0, 1.0, 1.0],
            "not parallel": True,
            "sums": [1, 2**41],
            "sum": ([1.0, 1.0], [rank, rank]),
            "means": ([0.5, 2.0], [[2.0]]),
            "broadcast": [[5], 7.0],
            "objects": [{"rank": 0}, {"rank": 1}],
            "objects of a group": [0, 1],
            "to the first": [0, 1] if rank == 0 else None,
            "of the first": ("rank 0", 0),
            "asked": ("answer", [0] if rank == 0 else []),
            "refused": "KeyError('only on the first')",
            "one raises": "ValueError('second')",
            "both raise": "ValueError(0)",
            "none raises": "nothing",
            "same": [True, False, False, True],
            "store": True,
            "device": "cpu",
        }


def test_processes_meet_by_the_variables_of_a_launcher(monkeypatch):
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
        monkeypatch.setenv(name, str(value))
    comm.join("gloo", timedelta(seconds=30))
    try:
        assert (comm.is_distributed(), comm.world_size(), comm.rank()) == (True, 1, 0)
    finally:
        torch.distributed.destroy_process_group()


def test_the_first_of_a_machine_goes_first(tmp_path):
    def work(rank):
        with comm.torch_distributed_zero_first(rank):
            if rank == 0:
                time.sleep(0.2)
                (tmp_path / "file").touch()
            return (tmp_path / "file").exists()

    assert ranks.fork(work, tmp_path) == [True, True]


def test_rows_are_taken_from_what_has_rows():
    batch = {"x": torch.arange(6).reshape(3, 2), "names": ["a", "b", "c"], "scale": torch.tensor(2.0)}
    taken = comm.take_rows(batch, slice(2))
    assert taken["x"].tolist() == [[0, 1], [2, 3]]
    assert taken["names"] == ["a", "b"]
    assert taken["scale"].item() == 2.0
    assert taken is not batch
    one = comm.take_rows((batch, [batch["x"]]), 1)
    assert (one[0]["x"].tolist(), one[0]["names"], one[1][0].tolist()) == ([2, 3], "b", [2, 3])
    assert comm.take_rows(batch["names"], 1, num_rows=3) == "b"
    assert comm.take_rows(batch["x"], 1, num_rows=2) is batch["x"]
