"""Named settings, whether they are flags of a command or keys of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from foretell.errors import InputError
from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.unread import note_unread


class Source(Protocol):
    """Where settings are looked up; names are written with dashes."""

    def take(self, *names: str) -> tuple[Any, str] | None:
        """Value and place of the first of the names that is there.

        A flag without a value has the value "".
        """
        ...


class Keys:
    """The keys of a mapping as settings; remembers which of them somebody read."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._read: set[str] = set()

    def take(self, *names: str) -> tuple[Any, str] | None:
        self._read.update(names)
        for name in names:
            for key in (name.replace("-", "_"), name):
                if key in self.document.values:
                    return self.document.values[key], self.document.where(key)
        return None

    def part(self, name: str) -> Keys:
        """The mapping under a key; an empty one when there is none."""
        self._read.add(name)
        return Keys(self.document.part(name.replace("-", "_")))

    def any(self, names: Iterable[str]) -> bool:
        """Whether one of the names is there."""
        return any(
            key in self.document.values for name in names for key in (name.replace("-", "_"), name)
        )

    def note_rest(self, facts: Facts) -> None:
        """Note the keys nobody read whose names tell that they may matter."""
        for key, value in self.document.values.items():
            name = str(key).replace("_", "-")
            if name not in self._read:
                note_unread(name, value, self.document.where(key), facts)


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
    source: Source, facts: Facts, choices: Mapping[str, Any], *names: str, option: str
) -> tuple[Any, str] | None:
    """What a word stands for, with its place; one nobody knows becomes a note about `option`."""
    found = take_text(source, facts, *names)
    if found is None:
        return None
    word, where = found
    key = word.lower().replace("-", "_")
    if key not in choices:
        facts.note_unknown(word, where, option)
        return None
    return choices[key], where
