"""What is wrong with a command line, in one sentence of the house style."""

from __future__ import annotations

import importlib.util
from typing import Any

import typer

from foretell.errors import InputError, MissingExtraError, one_line


def usage_sentence(error: Any) -> str:
    """Typer's usage error without its box, with where to read on."""
    sentence = one_line(error.format_message()).rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "foretell"
    return f"{sentence[:1].lower()}{sentence[1:]}: see '{command} --help'"


def whole_number(text: str | int) -> int:
    """'256' or '1e6' -> a whole number; defaults come as numbers already."""
    if isinstance(text, int):
        return text
    number = a_number(text)
    if not number.is_integer():
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return int(text) if text.strip("+-").isdecimal() else int(number)


def a_number(text: str | float) -> float:
    """'0.5' or '1e9' -> a number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def numbers(option: str, text: str) -> list[int]:
    """'8,16' -> [8, 16]."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise InputError(
            f"--{option} {text!r} is not understood: write whole numbers from 1 up, with commas"
        )
    return found


def need_extra(module: str, what: str, extra: str) -> None:
    """Say which extra is missing before anything is done."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(what, extra)
