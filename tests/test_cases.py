"""Case files: order, errors by line, resuming, nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
