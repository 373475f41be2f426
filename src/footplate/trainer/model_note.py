"""What a run notes of its model before the first update, for the report."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from footplate.instruments.outline import Outline
from footplate.trainer.rehearsing import least_bytes
from footplate.wrappers import unwrap_model

if TYPE_CHECKING:
    from footplate.trainer.training import Training

logger = logging.getLogger(__name__)


def note_model(trainer: Training) -> None:
    """Let the journal keep what the model consists of, and tell callbacks that want to know."""
    handler = trainer.callback_handler
    if not handler.recorders and not handler.listens("on_note"):
        return
    try:
        outline = Outline(unwrap_model(trainer.model)).to_note()
    except Exception as error:  # a module may do anything when it is asked for its parts
        logger.info("The report does not show the model: %s: %s", type(error).__name__, error)
        return
    optimizer: Any = getattr(
        trainer.optimizer, "optimizer", trainer.optimizer
    )  # without Accelerate's wrapper
    known = {"optimizer": type(optimizer).__name__, "optimizer_bytes": least_bytes(optimizer) or None}
    handler.extras["note"]("model", **outline, **known)
