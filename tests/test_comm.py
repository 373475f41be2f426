"""Nested tensors against the original's functions, and collectives in one process and in two."""

import multiprocessing
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch
from transformers import BatchEncoding, trainer_pt_utils
from transformers.modeling_outputs import TokenClassifierOutput

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


def _gather_in_a_group_of_two(rank, folder, queue):
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    comm.barrier()
    rows, loss = torch.full((2,), float(comm.rank())), torch.tensor(float(rank))
    gathered = comm.gather({"rows": rows, "loss": loss, "none": None})
    plain = {key: value.tolist() for key, value in gathered.items() if value is not None}
    queue.put((rank, comm.rank(), comm.world_size(), plain))
    comm.barrier()
    torch.distributed.destroy_process_group()


def test_two_processes_gather_each_others_rows(tmp_path):
    context = multiprocessing.get_context("fork")  # torch is loaded: no second import
    queue = context.Queue()
    processes = [
        context.Process(target=_gather_in_a_group_of_two, args=(i, tmp_path, queue)) for i in range(2)
    ]
    for process in processes:
        process.start()
    answers = sorted(queue.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    expected = {"rows": [0.0, 0.0, 1.0, 1.0], "loss": [0.0, 1.0]}
    assert answers == [(0, 0, 2, expected), (1, 1, 2, expected)]


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
