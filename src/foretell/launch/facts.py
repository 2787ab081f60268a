"""Collects what files say under one name each, and refuses what cannot be true at once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from foretell.errors import InputError

_LARGEST = 10**18
_MOST_NOTES = 100
# Facts that are no options -> the option that settles them.
_SETTLING = {
    "accumulation": "global_batch",
    **dict.fromkeys(
        (
            "nodes",
            "processes_per_node",
            "world_size",
            "tasks",
            "tasks_per_node",
            "gpus_per_task",
            "step_nodes",
            "reserved_nodes",
            "reserved_gpus",
            "reserved_gpus_per_node",
        ),
        "cluster",
    ),
}


class Strength(IntEnum):
    """Who wins when two places differ; equals that differ contradict each other."""

    DEFAULT = 0
    """What a launcher does when nothing is said."""
    FILE = 1
    """Said in a file whose values a command may override."""
    STATED = 2
    GIVEN = 3
    """Given beside the file."""


@dataclass(frozen=True)
class Fact:
    """A value and where it was read."""

    value: Any
    where: str
    strength: Strength = Strength.STATED


class Facts:
    """Everything read so far about one job."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.kinds: list[str] = []
        self.notes: list[str] = []
        self.settled_by: dict[str, tuple[str, ...]] = {}
        self._facts: dict[str, Fact] = {}
        self._strongest = Strength.GIVEN

    def kind(self, name: str) -> None:
        """Remember that a reader found something."""
        if name not in self.kinds:
            self.kinds.append(name)

    def note(self, text: str, *, settled_by: tuple[str, ...] = ()) -> None:
        """Remember something that was seen but not understood and may matter.

        Options in `settled_by` leave nothing of it open once they are given.
        """
        if len(self.notes) == _MOST_NOTES:
            text, settled_by = "more was seen that may matter: the first notes are kept", ()
        if text not in self.settled_by and len(self.notes) <= _MOST_NOTES:
            self.notes.append(text)
            self.settled_by[text] = settled_by

    @contextlib.contextmanager
    def at_most(self, strength: Strength) -> Iterator[None]:
        """What is said inside is no stronger than `strength`."""
        before, self._strongest = self._strongest, strength
        try:
            yield
        finally:
            self._strongest = before

    def say(self, name: str, value: Any, where: str, strength: Strength = Strength.STATED) -> None:
        """Record a value; a second one of equal strength must be the same."""
        strength = min(strength, self._strongest)
        new, known = Fact(value, where, strength), self._facts.get(name)
        if known is None:
            self._facts[name] = new
        elif known.value == value:
            self._facts[name] = max(known, new, key=lambda fact: fact.strength)
        elif known.strength == strength:
            if strength != Strength.DEFAULT:
                raise self.contradiction(name.replace("_", " "), known, new)
        else:
            weak, strong = sorted((known, new), key=lambda fact: fact.strength)
            self._facts[name] = strong
            if weak.strength != Strength.DEFAULT:
                self.note_yielding(name, weak, strong)

    def note_yielding(self, name: str, weak: Fact, strong: Fact) -> None:
        """Note what was said and what is used instead."""
        self.note(
            f"{name.replace('_', ' ')} {weak.value} ({weak.where}) gives way to "
            f"{'none' if strong.value == 0 and strong.value is not False else strong.value} "
            f"({strong.where})"
        )

    def note_unknown(self, word: str, where: str, option: str) -> None:
        """Note a word that Foretell does not know, and the option that settles it."""
        self.note(
            f"{where} {short(word)} is not known to Foretell: give --{option}",
            settled_by=(option,),
        )

    def contradiction(self, what: str, one: Fact, other: Fact) -> InputError:
        """The sentence for two values that cannot both hold."""
        return InputError(
            f"{self.path}: {what} is {one.value} ({one.where}) and {other.value} "
            f"({other.where}): make them agree"
        )

    def whole(
        self,
        name: str,
        raw: Any,
        where: str,
        strength: Strength = Strength.STATED,
        *,
        least: int = 1,
    ) -> None:
        """Record a whole number if `raw` is one; "auto" and unknown variables say nothing."""
        value = self.parse_whole(raw, where, least=least, option=_SETTLING.get(name, name))
        if value is not None:
            self.say(name, value, where, strength)

    def parse_whole(self, raw: Any, where: str, *, least: int = 1, option: str = "") -> int | None:
        """The whole number in `raw`; None when it says nothing about `option`."""
        number = self.parse_number(raw, where, option=option)
        if number is None:
            return None
        if not float(number).is_integer() or not least <= number <= _LARGEST:
            raise InputError(f"{where} is {raw}: write a whole number of {least} or more")
        return int(number)

    def parse_number(self, raw: Any, where: str, *, option: str = "") -> float | int | None:
        """The number in `raw`; None when it says nothing about `option`."""
        if self.silent(raw, where, option=option):
            return None
        value: float | int | None = None
        if isinstance(raw, (int, float)) and not isinstance(raw, bool):
            value = raw
        elif isinstance(raw, str):
            try:
                value = float(raw) if not raw.strip().isdigit() else int(raw)
            except ValueError:
                value = None
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(f"{where} is {short(raw)}: write a number")
        if abs(value) > _LARGEST:
            raise InputError(f"{where} is {short(raw)}, larger than can be meant: correct it")
        return value

    def parse_switch(self, raw: Any, where: str) -> bool | None:
        """True or false; a flag without a value is true, "auto" and null say nothing."""
        text = str(raw).strip().lower()
        if text and self.silent(raw, where):
            return None
        if text in ("true", "1", "yes", "on", ""):
            return True
        if text in ("false", "0", "no", "off", "none"):
            return False
        raise InputError(f"{where} is {short(raw)}: write true or false")

    def silent(self, raw: Any, where: str, *, option: str = "") -> bool:
        """Whether a value says nothing: absent, left to the program, or an unknown variable."""
        if raw is None or (isinstance(raw, str) and raw.strip().lower() in ("", "auto", "null")):
            return True
        if is_unknown(raw):
            self.note(f"{where} is {short(raw)}, which the file does not say", settled_by=(option,))
            return True
        return False

    def all(self) -> Mapping[str, Fact]:
        """Every value with its place."""
        return self._facts

    def get(self, name: str) -> Any:
        """The value under a name, or None."""
        fact = self._facts.get(name)
        return None if fact is None else fact.value

    def fact(self, name: str) -> Fact | None:
        """The value under a name with its place, or None."""
        return self._facts.get(name)


def is_unknown(raw: Any) -> bool:
    """Whether a text still has a variable or a command in it that only a run would fill."""
    return isinstance(raw, str) and ("$" in raw or "`" in raw)


def short(raw: Any) -> str:
    """A value as messages show it."""
    text = " ".join(str(raw).split())
    return text if len(text) <= 60 else text[:57] + "..."
