"""foretell calibrate: a real campaign of some seconds, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foretell.calibrate import candidates
from foretell.cli import _run, app
from foretell.data.store import Store
from foretell.graph.sources.op_sweep import sweep_ops

SMALL = "transformer:layers=1,hidden=64,heads=2,seq=32,vocab=500"


@pytest.fixture
def _few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing all of them would take longer than the campaign."""
    monkeypatch.setattr(candidates, "_VISION", ())
    monkeypatch.setattr(candidates, "_TEXT", (SMALL,))
    monkeypatch.setattr(candidates, "sweep_ops", lambda: sweep_ops(["linear", "relu"]))


@pytest.mark.usefixtures("_few_candidates")
def test_a_campaign_measures_fits_and_goes_on(tmp_path: Path) -> None:
    out, store = tmp_path / "mine.json", tmp_path / "store"
    arguments = ["calibrate", "--nproc", "1,2", "--out", str(out), "--store", str(store), "--json"]
    answer = json.loads(CliRunner().invoke(app, [*arguments, "--budget", "30s"]).output)
    assert answer["operators"] + answer["steps"] >= 3
    assert answer["collectives"] >= 8
    assert answer["spent_s"] < 30 + 20  # what is under way is finished
    records = list(Store(store).records())
    assert {r.environment["campaign"] for r in records} == {"mine.json"}
    assert sum(r.metrics["spent_s"] for r in records) <= answer["spent_s"]
    kept = json.loads((store / "mine.json.spent").read_text())["spent_s"]
    assert kept == pytest.approx(answer["spent_s"], rel=0.3)

    again = json.loads(CliRunner().invoke(app, [*arguments, "--budget", "20s"]).output)
    assert again["turns"] == []  # all of it was spent before
    assert len(list(Store(store).records())) == len(records)
    assert again["steps"] == answer["steps"]

    case = ["predict", "timm:resnet10t", "--batch", "2", "--cluster", "local@1", "--json"]
    shipped, mine = (
        json.loads(CliRunner().invoke(app, [*case, *more]).output)["step_time_s"]["value"]
        for more in ([], ["--predictor", str(out)])
    )
    assert mine != shipped


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "5s"], "give 20 s or more"),
        (["--budget", "soon"], "soon"),
        (["--budget", "1m", "--out", "mine.txt"], "must end in .safetensors"),
        (["--budget", "1m", "--store", "/proc/nowhere"], "name another place with --store"),
        (["--budget", "1m", "--hosts", "0@1gbit"], "two namespaces can be joined"),
        (["--budget", "1m", "--out", "nowhere/mine.json"], "there is no directory 'nowhere'"),
        (["--budget", "1m", "--nproc", "0"], "write whole numbers from 1 up"),
    ],
)
def test_wrong_calls_are_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["calibrate", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
