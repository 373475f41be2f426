"""CodeCarbon: what a run costs in energy and carbon dioxide, as a line in `emissions.csv`."""

from __future__ import annotations

import logging
import os
from typing import Any

from footplate.integrations.base import TrackerCallback
from footplate.integrations.run import Run

OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


class CodeCarbonCallback(TrackerCallback):
    """Measures a run with CodeCarbon.

    `CODECARBON_*` variables and `.codecarbon.config` hold. Where they name the country, or an offline
    variable of the Hub is set, nothing is asked of the network. Each leg of a resumed run has a line of its
    own, brought up to date with every checkpoint, so that a killed one is counted as well.
    """

    name = "codecarbon"
    package = "codecarbon"

    def __init__(self) -> None:
        super().__init__()
        self.tracker: Any = None

    def open(self, run: Run) -> str | None:
        """Begin to measure."""
        try:
            import codecarbon
        except ImportError as error:
            raise ImportError(
                "report_to='codecarbon' needs codecarbon: pip install footplate[codecarbon]."
            ) from error
        from codecarbon.core.config import get_hierarchical_config

        level = logging.getLogger("footplate").getEffectiveLevel() // 10 * 10  # it knows whole tens only
        logging.getLogger("codecarbon").setLevel(level)
        settings = get_hierarchical_config()
        defaults = {
            "output_dir": run.output_dir,
            "project_name": run.name,
            "log_level": level,
            "on_csv_write": "update",
        }
        given = {key: value for key, value in defaults.items() if key not in settings}
        is_offline = "country_iso_code" in settings or any(map(_is_set, OFFLINE_VARIABLES))
        kind: Any = codecarbon.OfflineEmissionsTracker if is_offline else codecarbon.EmissionsTracker
        self.tracker = kind(**given)
        self.tracker.start()
        return str(self.tracker.run_id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Nothing: it measures, and takes no metrics."""

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Write down what was used so far, as a resume would go on from here."""
        if self.tracker is not None:
            self.tracker.flush()

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Stop measuring, and write the line."""
        self.close()

    def close(self) -> None:
        """The same for a run that only evaluated, or broke off."""
        if self.tracker is not None and getattr(self.tracker, "final_emissions_data", None) is None:
            self.tracker.stop()


def _is_set(variable: str) -> bool:
    return os.getenv(variable, "").upper() in ("1", "ON", "YES", "TRUE")
