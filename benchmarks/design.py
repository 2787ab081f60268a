"""What designed measurements save: python -m benchmarks.design [--variants] [--seeds 20].

The layer model is fitted to what each method would have measured for the same machine-seconds,
and judged on operators it never saw. Methods plan with predicted costs and pay the measured ones:
time x steps of a measurement + set-up. Every budget has a design of its own, made before anything
is measured; what a random choice holds, the next larger one holds too. All methods are fitted and
weighted alike. --variants tries other D-optimal designs.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.design_pools import (
    KnownPool,
    Table,
    own_table,
    published_tables,
    table_of,
)
from benchmarks.sources import RESULTS, ROOT, data_directory
from foretell.design import choose, method_names
from foretell.design.cells import Cells, cells_of
from foretell.design.problem import problem_of
from foretell.graph.graph import Floats
from foretell.predictors.analytic.fit import GROUP_NOISE, Fitted, fit_with_noise, unfitted

BUDGETS = tuple(2.0**-power for power in range(6, -1, -1))
"""Shares of what about 300 random candidates cost."""
_RANDOM_COUNT = 300
_STEPS, _SETUP_S = 30, 0.1
"""What a measurement of one operator costs: so many runs of it, and making its tensors."""
_NEARLY = 1.05
_IN_TURNS = "d-optimal, in turns"
_OWN_ROWS = "d-optimal, own rows"
_KNOWN_COSTS = "d-optimal, own rows, known costs"
VARIANTS = (_IN_TURNS, _OWN_ROWS, _KNOWN_COSTS)
"""Made anew whenever the budget has doubled, with the constants fitted so far; cases as the layer
model sees them, not as their cell; and those with the costs that only measuring tells, which
favours operators that happen to be fast."""


@dataclass
class Campaign:
    """One method measuring one pool, ever more of it."""

    pool: KnownPool
    way: str
    seed: int
    cells: Cells
    paid_s: Floats

    def __post_init__(self) -> None:
        self.measured: list[int] = []
        self.fitted = unfitted(self.pool.prior)

    def spend(self, budget_s: float) -> float:
        """Measure up to a budget in all; returns the error on held-out rows."""
        if self.way not in ("random", _IN_TURNS):
            self.measured, self.fitted = [], unfitted(self.pool.prior)
        left_s = budget_s - float(self.paid_s[self.measured].sum())
        for candidate in self._order(left_s):
            if self.paid_s[candidate] <= left_s:
                left_s -= float(self.paid_s[candidate])
                self.measured.append(candidate)
        if self.measured:
            self.fitted = self._fit()
        return self.pool.error(self.fitted.constants)

    def _order(self, left_s: float) -> list[int]:
        """What the method would measure next."""
        features = self.pool.features(self.fitted.constants)
        done = np.bincount(self.measured, minlength=len(features))
        problem = problem_of(
            features,
            _operator_cost_s(features.step_s),
            self.fitted.group_noise,
            self.cells,
            measured=features.subset(done > 0) if self.measured else None,
            available=1 - done,
        )
        pool = problem.pool
        if self.way in (_OWN_ROWS, _KNOWN_COSTS):
            known = self.way == _KNOWN_COSTS
            pool = dataclasses.replace(
                pool,
                rows=problem.rows / GROUP_NOISE,
                cost_s=self.paid_s if known else _operator_cost_s(features.step_s),
            )
        return choose(pool, left_s, method=self.way.split(",")[0], seed=self.seed)

    def _fit(self) -> Fitted:
        keep = np.bincount(self.measured, minlength=len(self.pool.candidates)) > 0
        cell, _ = self.cells.places(self.pool.features(self.pool.prior))
        weight = self.cells.weights(cell[keep])
        return fit_with_noise(self.pool.candidates.subset(keep), self.pool.prior, weight=weight)


def curve(pool: KnownPool, way: str, seed: int, cells: Cells) -> list[tuple[float, int, float]]:
    """(budget in seconds, measurements, error) for every budget."""
    paid_s = _operator_cost_s(pool.candidates.measured_s)
    whole_s = _RANDOM_COUNT * float(paid_s.mean())
    campaign = Campaign(pool, way, seed, cells, paid_s)
    found = []
    for share in BUDGETS:
        error = campaign.spend(share * whole_s)
        found.append((share * whole_s, len(campaign.measured), error))
    return found


def _operator_cost_s(step_s: Floats) -> Floats:
    return _SETUP_S + _STEPS * step_s


def reached(errors: Sequence[float], target: float) -> float | None:
    """Share of the budget at which a curve falls to the target, between budgets by logarithms."""
    for i, error in enumerate(errors):
        if error <= target:
            if i == 0:
                return BUDGETS[0]
            part = (errors[i - 1] - target) / (errors[i - 1] - error)
            return float(BUDGETS[i - 1] * (BUDGETS[i] / BUDGETS[i - 1]) ** part)
    return None


def judge(table: Table, seeds: int, ways: Sequence[str]) -> list[list[object]]:
    """Try all ways on one table; prints a summary, returns the ledger."""
    start = time.perf_counter()
    ledger: list[list[object]] = []
    errors: dict[str, list[list[float]]] = {way: [] for way in ways}
    whole_s = 0.0
    for seed in range(seeds):
        pool = table.pool(seed)
        cells = cells_of(pool.features(pool.prior))
        for way in ways:
            points = curve(pool, way, seed, cells)
            whole_s = points[-1][0]
            errors[way].append([error for _, _, error in points])
            for share, (budget_s, count, error) in zip(BUDGETS, points, strict=True):
                ledger.append([table.name, way, seed, share, budget_s, count, error])
    print(
        f"\n{table.name}: {len(pool.candidates)} candidates, {len(pool.held_out)} held out, "
        f"{seeds} seeds, budget {whole_s:.0f} s; before any measurement "
        f"{100 * pool.error(pool.prior):.1f} %, with all {100 * _error_of_all(pool):.1f} %"
    )
    _print_errors(errors)
    print(f"took {time.perf_counter() - start:.0f} s", flush=True)
    return ledger


def _error_of_all(pool: KnownPool) -> float:
    return pool.error(fit_with_noise(pool.candidates, pool.prior).constants)


def _print_errors(errors: dict[str, list[list[float]]]) -> None:
    """Medians and quartiles per budget, and where each curve meets random's last error."""
    target = float(np.median(errors["random"], axis=0)[-1])
    shares = "".join(f"{f'1/{round(1 / b)}':>18}" for b in BUDGETS)
    nearly = f"within {100 * (_NEARLY - 1):.0f} %"
    print(f"{'median (quartiles), %':33}{shares}{'as random':>12}{nearly:>12}")
    for way, rows in errors.items():
        low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
        text = "".join(
            f"{f'{100 * m:.1f} ({100 * a:.1f}-{100 * b:.1f})':>18}"
            for m, a, b in zip(middle, low, high, strict=True)
        )
        meets = "".join(
            f"{'never' if share is None else f'{share:.2f}':>12}"
            for share in (reached(middle.tolist(), f * target) for f in (1.0, _NEARLY))
        )
        print(f"{way:33}{text}{meets}", flush=True)


def main() -> None:
    """Judge every table, write the ledger and the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--variants", action="store_true", help="other D-optimal designs too")
    options = parser.parse_args()
    ways = [*method_names(), *(VARIANTS if options.variants else ())]
    ledger = judge(own_table(), options.seeds, ways)
    for name, load in published_tables() if data_directory() else []:
        ledger += judge(table_of(name, load()), options.seeds, ways)
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
