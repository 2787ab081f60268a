"""Our own measurements on CPUs: python -m benchmarks.cpu_data [--store DIR] [--out DIR].

Small models at two batches on one process and on two, over loopback and over links of 1 Gbit/s and
100 Mbit/s between network namespaces, one thread each; collectives, and operators alone. A run
that was interrupted goes on where it stopped, and what was disturbed by other work on the machine
(seen by the reference work between steps) is taken again. Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.sources import ROOT
from foretell.data import Record
from foretell.data.columns import to_records, to_table
from foretell.data.export import export
from foretell.data.store import Store
from foretell.measure.jobs import collective_jobs, job, not_yet_measured, operator_jobs
from foretell.measure.runner import Job, Plan, run_jobs
from foretell.measure.task import Task
from foretell.measure.world import World, parse_hosts

STEPS_FILE = ROOT / "benchmarks" / "measured" / "cpu.parquet"
OPERATORS_FILE = STEPS_FILE.with_name("cpu-operators.parquet")
_WORLDS = (
    World(processes=1, threads=1),
    World(processes=2, threads=1),
    World(processes=1, threads=1, **parse_hosts("2@1gbit")),
    World(processes=1, threads=1, **parse_hosts("2@100mbit")),
)
# Name, image size, batches.
_VISION = """
    resnet10t 96 4,16                 resnet14t 64 4,16              resnet18 64 2,8
    mobilenetv2_050 96 4,16           mobilenetv2_100 96 4,8         mobilenetv3_small_050 96 8,32
    mobilenetv3_small_100 96 8,32     mobilenetv3_large_100 96 4,8   mobilenetv4_conv_small 96 8,16
    efficientnet_b0 96 2,8            efficientnet_lite0 96 4,8      tf_efficientnetv2_b0 96 2,8
    mnasnet_small 96 8,16             mixnet_s 96 4,8                ghostnet_100 96 4,8
    lcnet_050 96 16,32                tinynet_e 96 16,32             tinynet_c 96 4,16
    regnetx_002 96 4,16               regnety_002 96 4,16            fbnetc_100 96 4,8
    spnasnet_100 96 4,8               hardcorenas_a 96 4,8           dla46_c 96 4,8
    dla46x_c 96 4,8                   densenet121 64 2,4             repvgg_a0 64 4,8
    convnext_atto 96 4,8              convnext_femto 64 4,8          mobileone_s0 64 4,8
    starnet_s1 96 4,8                 vit_tiny_patch16_224 96 4,16   deit_tiny_patch16_224 112 4,8
    mobilevit_xxs 128 2,8             mobilevit_xs 128 2,4           edgenext_xx_small 128 4,8
    xcit_nano_12_p16_224 112 4,8      efficientvit_b0 128 4,8        gmlp_ti16_224 224 1,2
    pit_ti_224 224 1,2                resmlp_12_224 224 1,2          fastvit_t8 128 2,4
""".split()
_TEXT = {
    "transformer:layers=4,hidden=256,heads=4,seq=128,vocab=4096": (2, 8),
    "transformer:layers=6,hidden=192,heads=4,seq=64,vocab=2000,encoder": (4, 16),
    "transformer:layers=4,hidden=192,heads=6,kv_heads=2,seq=128,vocab=2000,ffn=512,gated,rmsnorm,"
    "rope": (2, 8),
    "transformer:layers=2,hidden=128,heads=4,seq=64,vocab=1000,experts=4": (4, 16),
    "transformer:layers=2,hidden=512,heads=8,seq=64,vocab=1000": (2, 8),
    "transformer:layers=12,hidden=128,heads=2,seq=64,vocab=1000": (4, 16),
    "op:lstm,in=128,hidden=256,seq=32,layers=2": (4, 16),
    "op:gru,in=128,hidden=256,seq=32": (4, 16),
}
_SECONDS, _OPERATOR_SECONDS = 1.5, 0.3
_DISTURBED = 1.25
_UNSTEADY = 0.25


def cases() -> list[dict[str, object]]:
    """Every model at its batches."""
    found: list[dict[str, object]] = []
    for name, size, batches in zip(*(_VISION[i::3] for i in range(3)), strict=True):
        found += [
            {"model": f"timm:{name}", "image_size": int(size), "batch": int(b)}
            for b in batches.split(",")
        ]
    return found + [{"model": m, "batch": b} for m, batches in _TEXT.items() for b in batches]


def jobs() -> list[Job]:
    """Everything to be measured in every world, one batch of all models after the other."""
    task = Task(options={}, seconds=_SECONDS, probe=True)
    found = [job(options, world, task) for world in _WORLDS for options in cases()]
    return found + collective_jobs(_WORLDS, task)


def undisturbed(records: Sequence[Record]) -> list[Record]:
    """Those whose rounds agree, taken while the machine was about as fast as ever in that world."""
    best: dict[str, float] = {}
    for r in records:
        speed = r.metrics.get("reference_s")
        if speed:
            best[r.cluster] = min(best.get(r.cluster, speed), speed)
    return [
        r
        for r in records
        if r.metrics.get("reference_s", 0.0) <= _DISTURBED * best.get(r.cluster, math.inf)
        and r.metrics.get("round_spread", 0.0) <= _UNSTEADY
    ]


def main() -> None:
    """Measure what is missing, then write the files that the repository keeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("cpu-measurements"))
    parser.add_argument("--out", type=Path, default=STEPS_FILE.parent, help="folder of the files")
    parser.add_argument("--budget", type=float, help="stop after so many seconds")
    options = parser.parse_args()
    until = time.monotonic() + (options.budget or math.inf)
    alone = Task(options={}, seconds=_OPERATOR_SECONDS)
    for file, rounds, wanted in (
        (STEPS_FILE, 2, jobs()),
        (OPERATORS_FILE, 1, operator_jobs(_WORLDS[:1], alone)),
    ):
        store = Store(options.store / file.stem)
        _collect(wanted, store, options.out / file.name, rounds, until)


def _collect(wanted: Sequence[Job], store: Store, file: Path, rounds: int, until: float) -> None:
    """Measure those of which neither the store nor the file has an undisturbed record."""
    if file.exists():  # what an earlier run on this machine left
        known = {record.id for record in store.records()}
        kept = to_records(pq.read_table(file))
        store.append(record for record in kept if record.id not in known)
    missing = not_yet_measured(wanted, undisturbed(list(store.records())))
    print(f"{file.name}: {len(wanted)} in all, {len(missing)} to be measured", flush=True)
    started = time.monotonic()

    def progress(done: int, total: int, what: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {done:4d} of {total}  {what}", flush=True)

    for part in (missing[0::2], missing[1::2]):  # half of everything is there before the rest
        left_s = until - time.monotonic()
        if part and left_s > 0:
            budget_s = left_s if math.isfinite(left_s) else None
            run_jobs(part, store, Plan(rounds=rounds, budget_s=budget_s), progress)
    records = undisturbed(list(store.records()))
    file.parent.mkdir(parents=True, exist_ok=True)
    export(to_table(records), file)
    good = sum(r.ok for r in records)
    print(f"{good} measured, {len(records) - good} without a time, in {file}")


if __name__ == "__main__":
    main()
