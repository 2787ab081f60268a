"""What Hugging Face models look like, without a download: names to architecture facts.

The facts are numbers in hf_configs.toml, or in a config.json of the user's. Nothing here needs
transformers or torch; hf_build turns an Entry into a model.
"""

from __future__ import annotations

import functools
import json
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from foretell.errors import InputError, UnknownNameError, near_matches

TASKS = (
    "causal-lm",
    "masked-lm",
    "seq2seq-lm",
    "sequence-classification",
    "image-classification",
    "clip",
    "speech-seq2seq",
    "ctc",
)

# What the class name in a config.json's "architectures" says about the task, first match wins.
# Names that several tasks share (ForConditionalGeneration, ForPreTraining, a bare Model) are
# decided by the model_type.
_TASK_OF_ARCHITECTURE = {
    "ForCausalLM": "causal-lm",
    "LMHeadModel": "causal-lm",
    "ForMaskedLM": "masked-lm",
    "ForSequenceClassification": "sequence-classification",
    "ForImageClassification": "image-classification",
    "ForCTC": "ctc",
}


@dataclass(frozen=True)
class Entry:
    """One architecture: which transformers classes to build, with which numbers.

    `name` is the hub's name or the path of the config.json it came from. `parameters` is the
    published count (rounded when it ends in many zeros), None when nobody published one.
    """

    name: str
    model_type: str
    task: str
    parameters: int | None
    config: Mapping[str, Any] = field(hash=False)


def names() -> tuple[str, ...]:
    """Every full name that entry() knows, further names of one architecture included."""
    return tuple(sorted(_full_names().values(), key=str.lower))


def entry(name: str) -> Entry:
    """The architecture called `name` on the hub.

    Case does not matter, and the owner may be left out where that is unambiguous: "gpt2" and
    "llama-3.1-8b" are found.
    """
    wanted = name.strip().lower()
    if wanted in _full_names():
        return _entries()[_full_names()[wanted]]
    owners = {_entries()[full].name: full for full in _short_names().get(wanted, ())}
    if len(owners) == 1:
        return _entries()[next(iter(owners.values()))]
    known = names() if "/" in name else [full.rpartition("/")[2] for full in names()]
    hint = "give the path of a config.json"
    if near_matches(name, known):
        hint = "or " + hint
    raise UnknownNameError("Hugging Face model", name, known, hint)


def entry_from_config_file(path: str | Path) -> Entry:
    """The architecture that a local config.json (or the directory that holds it) describes."""
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    config = _read_json(file)
    model_type = config.pop("model_type", None)
    if not isinstance(model_type, str) or not model_type:
        raise InputError(
            f"{file} has no model_type, so it does not name an architecture: give the config.json"
            " that stands beside a transformers model's weights"
        )
    architectures = config.pop("architectures", None) or []
    return Entry(
        name=str(file),
        model_type=model_type,
        task=_task(file, architectures, model_type),
        parameters=None,
        config=MappingProxyType(config),
    )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{file} does not exist: give the path of a Hugging Face config.json"
        ) from None
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): check its rights") from error
    except ValueError as error:
        raise InputError(f"{file} is not valid JSON ({error}): fix or replace the file") from error
    if not isinstance(config, dict):
        raise InputError(
            f"{file} holds a JSON {type(config).__name__}, not an object: give a config.json as"
            " transformers writes it"
        )
    return config


def _task(file: Path, architectures: object, model_type: str) -> str:
    classes = (
        [c for c in architectures if isinstance(c, str)] if isinstance(architectures, list) else []
    )
    for marker, task in _TASK_OF_ARCHITECTURE.items():
        if any(marker in c for c in classes):
            return task
    if model_type in _task_of_model_type():
        return _task_of_model_type()[model_type]
    if any(c.endswith("ForConditionalGeneration") for c in classes):
        return "seq2seq-lm"
    raise InputError(
        f"{file} does not say what its {model_type!r} model is trained for: add the model class to"
        ' it, as in "architectures": ["LlamaForCausalLM"]'
    )


@functools.cache
def _task_of_model_type() -> dict[str, str]:
    """The task that the catalogue's models of a type have most in common: the first one's."""
    tasks: dict[str, str] = {}
    for known in _entries().values():
        tasks.setdefault(known.model_type, known.task)
    return tasks


@functools.cache
def _entries() -> dict[str, Entry]:
    """Entries by every full name."""
    text = resources.files(__package__).joinpath("hf_configs.toml").read_text(encoding="utf-8")
    entries: dict[str, Entry] = {}
    for name, table in tomllib.loads(text).items():
        nulls = dict.fromkeys(table.get("unset", ()))
        found = Entry(
            name=name,
            model_type=table["model_type"],
            task=table["task"],
            parameters=table["parameters"],
            config=MappingProxyType({**table["config"], **nulls}),
        )
        entries.update(dict.fromkeys([name, *table.get("also", ())], found))
    return entries


@functools.cache
def _full_names() -> dict[str, str]:
    return {name.lower(): name for name in _entries()}


@functools.cache
def _short_names() -> dict[str, list[str]]:
    """Full names by what follows their owner."""
    short: defaultdict[str, list[str]] = defaultdict(list)
    for name in _entries():
        short[name.lower().rpartition("/")[2]].append(name)
    return dict(short)
