"""Named settings, whether they are flags of a command or keys of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from foretell.errors import InputError
from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength


class Source(Protocol):
    """Where settings are looked up; names are written with dashes."""

    def take(self, *names: str) -> tuple[Any, str] | None:
        """Value and place of the first of the names that is there.

        A flag without a value has the value "".
        """
        ...


class Keys:
    """The keys of a mapping as settings."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def take(self, *names: str) -> tuple[Any, str] | None:
        for name in names:
            for key in (name.replace("-", "_"), name):
                if key in self.document.values:
                    return self.document.values[key], self.document.where(key)
        return None

    def any(self, names: Iterable[str]) -> bool:
        """Whether one of the names is there."""
        return any(self.take(name) is not None for name in names)


def take_wholes(
    source: Source,
    facts: Facts,
    names: Mapping[str, tuple[str, ...]],
    strength: Strength = Strength.STATED,
) -> None:
    """Record whole numbers: fact -> the names it may have."""
    for fact, spellings in names.items():
        if (found := source.take(*spellings)) is not None:
            facts.whole(fact, *found, strength)


def take_switch(source: Source, facts: Facts, *names: str) -> str | None:
    """The place of a switch that is on; None when it is off or absent."""
    found = source.take(*names)
    return found[1] if found is not None and facts.parse_switch(*found) else None


def take_text(source: Source, facts: Facts, *names: str) -> tuple[str, str] | None:
    """A text with its place; None when it says nothing."""
    found = source.take(*names)
    if found is None or facts.silent(*found):
        return None
    value, where = found
    if isinstance(value, (dict, list)):
        raise InputError(f"{where} is a {type(value).__name__}: write a text")
    return str(value).strip(), where


def take_choice(
    source: Source, facts: Facts, choices: Mapping[str, Any], *names: str
) -> tuple[Any, str] | None:
    """What a word stands for, with its place; a word nobody knows becomes a note."""
    found = take_text(source, facts, *names)
    if found is None:
        return None
    word, where = found
    key = word.lower().replace("-", "_")
    if key not in choices:
        facts.note(f"{where} {word} is not known to Foretell")
        return None
    return choices[key], where
