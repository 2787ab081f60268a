"""Many cases at once: JSON lines in, JSON lines out, in order, resumable.

Results grow in OUT.part and become OUT in one rename when all are there. An interrupted run
picks up after the last whole line if the case file is still the same. OUT.part is locked while
a run writes it; the system lets go of the lock however the run ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from foretell._version import __version__
from foretell.api import Case, predict_case
from foretell.errors import ForetellError, InputError, one_line

_FLUSH_EVERY = 64


def run_cases(
    cases: Path, out: Path, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[int, int]:
    """Answer every line of `cases` into `out`; returns (answered, failed)."""
    text = _read_text(cases)
    lines = _numbered_lines(text)
    if not lines:
        raise InputError(f"case file {str(cases)!r} is empty: write one JSON object per line")
    digest = hashlib.sha256(f"{__version__}\n{text}".encode()).hexdigest()
    try:
        _check_target(cases, out)
        part = out.with_name(out.name + ".part")
        stamp = out.with_name(out.name + ".part.hash")
        with _locked(part, out) as stream:
            kept = _resume(stream, stamp, digest)
            failed = sum(_is_error(line) for line in kept)
            stamp.write_text(digest, encoding="utf-8")
            for done, (number, line) in enumerate(lines[len(kept) :], start=len(kept) + 1):
                answer = answer_line(line, number)
                failed += _is_error(answer)
                stream.write(answer.encode() + b"\n")
                if done % _FLUSH_EVERY == 0:
                    stream.flush()
                on_progress(done, len(lines))
            stream.flush()
            os.replace(part, out)
            stamp.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"output {str(out)!r} cannot be written: {error.strerror}") from error
    return len(lines) - failed, failed


def answer_line(line: str, number: int) -> str:
    """The JSON of one case's forecast, or {"error": ...} naming the line.

    A line may name the user's own code, which may fail in any way, even by sys.exit().
    """
    try:
        values = json.loads(line)
        if not isinstance(values, dict):
            raise InputError("a case is a JSON object with fields named like the options")
        return json.dumps(predict_case(Case.from_mapping(values)).to_dict(), allow_nan=False)
    except json.JSONDecodeError as error:
        reason = f"not valid JSON: {error.msg} at column {error.colno}"
    except ForetellError as error:
        reason = one_line(error)
    except (Exception, SystemExit) as error:
        reason = one_line(f"cannot be answered: {type(error).__name__}: {error}")
    return json.dumps({"error": f"line {number}: {reason}"})


def _check_target(cases: Path, out: Path) -> None:
    """Answers replace `out` in one rename, so it must be a file of its own."""
    if out.exists() and not out.is_file():
        raise InputError(f"output {str(out)!r} is not a regular file: name a file for the answers")
    if out.is_symlink():
        raise InputError(f"output {str(out)!r} is a link: name the file it stands for")
    if out.exists() and out.samefile(cases):
        raise InputError(f"output {str(out)!r} is the case file itself: name another file")


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"case file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"case file {str(path)!r} is not UTF-8 text: {error.reason}") from error


def _numbered_lines(text: str) -> list[tuple[int, str]]:
    """(line number, line) of all that are not blank; only a line feed ends a line."""
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1))
    return [(number, line) for number, line in lines if line]


@contextlib.contextmanager
def _locked(part: Path, out: Path) -> Iterator[BinaryIO]:
    """The part file, ours alone, kept open for reading and appending."""
    while True:
        with part.open("a+b") as stream:
            if not _lock(stream):
                raise InputError(
                    f"output {str(out)!r} is being written by another run: wait for it, "
                    "or name another file"
                )
            if not _is_still(part, stream):
                continue  # the run that had the lock finished and renamed the file
            yield stream
            return


def _lock(stream: BinaryIO) -> bool:
    """Whether no other run holds the file; a file system without locks counts as free."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_still(path: Path, stream: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    except FileNotFoundError:
        return False


def _resume(stream: BinaryIO, stamp: Path, digest: str) -> list[str]:
    """Whole lines of an interrupted run over the same cases; the rest is cut off."""
    same = stamp.exists() and stamp.read_text(encoding="utf-8", errors="replace") == digest
    stream.seek(0)
    kept = list(_whole_lines(stream.read())) if same else []
    stream.truncate(sum(len(line.encode()) + 1 for line in kept))
    return kept


def _whole_lines(content: bytes) -> Iterator[str]:
    for raw in content.split(b"\n")[:-1]:
        try:
            text = raw.decode()
            json.loads(text)
        except ValueError:
            return
        yield text


def _is_error(line: str) -> bool:
    return line.startswith('{"error": ')
