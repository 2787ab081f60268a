"""Many cases at once: JSON lines in, JSON lines out, in order, resumable.

Results grow in OUT.part and become OUT in one rename when all are there. An interrupted run
picks up after the last whole line if the case file is still the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from foretell.api import Case, predict_case
from foretell.errors import ForetellError, InputError

_FLUSH_EVERY = 64


def run_cases(
    cases: Path, out: Path, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[int, int]:
    """Answer every line of `cases` into `out`; returns (answered, failed)."""
    lines = _read_lines(cases)
    _check_target(cases, out)
    part = out.with_name(out.name + ".part")
    stamp = out.with_name(out.name + ".part.hash")
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    kept = _resume(part, stamp, digest)
    failed = sum(_is_error(line) for line in kept)
    try:
        with part.open("w" if not kept else "a", encoding="utf-8") as stream:
            stamp.write_text(digest, encoding="utf-8")
            for number, line in enumerate(lines[len(kept) :], start=len(kept) + 1):
                answer = answer_line(line, number)
                failed += "error" in answer
                stream.write(json.dumps(answer) + "\n")
                if number % _FLUSH_EVERY == 0:
                    stream.flush()
                on_progress(number, len(lines))
        os.replace(part, out)
        stamp.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"output {str(out)!r} cannot be written: {error.strerror}") from error
    return len(lines) - failed, failed


def answer_line(line: str, number: int) -> dict[str, Any]:
    """The forecast of one case line, or {"error": ...} naming the line."""
    try:
        values = json.loads(line)
        if not isinstance(values, dict):
            raise InputError("a case is a JSON object with fields named like the options")
        return predict_case(Case.from_mapping(values)).to_dict()
    except json.JSONDecodeError as error:
        return {"error": f"line {number}: not valid JSON: {error.msg} at column {error.colno}"}
    except ForetellError as error:
        return {"error": f"line {number}: {error}"}


def _check_target(cases: Path, out: Path) -> None:
    """Answers replace `out` in one rename, so it must be a file of its own."""
    if out.exists() and not out.is_file():
        raise InputError(f"output {str(out)!r} is not a regular file: name a file for the answers")
    if out.is_symlink():
        raise InputError(f"output {str(out)!r} is a link: name the file it stands for")
    if out.exists() and out.samefile(cases):
        raise InputError(f"output {str(out)!r} is the case file itself: name another file")


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"case file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"case file {str(path)!r} is not UTF-8 text: {error.reason}") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"case file {str(path)!r} is empty: write one JSON object per line")
    return lines


def _resume(part: Path, stamp: Path, digest: str) -> list[str]:
    """Whole lines of an interrupted run over the same cases; cuts off a half-written one."""
    if not part.exists() or not stamp.exists() or stamp.read_text(encoding="utf-8") != digest:
        return []
    kept = list(_whole_lines(part))
    part.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
    return kept


def _whole_lines(part: Path) -> Iterator[str]:
    for raw in part.read_bytes().split(b"\n")[:-1]:
        try:
            text = raw.decode()
            json.loads(text)
        except ValueError:
            return
        yield text


def _is_error(line: str) -> bool:
    return "error" in json.loads(line)
