"""foretell simulate, as people and programs call it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from foretell.cli import _run

LOG = "timestamp,duration,num_gpus,user\n" + "".join(
    f"2026-01-01 00:00:{i:02d},{60 + 40 * (i % 5)},{1 + i % 4},user-{i % 3}\n" for i in range(40)
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(LOG)
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert _run(["simulate", *arguments, "--json", "--workers", "1"]) == 0
    return json.loads(capsys.readouterr().out)


def test_policies_are_compared(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, str(log), "--cluster", "1x4xv100", "--policy", "fifo,a-srpt,srtf-oracle")
    assert (found["jobs"], found["gpus"]) == (40, 4)
    assert [row["policy"] for row in found["policies"]] == ["fifo", "a-srpt", "srtf-oracle"]
    fifo = found["policies"][0]
    assert {"mean_jct_s", "p90_jct_s", "p99_jct_s", "mean_wait_s", "makespan_s", "utilisation"} <= (
        set(fifo)
    )
    assert 0 < fifo["utilisation"] <= 1
    assert found["policies"][2]["mean_jct_s"] < fifo["mean_jct_s"]


def test_fifo_is_what_a_few_lines_say(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs one after the other on one server, started as soon as their devices are free."""
    found = answer(capsys, str(log), "--cluster", "1x4xv100", "--policy", "fifo")
    free_s, started_s, jct = [0.0] * 4, 0.0, []
    for i in range(40):
        devices, length_s = 1 + i % 4, 60 + 40 * (i % 5)
        free_s.sort()
        started_s = max(float(i), free_s[devices - 1], started_s)
        free_s[:devices] = [started_s + length_s] * devices
        jct.append(started_s + length_s - i)
    assert found["policies"][0]["mean_jct_s"] == pytest.approx(sum(jct) / 40)
    assert found["policies"][0]["makespan_s"] == pytest.approx(max(free_s))


def test_loads_and_seeds_make_rows_and_deviations(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--cluster", "2x8xv100", "--policy", "fifo,las", "--load", "0.5,1", "--seeds", "2"]
    found = answer(capsys, "generated:jobs=60,load=0.9", *options)
    rows = [(row["policy"], row["load"], row["seeds"]) for row in found["policies"]]
    assert rows == [("fifo", 0.5, 2), ("las", 0.5, 2), ("fifo", 1.0, 2), ("las", 1.0, 2)]
    assert all(row["std_jct_s"] > 0 for row in found["policies"])
    assert found["policies"][0]["mean_jct_s"] < found["policies"][2]["mean_jct_s"]


def test_the_same_call_gives_the_same_schedule_to_the_byte(log: Path, tmp_path: Path) -> None:
    written = []
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        call = ["simulate", str(log), "--cluster", "1x4xv100", "--policy", "a-srpt,fifo"]
        command = [sys.executable, "-m", "foretell", *call, "--schedule", str(path)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        written.append(path.read_bytes())
    assert written[0] == written[1]
    table = pq.read_table(tmp_path / "0.parquet").to_pylist()
    assert {row["policy"] for row in table} == {"a-srpt", "fifo"}
    assert all(sum(row["devices_on_server"]) == row["devices"] for row in table)


def test_a_report_is_one_page_that_needs_nothing_else(log: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    options = ["--cluster", "2x4xv100", "--policy", "fifo,a-srpt", "--html", str(page)]
    assert _run(["simulate", str(log), *options, "--workers", "1"]) == 0
    text = page.read_text()
    assert text.count("<svg") == 5
    assert "a-srpt" in text
    assert "http" not in text.replace("http://www.w3.org", "")


def test_several_processes_say_what_one_says(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [str(log), "--cluster", "1x4xv100", "--policy", "fifo,srtf"]
    alone = answer(capsys, *options)
    assert _run(["simulate", *options, "--json", "--workers", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == alone


def test_a_table_for_people_names_what_was_left_out(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(LOG + "soon,1,1,x\n2026-01-01,5,0,x\n")
    assert _run(["simulate", str(log), "--cluster", "1x4xv100", "--policy", "fifo"]) == 0
    said = capsys.readouterr().out
    assert "40 jobs on 4 devices" in said
    assert "malformed: line 42: submitted 'soon' is neither a number nor a date" in said
    assert "not jobs to schedule: line 43: needs no device" in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--cluster", "1x2xv100"], "needs 3 devices and the largest pool of the cluster has 2"),
        (["--workers", "2", "--lengths", "guess"], "unknown source of lengths 'guess'"),
        (["--policy", "fiffo"], "unknown policy 'fiffo': did you mean fifo"),
        (["--policy", "fifo-oracle"], "unknown policy 'fifo-oracle'"),
        (["--policy", ","], "no policy was named"),
        (["--load", "much"], "--load 'much' is not a number"),
        (["--load", "-1"], "load -1 must be above zero"),
        (["--seeds", "0"], "seeds=0 plays nothing"),
        (["--traffic", "busy"], "unknown traffic 'busy'"),
        (["--placement", "edge"], "unknown placement 'edge'"),
        (["--lengths", "guess"], "unknown source of lengths 'guess'"),
        (["--format", "xml"], "unknown trace format 'xml'"),
        (["--time-unit", "d"], "--time-unit 'd' is not known"),
        (["--failure", "0:9"], "--failure '0:9' is not SERVER:FROM:TO"),
        (["--failure", "7:0:9"], "server 7 cannot fail, there are 1"),
        (["--restart", "-1"], "restart_s=-1.0 must be 0 or more"),
        (["--html", "report.pdf"], "--html 'report.pdf' must end in .html"),
        (["--contention", ""], "--contention needs jobs that say something"),
        (["--workers", "0"], "--workers 0 leaves nobody to do it"),
        (["--engine", "slurm"], "unknown engine 'slurm'"),
        (["--jobs", "0"], "--jobs 0 leaves nothing"),
    ],
)
def test_wrong_calls_get_one_sentence(
    log: Path, capsys: pytest.CaptureFixture[str], options: list[str], says: str
) -> None:
    usual = {"--cluster": "1x4xv100", "--policy": "a-srpt,fifo", "--workers": "1"}
    usual |= dict(zip(options[::2], options[1::2], strict=True))
    arguments = [part for pair in usual.items() for part in pair if part]
    assert _run(["simulate", str(log), *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        ("nowhere.csv", "trace 'nowhere.csv' does not exist"),
        ("generated:jobs=many", "generated:jobs='many' is not a number"),
        ("generated:jobs=0", "generated:jobs=0 must be above zero"),
        ("generated:size=3", "unknown setting of a load 'size'"),
    ],
)
def test_wrong_traces_get_one_sentence(
    capsys: pytest.CaptureFixture[str], trace: str, says: str
) -> None:
    assert _run(["simulate", trace, "--cluster", "1x4xv100"]) == 2
    assert says in capsys.readouterr().err
