"""Case files: order, errors by line, resuming, nothing half-written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import foretell
import foretell.cases
from foretell.api import Case
from foretell.cases import run_cases
from foretell.errors import InputError


def write(path: Path, *lines: object) -> Path:
    path.write_text(
        "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines),
        encoding="utf-8",
    )
    return path


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_answers_come_in_order_and_bad_lines_name_themselves(tmp_path: Path) -> None:
    cases = write(
        tmp_path / "cases.jsonl",
        {"model": "timm:resnet18", "batch": 8},
        {"model": "timm:resnet18", "batch": "many"},
        "{not json",
        {"model": "timm:resnet18", "batch": 16, "clutser": "a100"},
        {"model": "timm:resnet18", "batch": 16},
    )
    answered, failed = run_cases(cases, tmp_path / "out.jsonl")
    out = read(tmp_path / "out.jsonl")
    assert (answered, failed, len(out)) == (2, 3, 5)
    assert out[4]["step_time_s"]["value"] > out[0]["step_time_s"]["value"]  # type: ignore[index]
    assert "line 2" in str(out[1]["error"])
    assert "batch='many'" in str(out[1]["error"])
    assert "line 3" in str(out[2]["error"])
    assert "cluster" in str(out[3]["error"])


def test_an_interrupted_run_resumes_after_the_last_whole_line(tmp_path: Path) -> None:
    cases = write(
        tmp_path / "cases.jsonl", *({"model": "timm:resnet18", "batch": b} for b in range(1, 7))
    )
    out = tmp_path / "out.jsonl"

    def interrupt(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cases(cases, out, interrupt)
    assert not out.exists()
    part = tmp_path / "out.jsonl.part"
    part.write_bytes(part.read_bytes() + b'{"half')
    seen: list[int] = []
    run_cases(cases, out, lambda done, total: seen.append(done))
    assert seen[0] == 5
    assert len(read(out)) == 6
    assert not part.exists()


def test_a_changed_case_file_starts_over(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", {"model": "timm:resnet18", "batch": 1})
    (tmp_path / "out.jsonl.part").write_text('{"old": 1}\n')
    (tmp_path / "out.jsonl.part.hash").write_text("another file")
    run_cases(cases, tmp_path / "out.jsonl")
    assert "old" not in read(tmp_path / "out.jsonl")[0]


@pytest.mark.parametrize(
    ("content", "says"), [(None, "cannot be read"), (b"", "empty"), (b"\xff\xfe\x00", "UTF-8")]
)
def test_unreadable_case_files_are_refused(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "cases.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        run_cases(path, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(("target", "says"), [("cases.jsonl", "itself"), ("/dev/null", "regular")])
def test_answers_never_replace_the_cases_or_a_device(
    tmp_path: Path, target: str, says: str
) -> None:
    cases = write(tmp_path / "cases.jsonl", {"model": "timm:resnet18"})
    before = cases.read_bytes()
    with pytest.raises(InputError, match=says):
        run_cases(cases, tmp_path / target)
    assert cases.read_bytes() == before


@pytest.mark.parametrize(
    "failure", [OverflowError("too far"), RecursionError(), MemoryError(), SystemExit(3)]
)
def test_no_failure_of_one_line_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    honest = foretell.cases.predict_case

    def failing(case: Case) -> foretell.Forecast:
        if case.batch == 1:
            raise failure
        return honest(case)

    monkeypatch.setattr("foretell.cases.predict_case", failing)
    cases = write(
        tmp_path / "cases.jsonl", *({"model": "timm:resnet18", "batch": b} for b in (1, 2))
    )
    assert run_cases(cases, tmp_path / "out.jsonl") == (1, 1)
    bad, good = read(tmp_path / "out.jsonl")
    assert f"line 1: cannot be answered: {type(failure).__name__}" in str(bad["error"])
    assert good["step_time_s"]


def test_hostile_json_is_an_error_of_its_line(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", "[" * 100_000, '{"batch": ' + "1" * 5000 + "}", "{}")
    assert run_cases(cases, tmp_path / "out.jsonl") == (0, 3)


def test_lines_are_numbered_as_an_editor_does(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    separator = "\u2028"
    cases.write_bytes(
        b"\xef\xbb\xbf" + f'\r\n{{"model": "a{separator}b"}}\r\n\n  \n{{}}\n'.encode()
    )
    run_cases(cases, tmp_path / "out.jsonl")
    first, second = (str(answer["error"]) for answer in read(tmp_path / "out.jsonl"))
    assert first.startswith("line 2: model reference")
    assert second.startswith("line 5: the case has no model")


def test_a_second_run_with_the_same_output_is_refused(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", {"model": "timm:resnet18"})
    out = tmp_path / "out.jsonl"

    def another_run(done: int, total: int) -> None:
        with pytest.raises(InputError, match="another run"):
            run_cases(cases, out)

    assert run_cases(cases, out, another_run) == (1, 0)
    assert len(read(out)) == 1


def test_a_lock_dies_with_the_run_that_held_it(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", *({"model": "timm:no"} for _ in range(3)))
    out = tmp_path / "out.jsonl"
    code = (
        "import os, pathlib, sys; from foretell.cases import run_cases; "
        "run_cases(*map(pathlib.Path, sys.argv[1:]), lambda done, total: os.kill(os.getpid(), 9))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(cases), str(out)])
    assert killed.returncode == -9
    assert run_cases(cases, out) == (0, 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cases.jsonl", "out.jsonl"]
