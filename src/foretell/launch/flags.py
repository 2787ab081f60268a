"""Turns the words of a command into named flags with their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from foretell.launch.facts import Facts, is_unknown, short
from foretell.launch.shell import Word
from foretell.launch.unread import note_unread

_FLAG = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True)
class Flag:
    """--micro-batch-size 4, with its place."""

    name: str
    """Without dashes in front and with dashes inside: micro-batch-size."""
    written: str
    values: tuple[str, ...]
    where: str

    @property
    def value(self) -> str | None:
        """The values as one text; None when there is none."""
        return " ".join(self.values) if self.values else None


class Flags:
    """The flags of one command; remembers which of them somebody read."""

    def __init__(self, words: Sequence[Word], file: str, facts: Facts) -> None:
        self.bare: list[Word] = []
        """Words before the first flag, and unknown variables that may hold flags."""
        self._flags: dict[str, Flag] = {}
        self._read: set[str] = set()
        for flag in _split(words, file, self.bare):
            known = self._flags.get(flag.name)
            if known is not None and known.values != flag.values:
                facts.note(
                    f"{known.where} {short(known.value)} gives way to {flag.where} "
                    f"{short(flag.value)}"
                )
            self._flags[flag.name] = flag

    def __contains__(self, name: str) -> bool:
        return name in self._flags

    def any(self, names: Iterable[str]) -> bool:
        """Whether one of the names was given."""
        return any(name in self._flags for name in names)

    def take(self, *names: str) -> tuple[Any, str] | None:
        """Value and place of the first of the names that was given; they count as read."""
        found = [self._flags[name] for name in names if name in self._flags]
        self._read.update(names)
        return (found[0].value or "", found[0].where) if found else None

    def rest(self) -> Flags:
        """The flags that nobody read so far; reading them counts here too."""
        view = Flags((), "", Facts(""))
        view.bare, view._read = self.bare, self._read
        view._flags = {n: flag for n, flag in self._flags.items() if n not in self._read}
        return view

    def note_rest(self, facts: Facts) -> None:
        """Note the flags nobody read whose names tell that they may matter."""
        for flag in self._flags.values():
            if flag.name not in self._read:
                note_unread(
                    flag.name, True if flag.value is None else flag.value, flag.where, facts
                )
        for word in self.bare:
            if is_unknown(word.text):
                facts.note(f"{word.text} at line {word.line} may hold options that were not read")


def _split(words: Sequence[Word], file: str, bare: list[Word]) -> Iterable[Flag]:
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _FLAG.match(word.text):
            if word.text not in ("\\", "--"):
                bare.append(word)
            continue
        written, equals, value = word.text.partition("=")
        values = [value] if equals else []
        while not equals and at < len(words) and not _FLAG.match(words[at].text):
            text = words[at].text
            if is_unknown(text) and values:
                break
            values += [text] if text not in ("\\", "") else []
            at += 1
        name = written.lstrip("-").replace("_", "-")
        yield Flag(name, written, tuple(values), f"{file}:{word.line} {written}")
