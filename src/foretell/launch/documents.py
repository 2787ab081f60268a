"""Reads files that anybody may have written: text, YAML and JSON, with limits on all of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from foretell.errors import InputError

LARGEST_FILE_BYTES = 1_000_000
_LARGEST_YAML_CHARACTERS = 200_000
# Far above any real configuration, far below what nested aliases can unfold to.
_MOST_NODES = 100_000
_DEEPEST = 64

Key = str | int


@dataclass(frozen=True)
class Document:
    """A mapping from a file that remembers where its values stand."""

    name: str
    values: Mapping[str, Any]
    lines: Mapping[tuple[Key, ...], int] = field(default_factory=dict)
    at: tuple[Key, ...] = ()

    def where(self, *keys: Key) -> str:
        """'accel.yaml:7 fsdp_config.fsdp_sharding_strategy'."""
        path = (*self.at, *keys)
        line = self.lines.get(path)
        place = self.name if line is None else f"{self.name}:{line}"
        dotted = ".".join(str(key) for key in path)
        return f"{place} {dotted}".rstrip()

    def line(self, *keys: Key) -> int | None:
        """The line a value stands on, where the format tells."""
        return self.lines.get((*self.at, *keys))

    def get(self, key: str) -> Any:
        """The value under a key, or None."""
        return self.values.get(key)

    def part(self, *keys: Key) -> Document:
        """The mapping at a path of keys; an empty one when there is none."""
        value: Any = self.values
        for key in keys:
            if isinstance(value, Mapping):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                value = None
        inner = value if isinstance(value, Mapping) else {}
        return Document(self.name, inner, self.lines, (*self.at, *keys))


def read_text(path: Path) -> str:
    """The file's text; refuses what is no small text file."""
    shown = str(path)
    try:
        if not path.exists():
            raise InputError(f"launch file {shown!r} does not exist: check the path")
        if not path.is_file():
            raise InputError(f"launch file {shown!r} is not a file: give the path of one")
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise InputError(
                f"launch file {shown!r} is larger than {LARGEST_FILE_BYTES // 1000} kB: "
                "give the script or configuration itself"
            )
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"launch file {shown!r} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"launch file {shown!r} is not a path: check it") from None
    if b"\0" in content:
        raise InputError(f"launch file {shown!r} is binary: give a script or configuration")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"launch file {shown!r} is not UTF-8 text: save it as such") from None
    if not text.strip():
        raise InputError(f"launch file {shown!r} is empty: give a script or configuration")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(text: str, name: str) -> Document:
    """The JSON object in a text."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            _refuse_twice([key for key, _ in pairs], name)
        return values

    try:
        values = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name} is not valid JSON: {error.msg} at line {error.lineno}: correct it"
        ) from None
    except (RecursionError, ValueError):
        raise InputError(
            f"{name} is not usable JSON: it nests too deeply or holds impossible values"
        ) from None
    if not isinstance(values, dict):
        raise InputError(f"{name} holds no JSON object: write {{...}} with named settings")
    return Document(name, values)


def read_yaml(text: str, name: str) -> list[Document]:
    """The mappings in a YAML text, one per document."""
    if len(text) > _LARGEST_YAML_CHARACTERS:
        raise InputError(
            f"{name} is larger than {_LARGEST_YAML_CHARACTERS // 1000} kB of YAML: give the "
            "configuration itself"
        )
    documents = []
    try:
        loader = yaml.SafeLoader(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                if node is None:
                    continue
                lines = dict(_lines(node, name))
                values = loader.construct_document(node)
                if values is None:
                    continue
                if not isinstance(values, dict):
                    raise InputError(f"{name} holds no YAML mapping: write named settings")
                documents.append(Document(name, values, lines))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "" if mark is None else f" at line {mark.line + 1}"
        raise InputError(f"{name} is not valid YAML: {error.problem}{line}: correct it") from None
    except yaml.YAMLError:
        raise InputError(f"{name} is not valid YAML: it has forbidden characters") from None
    except (RecursionError, ValueError, TypeError, AttributeError):
        raise InputError(
            f"{name} is not usable YAML: it nests too deeply or holds impossible values"
        ) from None
    return documents


def _refuse_twice(keys: list[str], name: str) -> None:
    """One of two values under a key would be ignored."""
    twice = next((key for key, count in Counter(keys).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"{name} says {twice} twice: keep one of them")


def _lines(root: yaml.Node, name: str) -> Iterator[tuple[tuple[Key, ...], int]]:
    """Where every value stands; counts what aliases unfold to, and stops when that is too much."""
    waiting: list[tuple[tuple[Key, ...], yaml.Node]] = [((), root)]
    seen = 0
    while waiting:
        path, node = waiting.pop()
        seen += 1
        if seen + len(waiting) > _MOST_NODES or len(path) > _DEEPEST:
            raise InputError(
                f"{name} unfolds to more than can be meant: write it without nested aliases"
            )
        if isinstance(node, yaml.MappingNode):
            names = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            _refuse_twice([key.value for key in names], name)
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    yield (*path, key.value), key.start_mark.line + 1
                    waiting.append(((*path, key.value), value))
                else:
                    # Its text may unfold without end.
                    waiting += [((*path, "?"), key), ((*path, "?"), value)]
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                yield (*path, index), value.start_mark.line + 1
                waiting.append(((*path, index), value))
