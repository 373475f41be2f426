"""The Trainer, by subject: `training.py` is the loop, `base.py` declares what all parts see."""

from footplate.trainer.trainer import Trainer

__all__ = ["Trainer"]
