"""Jobs that say what they train: read, forecast for the cluster, played."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.api import Case, predict_case
from foretell.cli import _run
from foretell.cluster import parse_cluster
from foretell.schedule.forecast import forecast_rows
from foretell.schedule.learned import Learned
from foretell.schedule.log import trace_of
from foretell.schedule.placement import Placement
from foretell.schedule.pool import pools_of
from foretell.schedule.readers import format_of, read_log
from foretell.schedule.readers.rows import Left, Row
from tests.schedule.test_lengths import job_of

MODEL = "transformer:layers=2,hidden=256,heads=4,seq=128,vocab=1000"
TOLD: dict[str, Any] = {
    "submit_s": 5,
    "model": MODEL,
    "batch": 8,
    "predictor": "analytic",
    "steps": 1000,
}
POOLS = pools_of(parse_cluster("2x8xv100+1x8xt4"))


def read(tmp_path: Path, *lines: dict[str, Any] | str) -> tuple[list[Row], list[Left]]:
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    assert format_of(path) == "cases"
    return read_log(path)


def test_a_line_is_a_case_and_when_it_comes(tmp_path: Path) -> None:
    more = {"devices": 4, "user": "ann", "limit_s": 60, "device": "T4", "deadline_s": "2026-01-01"}
    (one, other), left = read(tmp_path, TOLD, {**TOLD, **more, "submit_s": 7, "id": "b"})
    assert not left
    assert (one.id, one.devices, one.name, one.submit_s) == ("1", 1, MODEL, 5.0)
    assert one.case == Case(model=MODEL, batch=8, predictor="analytic", steps=1000)
    assert math.isnan(one.duration_s)
    assert (other.id, other.devices, other.user, other.device) == ("b", 4, "ann", "T4")
    assert (other.limit_s, other.deadline_s) == (60.0, 1767225600.0)


def test_a_job_takes_its_steps_at_the_pace_of_the_forecast(tmp_path: Path) -> None:
    rows, _ = forecast_rows(read(tmp_path, TOLD)[0], POOLS)
    trace = trace_of(rows, POOLS)
    forecast = predict_case(Case(model=MODEL, batch=8, predictor="analytic", cluster="v100"))
    assert trace.iterations.tolist() == trace.stated.tolist() == [1000.0]
    least_s = Placement(trace.shapes, POOLS).least_s(0)
    assert least_s == pytest.approx(forecast.step_time_s.value, rel=1e-6)
    reach = forecast.step_time_s.high / forecast.step_time_s.low
    assert trace.doubt[0] == pytest.approx(math.log(reach) / 3.29)


def test_a_job_that_says_how_long_it_took_is_still_expected_to_take_its_steps(
    tmp_path: Path,
) -> None:
    rows, _ = forecast_rows(read(tmp_path, {**TOLD, "duration_s": 900})[0], POOLS)
    trace = trace_of(rows, POOLS)
    each_s = np.array([Placement(trace.shapes, POOLS).least_s(0)])
    assert trace.iterations * each_s == pytest.approx(900.0)
    said_s = Learned(trace, each_s).predicted_s(job_of(trace, 0))
    assert said_s == pytest.approx(1000 * float(each_s[0]))


def test_jobs_compute_at_the_pace_of_the_kind_they_ask_for(tmp_path: Path) -> None:
    rows, _ = forecast_rows(read(tmp_path, {**TOLD, "device": "t4"})[0], POOLS)
    trace = trace_of(rows, POOLS)
    shape = trace.shapes[0]
    forecast = predict_case(Case(model=MODEL, batch=8, predictor="analytic", cluster="t4"))
    seconds = shape.stages[0].compute_s / POOLS[1].speed
    assert seconds == pytest.approx(forecast.step_time_s.value, rel=1e-6)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ({**TOLD, "stepz": 1}, "unknown option 'stepz'"),
        ({"submit_s": 1, "steps": 5}, "the case has no model"),
        ({**TOLD, "cluster": "v100"}, "jobs run on that of --cluster"),
        ({**TOLD, "steps": None}, "does not say how long to train"),
        ({**TOLD, "devices": "4"}, "devices '4' is not a whole number"),
        ({**TOLD, "duration_s": -1}, "it must be above zero"),
        ({**TOLD, "submit_s": "noon"}, "neither a number nor a date"),
        ({k: v for k, v in TOLD.items() if k != "submit_s"}, "say when the job comes"),
    ],
)
def test_a_bad_line_is_left_out_and_says_why(
    tmp_path: Path, line: dict[str, Any] | str, says: str
) -> None:
    rows, left = read(tmp_path, TOLD, line)
    assert len(rows) == 1
    assert [(each.line, each.malformed) for each in left] == [(2, True)]
    assert says in left[0].reason


def test_jobs_that_cannot_run_on_the_cluster_say_why(tmp_path: Path) -> None:
    bad = [{**TOLD, "model": "timm:resnot"}, {**TOLD, "batch": 10**7}, {**TOLD, "tp": 3}]
    rows, left = forecast_rows(read(tmp_path, TOLD, *bad)[0], POOLS)
    assert len(rows) == 1
    assert [each.line for each in left] == [2, 3, 4]
    for each, says in zip(left, ("resnot", "memory of v100", "do not factor"), strict=True):
        assert says in each.reason
        assert not each.malformed


def test_simulate_plays_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.jsonl"
    lines = [{**TOLD, "submit_s": i, "devices": 1 + 7 * (i % 2)} for i in range(6)]
    path.write_text("\n".join(map(json.dumps, [*lines, {**TOLD, "steps": 0.5}])))
    call = ["simulate", str(path), "--cluster", "1x8xv100", "--workers", "1", "--contention"]
    assert _run([*call, "--policy", "fifo,a-srpt", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"] == 6
    assert [each["line"] for each in found["left_out"]] == [7]


def test_a_log_of_which_nothing_can_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text(json.dumps({**TOLD, "model": "timm:resnot"}))
    assert _run(["simulate", str(path), "--cluster", "1x8xv100", "--policy", "fifo"]) == 2
    assert "line 1: unknown timm model 'resnot'" in capsys.readouterr().err
