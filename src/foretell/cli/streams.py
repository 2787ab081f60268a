"""Standard output on terminals that know few characters, full disks and closed pipes."""

from __future__ import annotations

import codecs
import io
import os
import sys

_PLAIN = {"µ": "u", "–": "-", "█": "#", "∞": "inf", "…": "...", "×": "x"}


def make_printable() -> None:
    """Characters a stream cannot encode are written in a plainer way instead of failing."""
    codecs.register_error("foretell.plain", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="foretell.plain")


def discard_output() -> None:
    """Nobody can take standard output: what is still buffered must not fail again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unknown = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in unknown), error.end
