"""Real worker processes: what they measure, and what becomes of those that fail."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from foretell.measure.crew import Crew
from foretell.measure.task import Task
from foretell.measure.world import World

GPT = "transformer:layers=2,hidden=64,heads=4,seq=32,vocab=256"
MODELS = """
import os, time
import torch
from torch import nn

class Naps(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.seconds = seconds
    def forward(self, x):
        if not x.is_meta:
            time.sleep(self.seconds)
        return self.layer(x)

class Fails(Naps):
    def forward(self, x):
        if not x.is_meta:
            raise ValueError("no more")
        return self.layer(x)

class Dies(Naps):
    def forward(self, x):
        if not x.is_meta:
            os.kill(os.getpid(), 9)
        return self.layer(x)

def naps(): return Naps(0.05), torch.empty(1, 8)
def hangs(): return Naps(3600), torch.empty(1, 8)
def fails(): return Fails(0), torch.empty(1, 8)
def dies(): return Dies(0), torch.empty(1, 8)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "own.py"
    path.write_text(MODELS)
    return str(path)


@pytest.fixture(scope="module")
def pair() -> Iterator[Crew]:
    with Crew(World(processes=2, threads=1), patience_s=20) as crew:
        yield crew


@pytest.fixture(scope="module")
def alone() -> Iterator[Crew]:
    with Crew(World(processes=1, threads=1), patience_s=20) as crew:
        yield crew


def short(model: str, seconds: float = 0.3, **options: object) -> Task:
    return Task(options={"model": model, "batch": 2, **options}, seconds=seconds)


def test_a_step_takes_as_long_as_the_model_does(alone: Crew, file: str) -> None:
    answer = alone.do(short(f"{file}:naps", seconds=1.0))
    assert answer.outcome == "ok", answer.reason
    assert 0.05 <= statistics.median(answer.step_s) < 0.15
    assert 0.05 <= answer.phase_s[0] < 0.15
    assert answer.memory["resident_bytes"] > 50e6
    assert answer.reference_s > 0


def test_inference_runs_forward_only(alone: Crew) -> None:
    training, inference = (alone.do(short(GPT, 0.5, mode=m)) for m in ("train", "infer"))
    assert inference.outcome == "ok", inference.reason
    assert statistics.median(inference.step_s) < statistics.median(training.step_s)


def test_settings_of_a_workload_are_carried_out(alone: Crew) -> None:
    settings: list[dict[str, object]] = [
        {"precision": "amp-bf16"},
        {"precision": "bf16", "optimizer": "sgd"},
        {"recompute": "full", "optimizer": "momentum"},
        {"global_batch": 8, "optimizer": "adafactor"},
        {"fused_optimizer": True},
    ]
    answers = [alone.do(short(GPT, 0.1, **s)) for s in settings]
    answers.append(alone.do(short("timm:resnet10t", 0.1, image_size=32, channels_last=True)))
    answers.append(alone.do(short("hf:google-t5/t5-small", 0.1, seq=8)))
    assert [a.outcome for a in answers] == ["ok"] * len(answers), [a.reason for a in answers]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"zero": 1},
        {"zero": 2},
        {"zero": 3},
        {"zero": 3, "global_batch": 8},
        {"global_batch": 8},
        {"tp": 2},
        {"pp": 2, "global_batch": 8},
        {"pp": 2, "global_batch": 8, "schedule": "gpipe"},
    ],
    ids=str,
)
def test_every_way_to_spread_a_model_that_torch_offers_runs(
    pair: Crew, options: dict[str, object]
) -> None:
    answer = pair.do(short(GPT, 0.2, **options))
    assert answer.outcome == "ok", answer.reason
    assert answer.sent_bytes > 1000


def test_data_parallelism_sends_what_its_gradients_weigh(pair: Crew) -> None:
    answer = pair.do(short("op:linear,in=512,out=1024", 0.5))
    assert answer.sent_bytes == pytest.approx(512 * 1024 * 4, rel=0.05)


def test_what_torch_has_not_is_refused_with_the_reason(pair: Crew) -> None:
    answer = pair.do(short(GPT, cp=2))
    assert answer.outcome == "refused"
    assert "cp" in answer.reason


def test_a_model_that_raises_is_an_outcome_and_the_crew_goes_on(pair: Crew, file: str) -> None:
    failed = pair.do(short(f"{file}:fails"))
    assert (failed.outcome, failed.reason) == ("crashed", "ValueError: no more")
    assert pair.do(short(GPT)).outcome == "ok"


def test_a_model_too_large_for_memory_is_an_outcome(alone: Crew) -> None:
    answer = alone.do(short("op:linear,in=1000000,out=1000000"))
    assert answer.outcome == "out-of-memory"
    assert alone.do(short(GPT)).outcome == "ok"


def test_a_process_killed_from_outside_is_an_outcome_and_the_crew_goes_on(
    pair: Crew, file: str
) -> None:
    died = pair.do(short(f"{file}:dies"))
    assert died.outcome == "crashed"
    assert "ended from outside" in died.reason
    assert pair.do(short(GPT)).outcome == "ok"


def test_an_endless_run_is_given_up(file: str) -> None:
    with Crew(World(processes=1, threads=1), patience_s=12) as crew:
        answer = crew.do(short(f"{file}:hangs", seconds=0.1))
        assert answer.outcome == "timed-out"


def test_collectives_take_longer_for_more_bytes(pair: Crew) -> None:
    sizes = [2**14, 2**24]
    task = Task(options={"model": "collective:all_reduce", "sizes": sizes}, seconds=1.0)
    answer = pair.do(task)
    assert answer.outcome == "ok", answer.reason
    small, large = (statistics.median(row["seconds"]) for row in answer.rows)
    assert large > small > 0


def test_an_abandoned_crew_leaves_no_process_behind(file: str) -> None:
    before = set(psutil.Process().children(recursive=True))
    with Crew(World(processes=2, threads=1)) as crew:
        crew.folder.write_task(1, short(f"{file}:naps", seconds=30))
        time.sleep(6)
    left = set(psutil.Process().children(recursive=True)) - before
    assert not [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_workers_end_when_whoever_asked_is_killed(tmp_path: Path) -> None:
    code = (
        "from foretell.measure.crew import Crew\n"
        "from foretell.measure.world import World\n"
        "import time\n"
        "with Crew(World(processes=1, threads=1)) as crew:\n"
        "    print(crew.folder.path, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        folder = asker.stdout.readline().strip()
        time.sleep(5)
        os.kill(asker.pid, signal.SIGKILL)
    limit = time.monotonic() + 20
    while time.monotonic() < limit and _working_in(folder):
        time.sleep(0.2)
    assert not _working_in(folder)


def _working_in(folder: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if folder in (process.info["cmdline"] or []):
            found.append(process)
    return found
