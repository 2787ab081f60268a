"""Constants fitted to a machine whose own are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from foretell.api import Case, workload_of
from foretell.calibrate import fit_machine
from foretell.cluster import device
from foretell.comm import Collective, collective_s, group_on
from foretell.comm.constants import Constants as CommConstants
from foretell.comm.constants import Pattern, Protocol
from foretell.data import Record
from foretell.errors import CannotError, InputError
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.analytic.constants import Constants, Together
from foretell.predictors.scaledl import ScaleDLPredictor

DEVICE = device("local@1")
NAMES = ("resnet10t", "mobilenetv3_small_050", "lcnet_050", "tinynet_e", "vit_tiny_patch16_224")
TEXT = "transformer:layers={0},hidden={1},heads=4,seq=64,vocab=1000"
MODELS = [f"timm:{name}" for name in NAMES] + [
    TEXT.format(n, h) for n in (1, 2, 4) for h in (64, 128)
]
OPERATORS = [f"op:linear,in={n},out={m}" for n in (64, 512) for m in (64, 512)]


def machine(*, together: Together | None = None) -> AnalyticPredictor:
    """One that computes at half and streams at twice the shipped rates, and launches slowly."""
    shipped = AnalyticPredictor.shipped()
    family = shipped.constants.family(DEVICE.family, variants=("train",))[0]
    own = dataclasses.replace(
        family, compute=family.compute / 2, memory=family.memory * 2, overhead_s=2e-5
    )
    families = {**shipped.constants.families, f"{DEVICE.family}/train": own}
    constants = dataclasses.replace(
        shipped.constants,
        families=families,
        together={DEVICE.family: together} if together else {},
    )
    return AnalyticPredictor(constants)


def record(truth: AnalyticPredictor, model: str, batch: int, cluster: str = "1xlocal@1") -> Record:
    case = Case(model=model, batch=batch, cluster=cluster)
    seconds = truth.play(*workload_of(case))[1].step_s
    return Record(
        kind="operator" if model.startswith("op:") else "step",
        model=model,
        batch=batch,
        cluster=cluster,
        device="local@1",
        devices=2 if cluster.startswith("2x") else 1,
        time_s=seconds,
        source="foretell",
    )


@pytest.fixture(scope="module")
def alone() -> list[Record]:
    truth = machine()
    return [record(truth, m, b) for m in [*MODELS, *OPERATORS] for b in (2, 16)]


def test_a_slower_machine_is_found_and_models_are_judged_without_themselves(
    alone: list[Record],
) -> None:
    found = fit_machine(alone, DEVICE)
    assert (found.operators, found.steps, found.shared_steps) == (8, 22, 0)
    # How far the two changes make up for each other depends on the processor the tests run on.
    before, after = (np.median(np.abs(ratio - 1)) for ratio in (found.before, found.after))
    assert before > 0.1
    assert after < 0.05
    truth = machine()
    unseen = workload_of(Case(model="timm:mnasnet_small", batch=8, cluster="1xlocal@1"))
    said = found.predictor.predict(*unseen).step_time_s
    measured_s = truth.play(*unseen)[1].step_s
    assert said.value == pytest.approx(measured_s, rel=0.15)
    assert said.low < measured_s < said.high


def test_the_constants_survive_a_file_and_leave_other_devices_alone(alone: list[Record]) -> None:
    found = fit_machine(alone, DEVICE).predictor
    again = AnalyticPredictor(Constants.from_json(found.constants.to_json(), "written"))
    for cluster in ("1xlocal@1", "t4"):
        job = workload_of(Case(model="timm:resnet10t", batch=4, cluster=cluster))
        assert again.predict(*job).step_time_s.value == pytest.approx(
            found.predict(*job).step_time_s.value, rel=1e-3
        )
    job = workload_of(Case(model="timm:resnet10t", batch=4, cluster="t4"))
    shipped = AnalyticPredictor.shipped().predict(*job)
    assert again.predict(*job).step_time_s == shipped.step_time_s


def test_what_was_not_measured_is_said_of_a_forecast(alone: list[Record]) -> None:
    found = fit_machine(alone, DEVICE).predictor
    case = Case(model="timm:resnet10t", batch=4, cluster="1xlocal@1", precision="amp-bf16")
    if not DEVICE.supports("bf16"):
        with pytest.raises(InputError, match="does not compute in bf16"):
            found.predict(*workload_of(case))
        return
    notes = " ".join(found.predict(*workload_of(case)).notes)
    assert "amp-bf16 was not measured" in notes


def test_processes_together_are_fitted_from_collectives_and_steps(alone: list[Record]) -> None:
    protocol = Protocol(start_s=3e-4, hop=0.0, efficiency=0.05)
    pattern = Pattern(protocols={"simple": protocol}, blend=1.0)
    truth = machine(
        together=Together(
            links=CommConstants(links={"loopback": {"ring": pattern}}),
            slowdown=1.2,
            contention=0.5,
        )
    )
    shared = [record(truth, m, b, "2xlocal@1") for m in MODELS for b in (2, 16)]
    pair = group_on(workload_of(Case(model=TEXT.format(1, 64), cluster="2xlocal@1"))[1], size=2)
    links = truth.constants.together[DEVICE.family].all_links()
    collectives = [
        Record(
            kind="collective",
            model="collective:all_reduce",
            cluster="2xlocal@1",
            device="local@1",
            devices=2,
            options={"nbytes": n},
            time_s=collective_s(Collective.ALL_REDUCE, float(n), pair, constants=links),
            source="foretell",
        )
        for n in (2**12, 2**16, 2**20, 2**24)
    ]
    found = fit_machine([*alone, *shared, *collectives], DEVICE)
    assert (found.shared_steps, found.collectives) == (22, 4)
    assert np.median(np.abs(found.after_shared - 1)) < 0.06
    together = found.predictor.constants.together[DEVICE.family]
    ring = together.links.links["loopback"]["ring"].protocols["simple"]
    assert ring.start_s == pytest.approx(3e-4, rel=0.01)
    assert ring.efficiency == pytest.approx(0.05, rel=0.01)
    assert together.slowdown == pytest.approx(1.2, rel=0.1)


def test_the_learned_predictor_is_calibrated_and_survives_a_file(
    alone: list[Record], tmp_path: Path
) -> None:
    pytest.importorskip("torch_geometric")
    from foretell.calibrate.learned import fit_learned

    truth = machine(together=Together(links=CommConstants(links={}), slowdown=1.5))
    shared = [record(truth, m, 4, "2xlocal@1") for m in MODELS]
    records = [*alone, *shared]
    found = fit_learned(records, DEVICE, ScaleDLPredictor.shipped(), fit_machine(records, DEVICE))
    assert (found.operators, found.steps, found.shared_steps) == (8, 22, 11)
    before, after = (np.median(np.abs(r - 1)) for r in (found.before, found.after))
    assert after < 0.7 * before
    found.predictor.save(tmp_path / "mine.safetensors")
    again = ScaleDLPredictor.load(tmp_path / "mine.safetensors")
    for cluster in ("1xlocal@1", "2xlocal@1", "t4"):
        job = workload_of(Case(model="timm:mnasnet_small", batch=8, cluster=cluster))
        said, same = (p.predict(*job).step_time_s for p in (found.predictor, again))
        assert same.value == pytest.approx(said.value, rel=1e-3)
        if cluster == "t4":
            assert said == ScaleDLPredictor.shipped().predict(*job).step_time_s
        else:
            assert said.low < truth.play(*job)[1].step_s < said.high


def test_too_few_measurements_are_refused_in_one_sentence(alone: list[Record]) -> None:
    with pytest.raises(CannotError, match="2 measurements on local@1 are too few"):
        fit_machine(alone[:2], DEVICE)
