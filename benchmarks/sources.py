"""Where outside measurements live on this machine, and how to ask for them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
FOLDERS = {
    "llm_foundry": "llm-foundry",
    "mlperf": "mlperf_training",
    "pollux": "pollux_osdi21",
    "sia": "sia_sosp23",
}
"""Sources whose folder has another name."""


def data_directory() -> Path | None:
    """FORETELL_DATA, else shared/data beside the checkout; None when there is neither."""
    chosen = Path(os.environ.get("FORETELL_DATA") or ROOT.parent / "shared" / "data")
    return chosen if chosen.is_dir() else None


def require(folder: str) -> Path:
    """The folder of one source, or a plain message and exit."""
    base = data_directory()
    if base is None or not (base / folder).is_dir():
        raise SystemExit(
            f"{folder} measurements are not here: fetch them from upstream and set FORETELL_DATA "
            "to the folder that holds them"
        )
    return base / folder
