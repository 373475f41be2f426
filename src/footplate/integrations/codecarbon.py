"""CodeCarbon: the energy and carbon dioxide of a run, as a line in `emissions.csv`."""

from __future__ import annotations

import logging
from typing import Any

from footplate.integrations.base import TrackerCallback
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.words import read_flag

OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


class CodeCarbonCallback(TrackerCallback):
    """Measures a run with CodeCarbon.

    `CODECARBON_*` variables and `.codecarbon.config` apply. If they name the country, or an offline variable
    of the Hub is set, the network is not used. Each process of a resumed run has its own line, updated with
    every checkpoint, so that the energy of a killed process is counted too.
    """

    name = "codecarbon"

    def __init__(self) -> None:
        super().__init__()
        self.tracker: Any = None

    def open(self, run: Run) -> str | None:
        """Start measuring."""
        codecarbon = import_client("codecarbon")
        from codecarbon.core.config import get_hierarchical_config

        level = logging.getLogger("footplate").getEffectiveLevel() // 10 * 10  # it accepts only whole tens
        logging.getLogger("codecarbon").setLevel(level)
        settings = get_hierarchical_config()
        defaults = {
            "output_dir": run.output_dir,
            "project_name": run.name,
            "log_level": level,
            "on_csv_write": "update",
        }
        given = {key: value for key, value in defaults.items() if key not in settings}
        is_offline = "country_iso_code" in settings or any(map(read_flag, OFFLINE_VARIABLES))
        kind = codecarbon.OfflineEmissionsTracker if is_offline else codecarbon.EmissionsTracker
        self.tracker = kind(**given)
        self.tracker.start()
        return str(self.tracker.run_id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Do nothing: CodeCarbon takes no metrics."""

    def write_checkpoint(self, folder: str, step: int) -> None:
        """Write what was used up to here, where a resume would start."""
        if self.tracker is not None:
            self.tracker.flush()

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Stop measuring, and write the line."""
        self.close()

    def close(self) -> None:
        """Stop measuring, also after a run that failed or only evaluated."""
        if self.tracker is not None and getattr(self.tracker, "final_emissions_data", None) is None:
            self.tracker.stop()
