"""Plans: within the budget, with what is known, from all kinds of candidates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foretell.api import Case, workload_of
from foretell.cluster import device
from foretell.data.record import Record
from foretell.design import Plan, method_names, plan
from foretell.design.candidates import (
    Candidate,
    captured,
    cases_in_file,
    model_cases,
    operator_cases,
    plain,
)
from foretell.design.cost import Effort
from foretell.design.known import known_from, runs_on
from foretell.errors import InputError
from foretell.graph.sources.op_sweep import sweep_ops
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.analytic.constants import NAMES, FamilyConstants
from foretell.predictors.analytic.elasticity import stack
from foretell.predictors.analytic.fit import sample_of

WHERE = "a100-80gb"
BRIEF = Effort(seconds=0.1, rounds=1)


@pytest.fixture(scope="module")
def operators() -> list[Candidate]:
    names = ("linear", "softmax", "gelu", "layer_norm")
    cases = [Case(model=m, batch=b, cluster=WHERE) for m, b in sweep_ops(names)]
    return captured(cases)[0]


def keys(made: Plan) -> list[tuple[str, int | None]]:
    return [(c.case.model, c.case.batch) for c in made.choices]


def record_of(candidate: Candidate, time_s: float) -> Record:
    case = candidate.case
    return Record(
        kind="operator",
        model=case.model,
        device=WHERE,
        batch=case.batch,
        time_s=time_s,
        source="foretell",
    )


@pytest.mark.parametrize("method", method_names())
def test_a_plan_stays_within_its_budget_and_lowers_the_uncertainty(
    operators: list[Candidate], method: str
) -> None:
    made = plan(operators, 5.0, method=method, effort=BRIEF)
    assert 4.0 < made.cost_s <= 5.0
    assert len(set(keys(made))) == len(made.choices)
    assert made.uncertainty_after < made.uncertainty_before
    assert all(c.information_bits > 0 for c in made.choices)
    assert keys(plan(operators, 5.0, method=method, effort=BRIEF)) == keys(made)


def test_a_case_is_repeated_only_where_that_is_allowed(operators: list[Candidate]) -> None:
    once, thrice = (plan(operators[:5], 100.0, repeats=r, effort=BRIEF) for r in (1, 3))
    assert len(once.choices) == 5
    assert len(thrice.choices) == 15
    assert len(set(keys(thrice))) == 5


def test_measured_cases_are_known_and_others_come_next(operators: list[Candidate]) -> None:
    first = plan(operators, 3.0, effort=BRIEF)
    chosen = set(keys(first))
    records = [record_of(c, 1e-4) for c in operators if (c.case.model, c.case.batch) in chosen]
    runs, strange = runs_on(device(WHERE), records)
    assert (len(runs), strange) == (len(first.choices), 0)
    second = plan(operators, 3.0, runs=runs, effort=BRIEF)
    assert second.measured == len(runs)
    assert not chosen & set(keys(second))
    assert second.uncertainty_before < first.uncertainty_before


def test_what_was_measured_moves_the_constants(operators: list[Candidate]) -> None:
    predictor = AnalyticPredictor.shipped()
    recipe = operators[0].job[0].recipe
    shipped = predictor.constants_for(recipe, device(WHERE))
    truth = FamilyConstants.from_logs(
        shipped.logs() + np.array([1.0 if name == "overhead_s" else 0.0 for name in NAMES])
    )
    records = []
    for candidate in operators:
        step = sample_of(candidate.job[0], device(WHERE), 1.0).step
        records.append(record_of(candidate, float(stack([step]).seconds(truth)[0])))
    known = known_from(runs_on(device(WHERE), records)[0], predictor)
    assert known.shift[NAMES.index("overhead_s")] == pytest.approx(1.0, abs=0.1)
    unused = NAMES.index("compute[conv]")
    assert known.shift[unused] == pytest.approx(0.0, abs=1e-9)


def test_records_of_other_devices_failures_and_strange_models_do_not_count() -> None:
    good = Record(model="op:gelu,width=64", device=WHERE, batch=8, time_s=1e-4, source="x")
    other = Record(model="op:gelu,width=64", device="t4", batch=8, time_s=1e-4, source="x")
    strange = Record(model="their own name", device=WHERE, batch=8, time_s=1e-4, source="x")
    failed = Record(
        model="op:gelu,width=64", device=WHERE, outcome="crashed", reason="why", source="x"
    )
    collective = Record(
        kind="collective", model="collective:all_reduce", cluster=WHERE, time_s=1e-4, source="x"
    )
    runs, unusable = runs_on(device(WHERE), [good, other, strange, failed, collective])
    assert len(runs) == 1
    assert unusable == 1


def test_distributed_candidates_cost_all_their_processes() -> None:
    small = "transformer:layers=2,hidden=128,heads=4,seq=64,vocab=512"
    cases = model_cases([small], [4, 16], [1, 2], WHERE)
    assert [c.cluster for c in cases] == [WHERE, WHERE, f"2x{WHERE}", f"2x{WHERE}"]
    made = plan(captured(cases)[0], 1000.0)
    cost = {(c.case.cluster, c.case.batch): c for c in made.choices}
    pair, alone = cost[f"2x{WHERE}", 16], cost[WHERE, 16]
    assert pair.cost_s - 3.0 == pytest.approx(2 * (alone.cost_s - 3.0), rel=0.5)
    assert pair.cost_s > alone.cost_s


def test_cases_that_do_not_fit_are_left_out_with_a_reason() -> None:
    cases = [
        Case(model="op:gelu,width=64", batch=8, cluster=WHERE),
        Case(model="op:gelu,width=10000000", batch=100000, cluster=WHERE),
    ]
    found, left_out = captured(cases)
    assert [c.case.batch for c in found] == [8]
    assert "does not fit on a100-80gb" in left_out[0]


def test_equal_cases_are_one_candidate() -> None:
    case = Case(model="op:gelu,width=64", batch=8, cluster=WHERE)
    assert len(captured([case, case])[0]) == 1


def test_a_file_of_cases_takes_the_cluster_it_does_not_name(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    lines = [{"model": "op:gelu,width=64", "batch": 8}, {"model": "timm:resnet18", "cluster": "t4"}]
    path.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    first, second = cases_in_file(path, cluster=WHERE)
    assert (first.cluster, second.cluster) == (WHERE, "t4")
    assert Case.from_mapping(plain(first)) == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("{", "line 1 of .*not valid JSON"),
        ("[1]", "line 1 of .*a JSON object"),
        ('{"model": "op:gelu,width=8"}\n{"modl": 1}', "line 2 of .*unknown option 'modl'"),
    ],
)
def test_bad_files_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        cases_in_file(path)


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InputError, match="one device and '8xt4' has several"):
        operator_cases("8xt4")
    with pytest.raises(InputError, match="so does nproc"):
        model_cases(["timm:resnet18"], [8], [1, 2], "2xt4")
    with pytest.raises(InputError, match="nothing to choose from"):
        plan([], 10.0)
    one = captured([Case(model="op:gelu,width=64", batch=8, cluster=WHERE)])[0]
    with pytest.raises(InputError, match=r"buys nothing: the cheapest candidate takes 10\d ms"):
        plan(one, 0.01, effort=BRIEF)
    runs, _ = runs_on(device(WHERE), [record_of(one[0], 1e-4)])
    with pytest.raises(InputError, match="measured already"):
        plan(one, 10.0, runs=runs, effort=BRIEF)
    mixed = [
        Candidate(case, workload_of(case))
        for case in (
            Case(model="op:gelu,width=64", cluster="t4"),
            Case(model="op:gelu,width=64", cluster=WHERE),
        )
    ]
    with pytest.raises(InputError, match="one device at a time"):
        plan(mixed, 10.0)
