"""foretell fit, adapt and benchmark: a small real fit, start to end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.sources import OWN
from foretell.api import Case, predict
from foretell.cli import _run, app
from foretell.data import Record
from foretell.data.store import Store
from foretell.predictors.scaledl import ScaleDLPredictor
from foretell.predictors.scaledl.weights import load_weights

EPOCHS = 120
SMALL = ["--parts", "timm-train", "--folds", "2", "--seeds", "1", "--no-devices-out", "--no-jobs"]


def run(*arguments: object) -> dict[str, object]:
    answer = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert answer.exit_code == 0, answer.output
    found: dict[str, object] = json.loads(answer.stdout)
    return found


@pytest.fixture(scope="module")
def weights(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fit") / "small.safetensors"
    told = run("fit", "--data", published, *SMALL, "--epochs", EPOCHS, "--cross", "--out", out)
    data = told["data"]
    assert isinstance(data, dict)
    assert data["timm-train"]["rows"] == 24
    assert load_weights(out).ensemble.has_cross
    return out


def test_a_small_fit_forecasts_what_it_was_fitted_to(weights: Path) -> None:
    for batch in (32, 80):
        case = {"batch": batch, "image_size": 96, "cluster": "rtx3090", "precision": "amp-fp16"}
        options = {**case, "optimizer": "momentum", "torch_version": "1.12"}
        learned, analytic = (
            predict("timm:resnet18", predictor=p, **options).step_time_s.value
            for p in (str(weights), "analytic")
        )
        # The host counts: a fit adds up whole steps, the timeline operator by operator.
        assert learned == pytest.approx(analytic, rel=0.3)


def test_an_interrupted_fit_goes_on_and_ends_the_same(weights: Path, published: Path) -> None:
    before = load_weights(weights).ensemble.members[0].layers["last.weight"]
    (kept,) = weights.with_suffix(".parts").glob("*/member-0-0.safetensors")
    stamp = kept.stat().st_mtime_ns
    kept.with_name("member-1-0.npz").unlink()
    run("fit", "--data", published, *SMALL, "--epochs", EPOCHS, "--cross", "--out", weights)
    assert kept.stat().st_mtime_ns == stamp
    again = load_weights(weights).ensemble.members
    assert (again[0].layers["last.weight"] == before).all()
    assert len(again) == 2


def test_other_effort_does_not_take_what_was_kept(weights: Path, published: Path) -> None:
    before = weights.read_bytes()
    run("fit", "--data", published, *SMALL, "--epochs", 1, "--out", weights)
    assert len(list(weights.with_suffix(".parts").glob("*/member-0-0.safetensors"))) == 2
    other = load_weights(weights)
    assert other.card["effort"]["epochs"] == 1
    assert not other.ensemble.has_cross
    weights.write_bytes(before)


def test_a_device_that_was_not_measured_says_so(weights: Path) -> None:
    forecast = predict("timm:resnet18", cluster="rtx4090", batch=8, predictor=str(weights))
    assert not forecast.in_domain
    assert any("rtx4090" in note for note in forecast.notes)


def test_operators_unlike_all_measured_are_named(weights: Path) -> None:
    model = "transformer:layers=2,hidden=128,heads=4,seq=64,vocab=1000"
    notes = predict(model, cluster="rtx3090", predictor=str(weights)).notes
    assert any("unlike those measured" in note for note in notes)


def test_adapting_learns_the_pace_of_a_device(weights: Path, tmp_path: Path) -> None:
    """A device that is 1.7 times slower than its specification says: ten steps tell."""
    base = ScaleDLPredictor.load(weights)
    models = ("resnet10t", "resnet18", "mobilenetv3_small_050", "lcnet_035", "tinynet_e")
    records = []
    for model in models:
        for batch in (16, 64):
            case = Case(model=f"timm:{model}", batch=batch, image_size=96, cluster="rtx4090")
            plain = predict(
                case.model, batch=batch, image_size=96, cluster="rtx4090", predictor=str(weights)
            ).step_time_s.value
            records.append(
                Record(
                    model=case.model,
                    cluster="rtx4090",
                    device="rtx4090",
                    batch=batch,
                    options={"image_size": 96, "mode": "train", "precision": "fp32"},
                    group=model,
                    source="own",
                    time_s=1.7 * plain,
                    origin=f"{model}/{batch}",
                )
            )
    Store(tmp_path / "store").append(records)
    out = tmp_path / "adapted.safetensors"
    told = run(
        "adapt",
        "--device",
        "rtx4090",
        "--measurements",
        tmp_path / "store",
        "--predictor",
        weights,
        "--out",
        out,
    )
    assert told["used"] == 10
    assert float(str(told["median_error_before"])) > 0.3
    assert float(str(told["median_error_after"])) < 0.08
    unseen = {"batch": 32, "image_size": 96, "cluster": "rtx4090"}
    before = predict("timm:resnet26", predictor=str(weights), **unseen).step_time_s
    after = predict("timm:resnet26", predictor=str(out), **unseen).step_time_s
    assert after.value / before.value == pytest.approx(1.7, rel=0.1)
    assert predict("timm:resnet18", predictor=str(out), **unseen).in_domain
    elsewhere = predict("timm:resnet26", predictor=str(out), batch=32, cluster="rtx3090")
    same = base.predict(*_asked("timm:resnet26", batch=32, cluster="rtx3090"))
    assert elsewhere.step_time_s.value == pytest.approx(same.step_time_s.value, rel=1e-6)


def _asked(model: str, **options: object) -> tuple[object, object]:
    from foretell.api import workload_of

    return workload_of(Case.from_mapping({"model": model, **options}))


def test_benchmark_prints_the_card_and_judges_measurements(weights: Path, tmp_path: Path) -> None:
    told = run("benchmark", "--predictor", weights)
    errors = told[str(weights)]
    assert isinstance(errors, dict)
    assert set(errors["errors"]) <= {"model", "family"}
    said = predict("timm:resnet18", cluster="rtx3090", batch=4, predictor="analytic")
    seconds = said.step_time_s.value
    record = Record(
        model="timm:resnet18",
        cluster="rtx3090",
        device="rtx3090",
        batch=4,
        time_s=seconds,
        options={"mode": "train", "precision": "fp32"},
        group="resnet18",
        source="own",
        origin="a",
    )
    Store(tmp_path).append([record])
    judged = run("benchmark", "--measurements", tmp_path, "--predictor", f"{weights},analytic")
    predictors = judged["predictors"]
    assert isinstance(predictors, dict)
    assert predictors["analytic"]["mean"] == pytest.approx(0, abs=0.2)
    assert np.isfinite(predictors[str(weights)]["mean"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "--data", "/nowhere"], "no measurements to fit"),
        (["fit", "--out", "weights.json"], ".safetensors"),
        (["fit", "--parts", "timm-trian"], "timm-train"),
        (["fit", "--folds", "1"], "2 or more"),
        (["fit", "--seeds", "0"], "1 or more"),
        (["fit", "--epochs", "0"], "1 or more"),
        (["fit", "--workers", "0"], "1 or more"),
        (["fit", "--limit", "0"], "--limit 0 leaves nothing to fit to"),
        (["fit", "--parts", ""], "unknown part ''"),
        (["fit", "--ledger", "/tmp"], "--ledger '/tmp' is a directory"),
        (["adapt", "--device", "x", "--measurements", "/nowhere"], "neither a store"),
        (["adapt", "--device", "x", "--measurements", str(OWN[0])], "use --device local@1"),
        (["benchmark", "--predictor", "analytic"], "--measurements"),
        (["predict", "timm:resnet18", "--predictor", "nothing.safetensors"], "nothing.safetensors"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_what_language_models_teach_says_nothing_of_convolutions() -> None:
    """Published jobs on the A100 are all of language models: a ResNet keeps its timeline."""
    workload, cluster = _asked("timm:resnet50", batch=64, cluster="8xa100-80gb")
    shipped = ScaleDLPredictor.shipped()
    forecast = shipped.predict(workload, cluster)
    _, run = shipped.play(workload, cluster)
    assert forecast.step_time_s.value == pytest.approx(run.step_s, rel=0.05)
    assert any("no distributed job like this" in note for note in forecast.notes)


def test_damaged_weights_are_refused(weights: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(weights.read_bytes()[:5000])
    assert _run(["predict", "timm:resnet18", "--predictor", str(damaged)]) == 2
