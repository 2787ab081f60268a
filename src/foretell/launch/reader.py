"""Reads a launch file: finds out what it is, follows what it names, and sums it up.

Nothing in a file is ever run: scripts are split into words, variables are filled in from the
script itself, and what only a run would tell is left open and noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foretell.errors import InputError
from foretell.launch.accelerate import is_accelerate, read_accelerate_file
from foretell.launch.command import Start, find_starts, read_before, read_start
from foretell.launch.deepspeed import is_deepspeed, read_deepspeed
from foretell.launch.documents import Document, read_text
from foretell.launch.facts import Facts, Strength
from foretell.launch.flags import Flags
from foretell.launch.fsdp import read_document as read_fsdp_document
from foretell.launch.fsdp import read_fsdp_flags
from foretell.launch.kubernetes import is_kubernetes, read_kubernetes
from foretell.launch.launch import Launch
from foretell.launch.megatron import TELLING as MEGATRON_FLAGS
from foretell.launch.megatron import read_megatron
from foretell.launch.nearby import Nearby, looks_like_json, looks_like_yaml, parse_documents
from foretell.launch.resolve import resolve
from foretell.launch.script import read_script_flags
from foretell.launch.shell import Script, Word, read_script
from foretell.launch.slurm import read_directives
from foretell.launch.source import take_text
from foretell.launch.trainer import TELLING as TRAINER_FLAGS
from foretell.launch.trainer import is_trainer, read_trainer, read_trainer_document

# Sections in which people keep Trainer arguments.
_SECTIONS = ("training", "trainer", "train", "training_args", "training_arguments", "model")
_CONFIGS = (
    "config",
    "config-file",
    "config-path",
    "deepspeed",
    "deepspeed-config",
    "ds-config",
    "yaml-cfg",
)
_MOST_NOTED = 5


def read_launch(path: str | Path) -> Launch:
    """What a launch script or configuration file says about a job."""
    path = Path(path)
    text = read_text(path)
    facts = Facts(str(path))
    reader = _Reader(facts, Nearby(path.parent, facts), path.name)
    if looks_like_json(text) or looks_like_yaml(text):
        for document in parse_documents(text, path.name):
            reader.document(document)
    else:
        variables = read_directives(text, path.name, facts)
        reader.script(read_script(text, path.name, variables))
    launch = resolve(facts)
    if not launch.kinds:
        raise InputError(
            f"launch file {str(path)!r} holds no launch command and no training settings that "
            "Foretell knows: give a script with torchrun, accelerate, deepspeed or srun, or a "
            "configuration file"
        )
    return launch


class _Reader:
    """Takes in one file and those it names."""

    def __init__(self, facts: Facts, nearby: Nearby, name: str) -> None:
        self.facts = facts
        self.nearby = nearby
        self.name = name

    def document(self, document: Document) -> None:
        """A mapping of any kind we know; one may be several kinds at once."""
        facts, nearby = self.facts, self.nearby
        if is_kubernetes(document):
            script = read_kubernetes(document, facts)
            if script is not None:
                self.script(script)
            return
        if is_accelerate(document):
            read_accelerate_file(document, facts, nearby)
            return
        if is_deepspeed(document):
            read_deepspeed(document, facts)
            return
        for part in (document, *(document.part(name) for name in _SECTIONS)):
            if is_trainer(part):
                read_trainer_document(part, facts, nearby)
        if not is_trainer(document):
            read_fsdp_document(document, facts)

    def script(self, script: Script) -> None:
        """The command of a script that starts training."""
        facts = self.facts
        self.nearby.written |= script.files
        for text in script.notes:
            facts.note(text)
        starts = [start for start in find_starts(script) if start.launcher or self.tells(start)]
        if not starts:
            if not self.wrapped(script) and facts.kinds:
                facts.note(f"{script.name} holds no training command that Foretell knows")
            return
        chosen, *others = starts
        for other in others[:_MOST_NOTED]:
            facts.note(
                f"{script.name}:{other.line} starts {other.program or 'a second job'}, which was "
                "not read: put it into a file of its own"
            )
        if len(others) > _MOST_NOTED:
            facts.note(
                f"{script.name} starts {len(others) - _MOST_NOTED} more jobs, not read either"
            )
        visible = script.value("CUDA_VISIBLE_DEVICES")
        if visible and all(part.strip().isdigit() for part in visible.split(",")):
            where = f"{script.name} CUDA_VISIBLE_DEVICES"
            if facts.fact("reserved_gpus_per_node") is None:
                count = len(visible.split(","))
                facts.say("reserved_gpus_per_node", count, where, Strength.DEFAULT)
        self.start(chosen, script.name)

    def wrapped(self, script: Script) -> bool:
        """Whether a script only starts another one, which is then read in its place."""
        for words in (command.words for command in script.commands):
            for at, word in enumerate(words):
                if not word.text.endswith(".sh") or words[0].text in ("source", "."):
                    continue
                content = self.nearby.text(word.text, f"{script.name}:{word.line}")
                if content is not None:
                    read_before(words[:at], script.name, self.facts)
                    given = {str(n): w.text for n, w in enumerate(words[at + 1 :], start=1)}
                    self.script(read_script(*content, given, parent=script))
                    return True
        return False

    def tells(self, start: Start) -> bool:
        """Whether a program without a launcher is one that trains."""
        flags = Flags(start.words, self.name, Facts(self.name))
        return (
            flags.any([*MEGATRON_FLAGS, *TRAINER_FLAGS, "batch-size", "epochs"])
            or any(word.text.endswith("srun") for word in start.before)
            or any(word.text.endswith((".yaml", ".yml")) for word in flags.bare)
        )

    def start(self, start: Start, name: str) -> None:
        flags = read_start(start, name, self.facts, self.nearby)
        words = self.with_args_file(start, flags, name)
        if words is not None:
            flags = Flags(words, name, self.facts)
        program = start.program.rpartition("/")[2]
        if flags.any(MEGATRON_FLAGS):
            read_megatron(flags, self.facts, program, f"{name}:{start.line} {program}")
        elif flags.any(TRAINER_FLAGS):
            read_trainer(flags, self.facts, self.nearby)
            read_script_flags(flags.rest(), self.facts, self.nearby)
        else:
            read_script_flags(flags, self.facts, self.nearby)
        read_fsdp_flags(flags, self.facts)
        self.configs(flags, name)
        flags.note_rest(self.facts)

    def with_args_file(self, start: Start, flags: Flags, name: str) -> Sequence[Word] | None:
        """The program's words with those of an --args-file behind them."""
        found = take_text(flags, self.facts, "args-file")
        if found is None or (content := self.nearby.text(*found)) is None:
            return None
        inner = read_script(*content)
        return (*start.words, *(word for command in inner.commands for word in command.words))

    def configs(self, flags: Flags, name: str) -> None:
        """Configuration files that the program is given."""
        given = [found for n in _CONFIGS if (found := flags.take(n)) is not None]
        references = [(str(value), where) for value, where in given]
        for word in flags.bare:
            if word.text.endswith((".yaml", ".yml", ".json")):
                references.append((word.text, f"{name}:{word.line}"))
        for reference, where in references:
            if reference.endswith((".yaml", ".yml", ".json")) or reference in self.nearby.written:
                for document in self.nearby.documents(reference, where):
                    self.document(document)
