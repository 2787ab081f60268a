"""Finds the files that a launch file refers to."""

from __future__ import annotations

import re
from pathlib import Path

from foretell.errors import InputError
from foretell.launch.documents import Document, read_json, read_text, read_yaml
from foretell.launch.facts import Facts, is_unknown

_MOST_FILES = 16


class Nearby:
    """Files at an absolute path or next to the launch file; a missing one becomes a note."""

    def __init__(self, directory: Path, facts: Facts) -> None:
        self.directory = directory
        self.facts = facts
        self.written: dict[str, str] = {}
        """Files that the script itself writes."""
        self._seen: set[str] = set()

    def text(self, reference: str, where: str) -> tuple[str, str] | None:
        """Text and name of a file; None when it is not there or was read before."""
        if is_unknown(reference) and reference not in self.written:
            self.facts.note(f"{where} {reference} was not read: the file does not say which it is")
            return None
        if reference in self._seen:
            return None
        self._seen.add(reference)
        if len(self._seen) > _MOST_FILES:
            raise InputError(f"{where} is one file too many: {_MOST_FILES} are read at most")
        if reference in self.written:
            return self.written[reference], Path(reference).name
        path = self.find(reference)
        if path is None:
            self.facts.note(f"{where} {reference} was not read: there is no such file here")
            return None
        return read_text(path), path.name

    def find(self, reference: str) -> Path | None:
        """The file meant, if it exists."""
        try:
            path = Path(reference)
            for candidate in (self.directory / path, self.directory / path.name):
                if candidate.is_file():
                    return candidate
        except (OSError, ValueError):
            return None
        return None

    def documents(self, reference: str, where: str) -> list[Document]:
        """The mappings in a referred file; none when it is not there."""
        found = self.text(reference, where)
        return [] if found is None else parse_documents(*found)


def parse_documents(text: str, name: str) -> list[Document]:
    """The mappings in a text, be it JSON or YAML."""
    return [read_json(text, name)] if looks_like_json(text) else read_yaml(text, name)


def looks_like_json(text: str) -> bool:
    """Whether a text begins as JSON does."""
    return text.lstrip()[:1] in ("{", "[")


def looks_like_yaml(text: str) -> bool:
    """Whether the first line that says something is a YAML key."""
    for line in text.splitlines():
        plain = line.strip()
        if plain.startswith(("#!", "#SBATCH")):
            return False
        if not plain or plain.startswith(("#", "%YAML")):
            continue
        return plain == "---" or bool(re.match(r"(- )?[\"']?[\w./-]+[\"']?\s*:(\s|$)", plain))
    return False
