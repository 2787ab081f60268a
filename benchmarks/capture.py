"""How much can be captured, and how fast: python -m benchmarks.capture [--limit N].

Every name timm lists and every Hugging Face name we ship, captured as training steps without a
cache. Writes the ledger of times and failures.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time

from benchmarks.sources import RESULTS, ROOT
from foretell.errors import ForetellError
from foretell.graph.capture import CaptureOptions, capture
from foretell.graph.sources import subject_of
from foretell.graph.sources.hf_catalogue import entry, names
from foretell.graph.sources.timm_source import timm_names


def main() -> None:
    """Capture everything and print shares and times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=1, help="take every n-th name only")
    options = parser.parse_args()
    architectures = sorted({entry(n).name for n in names()})
    groups = {
        "timm": [f"timm:{n}" for n in timm_names()][:: options.limit],
        "hf": [f"hf:{n}" for n in architectures][:: options.limit],
    }
    ledger: list[list[object]] = []
    for group, references in groups.items():
        _first_use(references[0])
        seconds = []
        for reference in references:
            started = time.perf_counter()
            failure = _attempt(reference)
            took = time.perf_counter() - started
            ledger.append([reference, round(took, 3), failure])
            if failure:
                print(f"  {reference}: {failure}", flush=True)
            else:
                seconds.append(took)
        share = 100 * len(seconds) / len(references)
        ordered = sorted(seconds)
        print(
            f"{group}: {len(seconds)} of {len(references)} captured ({share:.1f} %), "
            f"median {statistics.median(seconds):.2f} s, "
            f"p90 {ordered[int(0.9 * len(ordered))]:.2f} s, max {ordered[-1]:.2f} s",
            flush=True,
        )
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "capture.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([["model", "seconds", "failure"], *ledger])
    print(f"wrote {path.relative_to(ROOT)}")


def _first_use(reference: str) -> None:
    """Imports and one-time registrations are not what is timed."""
    _attempt(reference)


def _attempt(reference: str) -> str:
    try:
        capture(subject_of(reference), CaptureOptions(precision="amp-bf16"))
    except ForetellError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
