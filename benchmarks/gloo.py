"""Predicted distributed steps against real ones: two processes, gloo, a network of known speed.

Per model one process alone gives the seconds of forward, backward and optimizer (and what DTensor's
dispatch adds to them); per rate a few collectives give the network. Everything else - what is
sent, when, and what it delays - is the forecast's. Payload is what the interface counted less 66
bytes of headers per packet.

python -m benchmarks.gloo [MODEL ...]
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.gloo_hosts import Workers
from benchmarks.gloo_models import MODELS, PIPELINES, Model
from benchmarks.gloo_network import Network, fit_network
from benchmarks.gloo_predict import Plan
from foretell.measure.namespaces import HostPair, why_not
from foretell.parallel.schedule import Pipelined

RATES: dict[str, float | None] = {"unshaped": None, "1 Gbit/s": 1e9, "100 Mbit/s": 1e8}
_SIZES = (2**16, 2**18, 2**20, 2**22, 2**23)
_LONGEST_S = 0.5
_ENOUGH_S = 4.0
_RESULTS = Path(__file__).parent / "results" / "gloo.csv"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model, one strategy, one rate."""

    model: str
    strategy: str
    rate: str
    local_s: float
    measured_s: float
    predicted_s: float
    measured_bytes: float
    predicted_bytes: float

    @property
    def error(self) -> float:
        """Of the step time, relative to the measured."""
        return self.predicted_s / self.measured_s - 1

    @property
    def traffic_error(self) -> float:
        """Of the bytes a process sends in a step."""
        return self.predicted_bytes / self.measured_bytes - 1


def measure_network(
    workers: Workers, bits_per_s: float | None, most_bytes: int = 2**23, repeats: int = 7
) -> Network:
    """Shape the link and see what it does."""
    workers.hosts.shape(bits_per_s)
    at_once = most_bytes if bits_per_s is None else min(most_bytes, bits_per_s / 8 * _LONGEST_S)
    sizes = [n for n in _SIZES if n <= at_once]
    answers = workers.ask("network", sizes=sizes, repeats=repeats)
    return fit_network(answers, bits_per_s)


def measure(
    workers: Workers,
    plan: Plan,
    networks: Mapping[str, Network],
    rates: Mapping[str, float | None],
    most_repeats: int = 9,
) -> Iterator[Row]:
    """Both sides of one model and strategy at several rates."""
    workers.hosts.shape(None)
    first, *_ = networks.values()
    workers.ask("prepare", **plan.job(first))
    for rate, bits_per_s in rates.items():
        workers.hosts.shape(bits_per_s)
        guess = plan.predict(networks[rate], (0.1, 0.2, 0.02)).step_s
        repeats = min(most_repeats, max(3, round(_ENOUGH_S / (guess + 0.4))))
        answers = workers.ask("measure", repeats=repeats, warm=1)
        yield _row(plan, rate, networks[rate], answers)


def _row(plan: Plan, rate: str, network: Network, answers: Sequence[dict[str, Any]]) -> Row:
    both, solo, wrapped = (_phases(answers, n) for n in ("local_s", "solo_s", "wrapped_s"))
    dispatch = [max(0.0, w - b) for w, b in zip(wrapped, both, strict=True)]
    phases = both
    run = plan.predict(network, phases, dispatch)
    for _ in range(3 if plan.strategy in PIPELINES else 0):
        rest = _rest(run.pipeline)
        phases = [(1 - rest) * b + rest * s for b, s in zip(both, solo, strict=True)]
        run = plan.predict(network, phases, dispatch)
    steps = [max(pair) for pair in zip(*(a["step_s"] for a in answers), strict=True)]
    return Row(
        model=plan.model.name,
        strategy=plan.strategy,
        rate=rate,
        local_s=sum(phases),
        measured_s=statistics.median(steps),
        predicted_s=run.step_s,
        # Packets lost and sent again only ever add.
        measured_bytes=statistics.mean(min(a["sent_bytes"]) for a in answers),
        predicted_bytes=sum(run.sent_bytes.values()),
    )


def _phases(answers: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Seconds of forward, backward and optimizer of the slower process: training waits for it."""
    pairs = zip(*(a[name] for a in answers), strict=True)
    slower = [max(pair, key=sum) for pair in pairs]
    return [statistics.median(column) for column in zip(*slower, strict=True)]


def _rest(pipeline: Pipelined) -> float:
    """Share of its work that a stage does while the other one waits.

    Two processes on one machine slow each other down, and other work on it more so: the more
    they wait, the faster they compute.
    """
    first, second = ([s for s in pipeline.spans if s.rank == rank] for rank in range(2))
    beside = sum(
        max(0.0, min(a.end_s, b.end_s) - max(a.start_s, b.start_s)) for a in first for b in second
    )
    return 1 - 2 * beside / sum(pipeline.busy_s)


def summary(name: str, errors: Sequence[float]) -> str:
    """n, mean, median, p90 and max of absolute errors."""
    off = sorted(100 * abs(e) for e in errors)
    p90 = off[min(len(off) - 1, int(0.9 * len(off)))]
    return (
        f"{name:24} n {len(off):3d}  mean {statistics.mean(off):6.2f} %  "
        f"median {statistics.median(off):6.2f} %  p90 {p90:6.2f} %  max {off[-1]:6.2f} %"
    )


def report(rows: Sequence[Row]) -> None:
    """Errors by strategy, by rate, and over all."""
    print(summary("step time", [r.error for r in rows]))
    for key in ("strategy", "rate"):
        for value in dict.fromkeys(getattr(r, key) for r in rows):
            chosen = [r.error for r in rows if getattr(r, key) == value]
            print(summary(f"  {value}", chosen))
    print(summary("traffic", [r.traffic_error for r in rows]))
    for value in dict.fromkeys(r.strategy for r in rows):
        print(summary(f"  {value}", [r.traffic_error for r in rows if r.strategy == value]))


def write(rows: Sequence[Row], path: Path = _RESULTS) -> None:
    """The table as CSV."""
    names = [f.name for f in fields(Row)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*names, "error", "traffic_error"], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            values = {k: v if isinstance(v, str) else f"{v:.6g}" for k, v in asdict(row).items()}
            errors = {"error": f"{row.error:.4f}", "traffic_error": f"{row.traffic_error:.5f}"}
            writer.writerow(values | errors)


def run(models: Sequence[Model]) -> list[Row]:
    """Every strategy of the models at every rate, told as it goes."""
    rows: list[Row] = []
    began = time.monotonic()
    with HostPair() as hosts, Workers(hosts) as workers:
        networks = {rate: measure_network(workers, bits) for rate, bits in RATES.items()}
        for rate, network in networks.items():
            print(f"{rate}: {_told(network)}", flush=True)
        print(
            f"{'model':10} {'strategy':8} {'rate':>10} {'alone':>9} {'measured':>9} "
            f"{'predicted':>9} {'error':>8} {'traffic':>8} {'error':>8}"
        )
        for model in models:
            for strategy in model.strategies:
                for row in measure(workers, Plan.of(model, strategy), networks, RATES):
                    rows.append(row)
                    print(
                        f"{row.model:10} {row.strategy:8} {row.rate:>10} "
                        f"{1e3 * row.local_s:6.0f} ms {1e3 * row.measured_s:6.0f} ms "
                        f"{1e3 * row.predicted_s:6.0f} ms {100 * row.error:+6.1f} % "
                        f"{row.measured_bytes / 1e6:5.1f} MB {100 * row.traffic_error:+6.2f} %"
                        f"  [{time.monotonic() - began:3.0f} s]",
                        flush=True,
                    )
    return rows


def _told(network: Network) -> str:
    patterns = network.constants.links[network.link.id]
    parts = []
    for name, pattern in patterns.items():
        simple = pattern.protocols["simple"]
        rate = simple.efficiency * network.link.bandwidth_bytes_per_s
        parts.append(f"{name} {1e3 * simple.start_s:.2f} ms + {rate / 1e6:.0f} MB/s")
    copies = f"copies {network.copy_bytes_per_s / 1e9:.1f} GB/s"
    return f"{', '.join(parts)}; {100 * network.core_share:.0f} % of a core; {copies}"


def main() -> None:
    """Print the table and write it."""
    reason = why_not()
    if reason:
        raise SystemExit(f"real runs are not possible here: {reason}")
    named = sys.argv[1:]
    rows = run([m for m in MODELS if not named or m.name in named])
    report(rows)
    if not named:
        write(rows)


if __name__ == "__main__":
    main()
