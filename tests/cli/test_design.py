"""foretell design: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foretell.api import Case
from foretell.cli import _run, app
from foretell.cli.design import _references
from foretell.data.record import Record
from foretell.data.store import Store

LINES = [
    {"model": f"op:linear,in={n},out={m}", "batch": batch}
    for n in (64, 1024)
    for m in (64, 1024)
    for batch in (1, 64, 1024)
]


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["design", "--seconds", "0.1", "--rounds", "1", *arguments])
    assert result.exit_code == 0, f"{result.output}\n{result.exception}"
    return result.output


def test_a_design_is_printed_for_people(cases: Path) -> None:
    printed = run("--budget", "0.65s", "--device", "t4", "--candidates", str(cases))
    for words in ("op:linear,in=", "cost", "bits", "of 12 cases, v-optimal", "standard error"):
        assert words in printed


def test_json_holds_the_choice_and_the_file_the_cases_in_order(cases: Path, tmp_path: Path) -> None:
    out = tmp_path / "chosen.jsonl"
    answer = json.loads(
        run(
            *("--budget", "0.65s", "--device", "t4", "--candidates", str(cases)),
            *("--method", "d-optimal", "--seed", "3", "--out", str(out), "--json"),
        )
    )
    assert answer["cost_s"] <= answer["budget_s"] == 0.65
    assert answer["uncertainty_after"] < answer["uncertainty_before"]
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert written == [choice["case"] for choice in answer["choices"]]
    assert all(Case.from_mapping(line).cluster == "t4" for line in written)


def test_what_the_store_holds_is_not_chosen_again(cases: Path, tmp_path: Path) -> None:
    options = ("--budget", "10m", "--device", "t4", "--candidates", str(cases), "--json")
    first = json.loads(run(*options))
    records = [
        Record(
            kind="operator",
            model=line["model"],
            batch=line["batch"],
            device="t4",
            time_s=1e-4,
            source="foretell",
        )
        for line in LINES[:8]
    ]
    Store(tmp_path / "store").append(records)
    second = json.loads(run(*options, "--store", str(tmp_path / "store")))
    assert (len(first["choices"]), len(second["choices"])) == (12, 4)
    assert second["measured"] == 8
    assert second["uncertainty_before"] < first["uncertainty_before"]


def test_models_over_batches_and_processes_are_candidates() -> None:
    small = "transformer:layers=1,hidden=64,heads=2,seq=32,vocab=64"
    answer = json.loads(
        run(
            *("--budget", "1h", "--device", "t4", "--models", f"{small},op:gelu,width=64"),
            *("--batch", "2,4", "--nproc", "1,2", "--json"),
        )
    )
    found = {
        (c["case"]["model"], c["case"]["batch"], c["case"]["cluster"]) for c in answer["choices"]
    }
    assert len(found) == 8
    assert (small, 4, "2xt4") in found


def test_references_with_commas_of_their_own_stay_whole() -> None:
    assert _references("timm:a, op:linear,in=8,out=4,hf:b/c,transformer:layers=2,hidden=4") == [
        "timm:a",
        "op:linear,in=8,out=4",
        "hf:b/c",
        "transformer:layers=2,hidden=4",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "soon", "--ops"], "duration 'soon' is not understood"),
        (["--budget", "0s", "--device", "t4", "--models", "op:gelu,width=8"], "buys nothing"),
        (["--budget", "1m"], "nothing to choose from"),
        (["--budget", "1m", "--ops", "--method", "best"], "unknown method 'best'"),
        (["--budget", "1m", "--ops", "--device", "abacus"], "unknown device 'abacus'"),
        (["--budget", "1m", "--models", "timm:resnet18", "--batch", "8;9"], "--batch '8;9'"),
        (["--budget", "1m", "--models", "timm:resnet18", "--nproc", "0"], "--nproc '0'"),
        (["--budget", "1m", "--ops", "--repeats", "0"], "--repeats 0"),
        (["--budget", "1m", "--candidates", "nowhere.jsonl"], "cannot be read"),
        (["--budget", "1m", "--models", "op:gelu", "--device", "t4"], "op:gelu lacks width"),
        (
            ["--budget", "1m", "--models", "op:gelu,width=8", "--store", "nowhere"],
            "store 'nowhere' is not a directory",
        ),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_two(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(["design", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("foretell: ")
    assert said.count("\n") == 1
