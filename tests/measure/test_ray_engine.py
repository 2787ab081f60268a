"""Measuring over a real Ray cluster of several nodes on this machine, one of them killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.data.store import Store
from foretell.measure.ray_engine import run_on_ray
from foretell.measure.runner import Job, Plan
from foretell.measure.task import Task
from foretell.measure.world import World

ray = pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield made
    ray.shutdown()
    made.shutdown()


def jobs(count: int) -> list[Job]:
    world = World(processes=1, threads=1)
    options = [{"model": f"op:linear,in=64,out={64 + n}", "batch": 8} for n in range(count)]
    return [Job(Task(options=o, seconds=0.3), world) for o in options]


def test_a_lost_node_loses_no_result_and_makes_none_twice(cluster: object, tmp_path: Path) -> None:
    doomed = cluster.add_node(num_cpus=1, resources={"type:a": 1})  # type: ignore[attr-defined]
    cluster.add_node(num_cpus=1, resources={"type:a": 1})  # type: ignore[attr-defined]
    ray.init(address=cluster.address, log_to_driver=False)  # type: ignore[attr-defined]
    killed = threading.Event()

    def kill_once_busy() -> None:
        time.sleep(6)
        cluster.remove_node(doomed, allow_graceful=False)  # type: ignore[attr-defined]
        killed.set()

    threading.Thread(target=kill_once_busy, daemon=True).start()
    store = Store(tmp_path)
    chosen = jobs(18)
    report = run_on_ray(chosen, store, Plan(rounds=1, needs="type:a"), lambda *_: None, "")
    assert killed.is_set()
    assert report.left == 0
    wanted = sorted(str(j.task.options["model"]) for j in chosen)
    assert sorted(r.model for r in store.records()) == wanted
    assert all(r.ok for r in report.records), [r.reason for r in report.records]
