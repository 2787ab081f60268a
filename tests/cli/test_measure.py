"""foretell measure through the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from foretell.data.store import Store
from tests.cli.test_cli import COMMAND, run

SMALL = ("op:linear,in=32,out=32", "--batch", "4", "--seconds", "0.2", "--rounds", "1")


def test_what_was_measured_is_shown_and_kept(tmp_path: Path) -> None:
    done = run("measure", *SMALL, "--threads", "1", "--store", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "op:linear,in=32,out=32" in done.stdout
    assert "1 measured, in " in done.stdout
    (record,) = Store(tmp_path).records()
    assert record.batch == 4
    assert len(record.resources) == 12


def test_usage_is_drawn_and_operators_are_listed(tmp_path: Path) -> None:
    plots, profiles = tmp_path / "plots", tmp_path / "profiles"
    where = ("--store", str(tmp_path), "--plots", str(plots), "--profile", str(profiles))
    done = run("measure", *SMALL, *where)
    assert done.returncode == 0, done.stderr
    (picture,), (table,) = plots.glob("*.svg"), profiles.glob("*.csv")
    assert "utilisation" in picture.read_text()
    lines = table.read_text().splitlines()
    assert lines[0] == "operator,shapes,calls,seconds"
    assert any(line.startswith("mm,") for line in lines)
    (record,) = Store(tmp_path).records()
    assert record.metrics["mm_op_s"] > 0


def test_json_holds_the_records(tmp_path: Path) -> None:
    done = run("measure", *SMALL, "--set", "mode=infer", "--store", str(tmp_path), "--json")
    answer = json.loads(done.stdout)
    assert answer["records"][0]["options"]["mode"] == "infer"
    assert answer["left"] == 0


def test_resuming_measures_only_what_is_missing(tmp_path: Path) -> None:
    first = run("measure", *SMALL, "--store", str(tmp_path))
    again = run("measure", *SMALL, "--store", str(tmp_path), "--resume")
    assert first.returncode == again.returncode == 0, again.stderr
    assert len(list(Store(tmp_path).records())) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing to measure"),
        (("--batch", "8"), "name one"),
        ((*SMALL, "--nproc", "0"), "--nproc '0'"),
        ((*SMALL, "--nproc", "two"), "--nproc 'two'"),
        ((*SMALL, "--plots", "p", "--no-probe"), "give one of them"),
        ((*SMALL, "--plots", "/proc/nowhere"), "cannot be made"),
        ((*SMALL, "--hosts", "0@1gbit"), "two namespaces can be joined"),
        (("timm:nosuchmodel",), "unknown timm model 'nosuchmodel'"),
        ((*SMALL, "--plots", "p", "--engine", "ray"), "leave out --engine ray"),
        ((*SMALL, "--hosts", "2@slow"), "rate 'slow'"),
        ((*SMALL, "--set", "precison=bf16"), "did you mean precision"),
        ((*SMALL, "--set", "bf16"), "--set option=value"),
        ((*SMALL, "--engine", "kubernetes"), "unknown engine"),
        ((*SMALL, "--needs", "a100"), "--engine"),
        ((*SMALL, "--budget", "soon"), "duration 'soon'"),
        (("op:linear,in=32",), "lacks out"),
        (("op:lineer,in=32,out=3",), "did you mean linear"),
        (("--collectives",), "--nproc 2"),
        (("--cases", "missing.jsonl"), "cannot be read"),
    ],
    ids=str,
)
def test_misuse_gets_one_sentence_and_exit_code_two(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    done = run("measure", *arguments, "--store", str(tmp_path / "store"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "store").exists()


def test_a_workload_that_cannot_run_says_why_and_exits_with_one(tmp_path: Path) -> None:
    done = run("measure", "timm:no_such_model", "--batch", "1", "--store", str(tmp_path))
    assert done.returncode in (1, 2)
    assert "no_such_model" in done.stdout + done.stderr


def test_namespaces_without_permission_say_how_to_go_on(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to drop the permission again")
    done = subprocess.run(
        [*COMMAND, "measure", *SMALL, "--hosts", "2@1gbit", "--store", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": "/nowhere"},
    )
    assert done.returncode == 1
    assert "install iproute2" in done.stderr
    assert "loopback" in done.stderr


def test_an_interrupted_run_keeps_what_was_finished_and_says_how_to_go_on(tmp_path: Path) -> None:
    models = [f"op:relu,width={n}" for n in range(64, 84)]
    process = subprocess.Popen(
        [
            *(*COMMAND, "measure", *models, "--batch", "4", "--seconds", "0.2", "--rounds", "1"),
            *("--threads", "1", "--store", str(tmp_path)),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    store, limit = Store(tmp_path), time.monotonic() + 60
    while not store.files() and time.monotonic() < limit:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in words
    assert 0 < len(list(store.records())) < len(models)
