"""What designed measurements save: python -m benchmarks.design [--seeds N] [--store DIR].

The layer model is fitted to what each method would have measured for the same machine-seconds,
and judged on operators it never saw. Methods plan with predicted costs and pay the measured ones:
time x steps of a measurement + set-up. The D- and A-optimal designs are made anew whenever the
budget has doubled, with the constants fitted so far; random goes on; the Latin hypercube is drawn
for each budget. All methods are fitted and weighted alike.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.design_pools import (
    KnownPool,
    Table,
    published_tables,
    stored_table,
    table_of,
)
from benchmarks.sources import RESULTS, ROOT
from foretell.design import choose, method_names
from foretell.design.cells import Cells, cells_of
from foretell.design.cost import measuring_cost_s
from foretell.design.problem import problem_of
from foretell.graph.graph import Floats
from foretell.predictors.analytic.fit import Fitted, fit_with_noise, unfitted

BUDGETS = tuple(2.0**-power for power in range(6, -1, -1))
"""Shares of what about 300 random candidates cost."""
_RANDOM_COUNT = 300
_ONE_BY_ONE = ("d-optimal", "a-optimal", "random")


@dataclass
class Campaign:
    """One method measuring one pool, ever more of it."""

    pool: KnownPool
    method: str
    seed: int
    cells: Cells
    paid_s: Floats

    def __post_init__(self) -> None:
        self.measured: list[int] = []
        self.fitted = unfitted(self.pool.prior)

    def spend(self, budget_s: float) -> float:
        """Measure up to a budget in all; returns the error on held-out rows."""
        if self.method not in _ONE_BY_ONE:
            self.measured = []
        features = self.pool.features(self.fitted.constants)
        planned_s = measuring_cost_s(
            features.step_s, features.processes, np.ones(len(features), dtype=np.bool_)
        )
        done = np.bincount(self.measured, minlength=len(features))
        problem = problem_of(
            features,
            planned_s,
            self.fitted.group_noise,
            self.cells,
            measured=features.subset(done > 0) if self.measured else None,
            available=1 - done,
        )
        left_s = budget_s - float(self.paid_s[self.measured].sum())
        order = choose(problem.pool, left_s, method=self.method, seed=self.seed)
        for candidate in order:
            if self.paid_s[candidate] <= left_s:
                left_s -= float(self.paid_s[candidate])
                self.measured.append(candidate)
        if self.measured:
            self.fitted = self._fit()
        return self.pool.error(self.fitted.constants)

    def _fit(self) -> Fitted:
        keep = np.bincount(self.measured, minlength=len(self.pool.candidates)) > 0
        cell, _ = self.cells.places(self.pool.features(self.pool.prior))
        weight = self.cells.weights(cell[keep])
        return fit_with_noise(self.pool.candidates.subset(keep), self.pool.prior, weight=weight)


def curve(pool: KnownPool, method: str, seed: int, cells: Cells) -> list[tuple[float, int, float]]:
    """(budget in seconds, measurements, error) for every budget."""
    paid_s = measuring_cost_s(
        pool.candidates.measured_s,
        np.ones(len(pool.candidates), dtype=np.int64),
        np.ones(len(pool.candidates), dtype=np.bool_),
    )
    whole_s = _RANDOM_COUNT * float(paid_s.mean())
    campaign = Campaign(pool, method, seed, cells, paid_s)
    found = []
    for share in BUDGETS:
        error = campaign.spend(share * whole_s)
        found.append((share * whole_s, len(campaign.measured), error))
    return found


def reached(errors: Sequence[float], target: float) -> float | None:
    """Share of the budget at which a curve falls to the target, between budgets by logarithms."""
    for i, error in enumerate(errors):
        if error <= target:
            if i == 0:
                return BUDGETS[0]
            part = (errors[i - 1] - target) / (errors[i - 1] - error)
            return float(BUDGETS[i - 1] * (BUDGETS[i] / BUDGETS[i - 1]) ** part)
    return None


def judge(table: Table, seeds: int) -> list[list[object]]:
    """Run all methods on one table; prints a summary, returns the ledger."""
    start = time.perf_counter()
    ledger: list[list[object]] = []
    errors: dict[str, list[list[float]]] = {name: [] for name in method_names()}
    for seed in range(seeds):
        pool = table.pool(seed)
        cells = cells_of(pool.features(pool.prior))
        for method in method_names():
            points = curve(pool, method, seed, cells)
            errors[method].append([error for _, _, error in points])
            for share, (budget_s, count, error) in zip(BUDGETS, points, strict=True):
                ledger.append([table.name, method, seed, share, budget_s, count, error])
    whole_s = max(float(row[4]) for row in ledger)  # type: ignore[arg-type]
    print(
        f"\n{table.name}: {len(pool.candidates)} candidates, {len(pool.held_out)} held out, "
        f"{seeds} seeds, budget {whole_s:.0f} s, before any measurement "
        f"{100 * pool.error(pool.prior):.1f} %"
    )
    print(f"{'':16}" + "".join(f"{f'1/{round(1 / b)}':>20}" for b in BUDGETS))
    medians = {name: np.median(rows, axis=0) for name, rows in errors.items()}
    for name, rows in errors.items():
        low, high = np.quantile(rows, [0.25, 0.75], axis=0)
        cells_text = (
            f"{100 * m:5.1f} ({100 * a:.1f}-{100 * b:.1f})"
            for m, a, b in zip(medians[name], low, high, strict=True)
        )
        print(f"{name:16}" + "".join(f"{text:>20}" for text in cells_text), flush=True)
    target = float(medians["random"][-1])
    for name in method_names():
        share = reached(medians[name].tolist(), target)
        said = f"{share:.2f} of its cost" if share is not None else "no budget tried"
        print(f"{name} reaches random's final {100 * target:.1f} % at {said}")
    print(f"took {time.perf_counter() - start:.0f} s")
    return ledger


def main() -> None:
    """Judge every table, write the ledger and the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--store", type=Path, help="use our own measurements instead")
    options = parser.parse_args()
    if options.store is not None:
        judge(stored_table(options.store), options.seeds)
        return
    ledger = []
    for name, load in published_tables():
        ledger += judge(table_of(name, load()), options.seeds)
    _write(ledger)
    _plot(ledger)


def _write(ledger: list[list[object]]) -> None:
    path = RESULTS / "design.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            ["pool", "method", "seed", "budget_share", "budget_s", "measurements", "mean_error"]
        )
        for row in ledger:
            writer.writerow([f"{v:.5g}" if isinstance(v, float) else v for v in row])
    print(f"wrote {path.relative_to(ROOT)}")


def _plot(ledger: list[list[object]]) -> None:
    """Median error and quartiles against the budget, one panel per pool."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "design"
    import matplotlib.pyplot as plt

    pools = list(dict.fromkeys(row[0] for row in ledger))
    figure, panels = plt.subplots(1, len(pools), figsize=(3.4 * len(pools), 2.8), squeeze=False)
    for panel, pool in zip(panels[0], pools, strict=True):
        for method in method_names():
            rows = [row for row in ledger if row[0] == pool and row[1] == method]
            by_share = [[100 * float(r[6]) for r in rows if r[3] == b] for b in BUDGETS]  # type: ignore[arg-type]
            low, middle, high = np.quantile(by_share, [0.25, 0.5, 0.75], axis=1)
            (line,) = panel.plot(BUDGETS, middle, label=method, linewidth=1.2)
            panel.fill_between(BUDGETS, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        panel.set(xscale="log", yscale="log", title=pool, xlabel="share of the budget")
        panel.set_xticks(BUDGETS, [f"1/{round(1 / b)}" for b in BUDGETS])
        panel.minorticks_off()
    panels[0][0].set_ylabel("mean error, %")
    panels[0][-1].legend(fontsize=7)
    figure.tight_layout()
    path = ROOT / "docs" / "images" / "design.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
