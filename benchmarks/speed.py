"""How fast Foretell answers: python -m benchmarks.speed.

Start-up of the command, one prediction in process, many cases at once, rescaling, peak memory.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_COMMAND = [sys.executable, "-c", "from foretell.cli import main; main()"]


def main() -> None:
    """Print the table."""
    from foretell.cases import run_cases
    from foretell.cluster import parse_cluster
    from foretell.graph import graph_of
    from foretell.predictors import predictor
    from foretell.workload import Recipe, Workload

    resnet = ("predict", "timm:resnet50", "--batch", "256", "--json")
    llama = ("predict", "hf:meta-llama/Meta-Llama-3-70B", "--precision", "bf16", "--json")
    for name, args in {"--help": ("--help",), "cached ResNet-50": resnet}.items():
        _command(args)
        seconds = [_command(args)[0] for _ in range(5)]
        print(f"foretell {name}: {statistics.median(seconds):.2f} s")
    with tempfile.TemporaryDirectory() as empty:
        for name, args in {"ResNet-50": resnet, "Llama-3-70B": llama}.items():
            seconds, peak = _command(args, FORETELL_CACHE=str(Path(empty) / name))
            print(f"uncached {name}: {seconds:.2f} s, peak memory {peak / 2**20:.0f} MiB")
    graph = graph_of("timm:resnet50")
    cluster = parse_cluster("a100-80gb")
    print(f"rescaling: {1e3 * _median(lambda i: graph.at(i + 2).kind_flops):.3f} ms")
    for name in ("analytic", "scaledl"):
        chosen = predictor(name)
        started = time.perf_counter()
        chosen.predict(Workload(graph, Recipe()), cluster)
        print(f"{name}, first prediction: {1e3 * (time.perf_counter() - started):.1f} ms")
        one = _median(lambda i: chosen.predict(Workload(graph, Recipe(batch=i + 1)), cluster))  # noqa: B023
        print(f"{name}, one prediction in process: {1e3 * one:.2f} ms")
        for devices in (1_024, 10_240):
            took = _distributed_s(devices, name)
            print(f"{name}, a step on {devices:,} devices: {1e3 * took:.1f} ms")
        with tempfile.TemporaryDirectory() as folder:
            rate = _cases_per_second(Path(folder), run_cases, name)
            print(f"{name}, cases over 50 graphs: {rate:.0f} a second")


def _distributed_s(devices: int, name: str) -> float:
    """One forecast of a Llama-3-70B step with tp=8 and pp=8, a new batch each time."""
    from foretell.cluster import parse_cluster
    from foretell.graph import graph_of
    from foretell.predictors import predictor
    from foretell.workload import Recipe, Workload

    graph = graph_of("hf:meta-llama/Meta-Llama-3-70B", seq=4096, precision="bf16")
    cluster = parse_cluster(f"{devices // 8}x8xh100-sxm")

    def forecast(i: int) -> object:
        batch = 1 + i
        plan = {"tp": 8, "pp": 8, "zero": 1, "global_batch": batch * devices // 64 * 64}
        recipe = Recipe(precision="bf16", batch=batch, **plan)  # type: ignore[arg-type]
        return predictor(name).predict(Workload(graph, recipe), cluster)

    forecast(1000)
    return _median(forecast, repeats=10)


def _cases_per_second(folder: Path, run: Callable[[Path, Path], object], name: str) -> float:
    models = [
        f"transformer:layers={2 + i % 10},hidden={128 * (1 + i // 10)},heads=4,seq=128,vocab=1000"
        for i in range(50)
    ]
    lines = [
        json.dumps({"model": m, "batch": 1 + b, "predictor": name})
        for b in range(20)
        for m in models
    ]
    (folder / "cases.jsonl").write_text("\n".join(lines))
    run(folder / "cases.jsonl", folder / "warm.jsonl")
    started = time.perf_counter()
    run(folder / "cases.jsonl", folder / "out.jsonl")
    return len(lines) / (time.perf_counter() - started)


def _command(args: tuple[str, ...], **environment: str) -> tuple[float, int]:
    """Seconds and peak resident bytes of one command."""
    started = time.perf_counter()
    child = subprocess.Popen(
        [*_COMMAND, *args], stdout=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"foretell {' '.join(args)} failed")
    return time.perf_counter() - started, _peak_bytes(usage)


def _peak_bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _median(call: Callable[[int], object], repeats: int = 100) -> float:
    seconds = []
    for i in range(repeats):
        started = time.perf_counter()
        call(i)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
