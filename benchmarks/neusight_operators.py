"""Operators on devices never seen: python -m benchmarks.neusight_operators [--epochs 12].

The layer model is fitted to everything but the devices that NeuSight kept for its own test (L4,
H100, A100 80 GB, MI100 and MI210), in any source, and says how long the operators of that test take
there. The fit is kept in --work.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from benchmarks.sources import OWN, RESULTS, ROOT, measured, required_data
from foretell.data import Record
from foretell.fit.adapt import trained_of
from foretell.fit.corpora import cached_corpus
from foretell.fit.members import read_kept, summary
from foretell.fit.run import Plan, read_parts
from foretell.fit.side_by_side import Task, fit_all
from foretell.predictors.scaledl.train import Effort

_AWAY = ("l4", "h100-", "a100-80gb", "mi100", "mi210")
_PER_TABLE, _WORKERS = 250, 2


def main() -> None:
    """Fit, judge, print, and write the ledger."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--work", type=Path, default=Path("neusight-work"))
    options = parser.parse_args()
    data = required_data()
    plan = Plan(data=data, work=options.work, measurements=OWN)
    corpus, _ = read_parts(plan, lambda name, share: None)
    away = np.array([s.device.startswith(_AWAY) for s in corpus.settings])[corpus.setting]
    effort = Effort(epochs=options.epochs)
    task = Task(away, effort, options.work / f"{options.epochs}-epochs")
    fit_all(corpus, [task], _WORKERS, lambda name, share: None)
    member, _, _ = read_kept(task.kept)
    asked, _ = cached_corpus("neusight-test", _test_records(), _WORKERS, lambda done, total: None)
    said = trained_of(member).predict(asked, np.arange(len(asked)))
    ratio = said / asked.measured_s
    device = np.array([s.device for s in asked.settings])[asked.setting]
    name = np.array([key.removeprefix("op:").partition(",")[0] for key in asked.keys])
    print(f"{'device':16} {'operator':12} {'n':>5} {'mean':>7} {'median':>7} {'p90':>7} {'max':>7}")
    for where, what in sorted(set(zip(device.tolist(), name.tolist(), strict=True))):
        e = summary(ratio[(device == where) & (name == what)])
        shown = " ".join(f"{100 * e[k]:6.1f}%" for k in ("mean", "median", "p90", "max"))
        print(f"{where:16} {what:12} {e['n']:5.0f} {shown}")
    path = RESULTS / "neusight-operators.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["device", "row", "measured_s", "ratio"])
        for i, label in enumerate(asked.labels):
            writer.writerow([device[i], label, f"{asked.measured_s[i]:.4g}", f"{ratio[i]:.4f}"])
    print(f"wrote {path.relative_to(ROOT)}")


def _test_records() -> list[Record]:
    """Some of every table, evenly."""
    tables: dict[tuple[str, str], list[Record]] = {}
    for record in measured("neusight"):
        inside = "/test/" in record.origin and record.model.startswith("op:")
        if inside and record.device.startswith(_AWAY):
            tables.setdefault((record.device, record.model.partition(",")[0]), []).append(record)
    found = [r for rows in tables.values() for r in rows[:: max(1, len(rows) // _PER_TABLE)]]
    return sorted(found, key=lambda r: (r.model, r.batch or 0))


if __name__ == "__main__":
    main()
