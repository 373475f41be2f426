"""Running sums of a run: they stay on the device until a log drains them."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from footplate import comm
from footplate.state import ExportableState
from footplate.training.finite import FiniteLosses, stack_scalars

logger = logging.getLogger(__name__)

_MOST_BAD = 64  # counts since the last log in which the first update that is not finite is looked for
_MAX_UNCHECKED = 256  # scalars to keep before they are reduced to one count on the device
_FEW = 8  # scalars that a log reads as they are: as many kernels as a count takes would cost more


Scalar = torch.Tensor | float
_kind = attrgetter("device", "dtype", "ndim")
_RESERVED = frozenset(("loss", "grad_norm", "learning_rate", "epoch", "step"))


def as_norm(value: Any) -> torch.Tensor:
    """The norm of the gradients as a tensor; an override may give a plain number."""
    return value if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)


def read_numbers(values: Sequence[Scalar]) -> list[float]:
    """Several numbers as plain ones, those on a device in one read: each read makes the host wait for it.

    Args:
        values: Tensors of one element, or plain numbers.
    """
    plain = [value for value in values if type(value) is torch.Tensor]  # a sharded one is read alone
    kinds = set(map(_kind, plain))
    if len(kinds) == 1 and not plain[0].dim():
        joined = torch.stack(plain)
    elif len({device for device, *_ in kinds}) != 1 or plain[0].device.type == "mps":
        return [float(value) for value in values]  # one by one; mps has no double precision
    else:
        joined = torch.stack([value.detach().reshape(()).double() for value in plain])
    found = iter(joined.tolist())
    return [next(found) if type(value) is torch.Tensor else float(value) for value in values]


class Records:
    """Extra scalars by name: weighted sums, and what they are divided by."""

    def __init__(self) -> None:
        self._sums: dict[str, Scalar] = {}
        self._weights: dict[str, float] = {}

    def add(self, name: str, value: Scalar, factor: Scalar, weight: float) -> None:
        """Add `factor * value` to a name, and `weight` to what its sum will be divided by."""
        if name in _RESERVED:
            raise ValueError(f"record({name!r}): the log has an entry of that name already. Choose another.")
        value = value.detach() if isinstance(value, torch.Tensor) else float(value)
        self._sums[name] = self._sums.get(name, 0.0) + value * factor
        self._weights[name] = self._weights.get(name, 0.0) + weight

    def totals(self) -> dict[str, list[float]]:
        """Sum and weight of each name, read from the device."""
        return self.totals_of(read_numbers(self.sums()))  # host sync

    def sums(self) -> list[Scalar]:
        """The sums by order of their names, still on the device."""
        return list(self._sums.values())

    def totals_of(self, sums: Sequence[float]) -> dict[str, list[float]]:
        """Sum and weight of each name, from what was read of `sums`."""
        return {name: [total, self._weights[name]] for name, total in zip(self._sums, sums, strict=True)}

    def restore(self, totals: dict[str, list[float]]) -> None:
        """Continue from what `totals` returned."""
        self._sums = {name: total for name, (total, _) in totals.items()}
        self._weights = {name: weight for name, (_, weight) in totals.items()}

    def copy(self) -> Records:
        """A copy that later additions to this object do not change."""
        other = Records()
        other._sums, other._weights = dict(self._sums), dict(self._weights)
        return other

    def drain(self) -> dict[str, float]:
        """The averages since the last call, over all ranks, read from the device; the sums are reset."""
        return self.drain_with(comm.gather_objects(self.totals()))

    def drain_with(self, totals_of_ranks: list[dict[str, list[float]]]) -> dict[str, float]:
        """The averages of what the ranks gave as their totals; the sums of this one are reset."""
        self.restore({})
        sums: dict[str, list[float]] = {}
        for totals in totals_of_ranks:
            for name, (total, weight) in totals.items():
                before = sums.get(name, [0.0, 0.0])
                sums[name] = [before[0] + total, before[1] + weight]
        return {name: total / weight for name, (total, weight) in sums.items() if weight}


class _Before(NamedTuple):
    """The sums as they were when an update began."""

    loss: torch.Tensor | None  # None if the sum stays as it is until the update is finished
    records: Records
    flos: float
    num_tokens: int | torch.Tensor
    num_unchecked: int


class Meter(ExportableState):
    """Loss, extra scalars and non-finite values since the last log, and the loss of the whole run."""

    def __init__(self, device: torch.device, first_step: int = 0, filters: bool = False) -> None:
        self.filters = filters  # the means leave out what is not finite
        self._finite = FiniteLosses()
        self._loss = torch.zeros((), device=device)
        self._single: torch.Tensor | None = None  # the loss of an update of one micro-batch, not yet added
        self._is_single = False
        self.total_loss = 0.0  # the sum of all losses drained so far
        self.flos = 0.0
        self.first_step = first_step
        self.last_logged_step = first_step
        self.num_nonfinite_total = 0
        self._records = Records()
        self._recorded_in: dict[str, int] = {}  # the update that last recorded a name
        self._unchecked: list[torch.Tensor] = []
        self._updates: list[int] = []  # of each of these, the update since the last log, from 0
        self._bad: list[tuple[torch.Tensor, list[int]]] = []  # of those counted already: which are not finite
        self._num_updates = 0  # since the last log, in this process
        self.first_nonfinite: int | None = None  # of the updates of the last log, where that is known
        self._num_nonfinite = torch.zeros((), dtype=torch.long, device=device)
        self._is_counted = False  # whether a count was added to that since the last log
        self._num_refused = 0
        self._num_tokens: int | torch.Tensor = 0
        self._before: _Before | None = None
        self.notes: list[Any] = []  # what ranks said at the last log

    def state(self) -> dict[str, Any]:
        """The sums as plain numbers: without them a resumed run would report different means."""
        return {"args": {}, "attributes": {"sums": self.sums_now()}}

    def sums_now(self) -> dict[str, Any]:
        """The sums of this rank."""
        self._count_nonfinite()
        return {
            "loss": float(self.loss),  # host sync, once per checkpoint
            "total_loss": self.total_loss,
            "first_step": self.first_step,
            "last_logged_step": self.last_logged_step,
            "num_refused": self._num_refused,
            "num_nonfinite": [int(self._num_nonfinite), self.num_nonfinite_total],
            "records": self._records.totals(),
            "finite": self._finite.totals(),
        }

    def restore(self, sums: dict[str, Any]) -> None:
        """Continue from the sums of a checkpoint."""
        self._loss.fill_(sums["loss"])
        self.total_loss, self.first_step = sums["total_loss"], sums["first_step"]
        self.last_logged_step, self._num_refused = sums["last_logged_step"], sums["num_refused"]
        self._num_nonfinite.fill_(sums["num_nonfinite"][0])
        self._is_counted = True
        self.num_nonfinite_total = sums["num_nonfinite"][1]
        self._records.restore(sums["records"])
        self._finite.restore(sums.get("finite", [0.0, 0.0, 0.0]), self._loss.device)

    sums = property(fset=restore)  # a stored state is restored by setting its attributes

    def add(self, loss: torch.Tensor) -> None:
        """Add the loss of one micro-batch."""
        if self._is_single:
            self._single = loss
        else:
            self._loss += loss
        if self.filters:
            self._finite.add(loss)
        self.watch(loss)

    @property
    def loss(self) -> torch.Tensor:
        """The sum of the losses since the last log."""
        return self._loss if self._single is None else self._loss + self._single

    @loss.setter
    def loss(self, loss: torch.Tensor) -> None:
        self._loss, self._single = loss.detach(), None

    def record(self, name: str, value: Scalar, factor: Scalar, update: int) -> None:
        """Add an extra scalar: summed within an update, averaged over the updates that recorded it."""
        is_first = self._recorded_in.get(name) != update
        self._records.add(name, value, factor, 1.0 if is_first else 0.0)
        self._recorded_in[name] = update

    def take_over(self, loss: torch.Tensor) -> None:
        """Take over the sum of losses that a user's own loop kept, and set it to zero."""
        self._loss.copy_(loss.detach())
        loss.zero_()

    def begin_update(self, is_single: bool = False) -> None:
        """Keep the sums from before an update, which may be undone; `is_single`: one micro-batch, no copy."""
        if len(self._unchecked) >= _MAX_UNCHECKED:
            self._count_nonfinite()
        num_unchecked = len(self._unchecked)
        self._finite.begin_update()
        self._is_single = is_single
        before = None if is_single else self._loss.clone()
        self._before = _Before(before, self._records.copy(), self.flos, self._num_tokens, num_unchecked)

    def finish_update(self) -> None:
        """The update was made: its loss belongs to the sum."""
        if self._single is not None:
            self._loss += self._single
        self._single, self._is_single = None, False
        self._num_updates += 1

    @property
    def update_loss(self) -> torch.Tensor:
        """The loss of the current update, still on the device."""
        assert self._before is not None
        if self._before.loss is None:
            return torch.zeros_like(self._loss) if self._single is None else self._single
        return self._loss - self._before.loss

    def undo_update(self) -> None:
        """Go back to the sums from before the current update, which will be repeated."""
        assert self._before is not None
        self._forget_losses()
        # it may be repeated in more micro-batches
        self._is_single, self._before = False, self._before._replace(loss=self._loss.clone())
        self.flos, self._num_tokens = self._before.flos, self._before.num_tokens
        del self._unchecked[self._before.num_unchecked :], self._updates[self._before.num_unchecked :]

    def refuse_update(self) -> None:
        """Leave the current update out of the means; its tokens and non-finite values still count."""
        self._forget_losses()
        self._num_refused += 1

    def _forget_losses(self) -> None:
        assert self._before is not None
        self._single = None
        self._finite.undo_update()
        if self._before.loss is not None:
            self._loss.copy_(self._before.loss)
        self._records = self._before.records.copy()
        self._recorded_in.clear()

    def add_tokens(self, num_tokens: int | torch.Tensor | None) -> None:
        """Count input tokens; None counts none."""
        if num_tokens is not None:
            self._num_tokens = self._num_tokens + num_tokens

    def drain_tokens(self, may_wait: bool = True) -> int:
        """Tokens counted since the last call; 0 for now if the device would have to be asked."""
        if not may_wait and isinstance(self._num_tokens, torch.Tensor):
            return 0
        num_tokens = int(self._num_tokens)  # host sync, where padding was left out of the count
        self._num_tokens = 0
        return num_tokens

    def watch(self, value: torch.Tensor) -> None:
        """Let the next log count `value` if it is not finite; to look now would be a host sync."""
        self._unchecked.append(value)
        self._updates.append(self._num_updates)

    def _count_nonfinite(self) -> None:
        if self._unchecked:
            is_bad = stack_scalars(self._unchecked).isfinite().logical_not_()
            self._num_nonfinite += is_bad.sum().to(self._loss.device)
            self._is_counted = True
            if len(self._bad) < _MOST_BAD:  # a run that never logs keeps no more
                self._bad.append((is_bad, self._updates))
            self._unchecked.clear()
            self._updates = []

    def _find_first_nonfinite(self, step: int, checked: list[float]) -> int | None:
        """The update of the first value that is not finite; None if it was counted in another process."""
        parts = [(is_bad.tolist(), updates) for is_bad, updates in self._bad]  # read only if there is one
        parts.append(([not math.isfinite(value) for value in checked], self._updates))
        found = (
            number for bad, numbers in parts for is_bad, number in zip(bad, numbers, strict=True) if is_bad
        )
        first = next(found, None)
        return None if first is None else step - self._num_updates + first + 1

    def drain(self, step: int, note: Any = None, norm: Scalar | None = None) -> dict[str, float]:
        """What to log at `step`: the mean loss since the last log, records, and non-finite values if any.

        Args:
            step: Updates made so far.
            note: A plain value that every rank gets of every other, in `notes`, with the same exchange.
            norm: The norm of the gradients, which is logged too if it is given.
        """
        if len(self._unchecked) > _FEW:
            self._count_nonfinite()
        unchecked, self._unchecked = self._unchecked, []
        values = [self.loss, 0.0 if norm is None else norm, *unchecked, *self._records.sums()]
        if self._is_counted:
            values.append(self._num_nonfinite)
        total, length, *rest = read_numbers(values)  # host sync
        checked, sums = rest[: len(unchecked)], rest[len(unchecked) : len(rest) - self._is_counted]
        count = sum(not math.isfinite(value) for value in checked) + (rest[-1] if self._is_counted else 0)
        self.first_nonfinite = self._find_first_nonfinite(step, checked) if count else None
        self._updates, self._num_updates = [], 0
        self._bad.clear()
        own = self._finite.drain(total)
        self._loss.zero_()
        found = comm.gather_objects((own, self._records.totals_of(sums), int(count), note))
        losses, records, counts, self.notes = map(list, zip(*found, strict=True))
        loss = self._mean_of_ranks(losses)
        logs = {"loss": loss / max(step - self.last_logged_step - self._num_refused, 1)}
        self.total_loss += loss
        self.first_step += self._num_refused  # refused updates do not count in the mean of the run
        num_refused, self._num_refused = self._num_refused, 0
        self.last_logged_step = step
        # the most of any rank, not the sum: a gradient norm that is not finite is the same on all
        logs.update(self._records.drain_with(records))
        logs.update(self._report_nonfinite(max(counts), step, num_refused))
        return logs if norm is None else {**logs, "grad_norm": length}

    def _mean_of_ranks(self, losses: list[float]) -> float:
        """The mean over ranks, in the precision of a loss; those that are not finite may be left out."""
        finite = [loss for loss in losses if math.isfinite(loss)]
        kept = finite if finite and self.filters else losses
        return kept[0] if len(kept) == 1 else float(torch.tensor(kept, dtype=self._loss.dtype).mean())

    def _report_nonfinite(self, count: int, step: int, num_refused: int) -> dict[str, float]:
        if self._is_counted:
            self._num_nonfinite.zero_()
            self._is_counted = False
        if not count:
            return {}
        if not self.num_nonfinite_total and num_refused:
            logger.warning(
                "%d loss or gradient norm value(s) before step %d were not finite (NaN or infinite). Updates "
                "left out: %d; the weights are as they were before each of them (on_nonfinite='skip').",
                count,
                step,
                num_refused,
            )
        elif not self.num_nonfinite_total:
            logger.warning(
                "%d loss or gradient norm value(s) before step %d were not finite (NaN or infinite): the "
                "weights may be damaged. Set on_nonfinite='skip' to leave such updates out, or 'raise' to "
                "stop at them.",
                count,
                step,
            )
        self.num_nonfinite_total += count
        return {"nonfinite": count}

    def mean_loss(self, step: int) -> float:
        """The loss of the run so far, averaged over its updates."""
        own = self._finite.drain(float(self.loss))  # host sync
        self.total_loss += self._mean_of_ranks(comm.gather_objects(own))
        self._loss.zero_()
        return self.total_loss / max(step - self.first_step - self._num_refused, 1)
