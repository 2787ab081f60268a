"""Finds the command that starts training, and splits it into launcher, program and flags."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foretell.launch.accelerate import read_accelerate_flags
from foretell.launch.facts import Facts, Strength, is_unknown
from foretell.launch.flags import Flags
from foretell.launch.nearby import Nearby
from foretell.launch.shell import Command, Script, Word, read_script
from foretell.launch.slurm import read_srun

_LAUNCHERS = {"torchrun": "torchrun", "deepspeed": "deepspeed", "accelerate-launch": "accelerate"}
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}
_PROGRAMS = ("llamafactory-cli", "axolotl", "trl", "composer")
_PYTHON = re.compile(r"python[0-9.]*")
# Commands that only talk about a launcher.
_TALKING = (
    "echo",
    "printf",
    "pip",
    "pip3",
    "which",
    "command",
    "type",
    "alias",
    "grep",
    "pkill",
    "killall",
    "conda",
    "mamba",
    "module",
    "ls",
    "cat",
    "test",
    "[",
    "[[",
    "sed",
    "rm",
)
_SHELLS = ("bash", "sh", "zsh")
_SWITCHES = (
    "--standalone --no-python --no_python --use-env --use_env --run-path --run_path "
    "--multi-gpu --multi_gpu --use-deepspeed --use_deepspeed --use-fsdp --use_fsdp "
    "--use-megatron-lm --use_megatron_lm --same-network --same_network --debug --quiet -q --cpu "
    "--use-cpu --use_cpu --force-multi --force_multi --no-local-rank --no_local_rank "
    "--no-ssh-check --no_ssh_check --module -m"
).split()
_DEEPEST = 4
_MOST_SHELLS = 50


@dataclass(frozen=True)
class Start:
    """A command that starts training."""

    launcher: str
    """torchrun, accelerate, deepspeed, or empty for a program started directly."""
    program: str
    before: tuple[Word, ...]
    """What stands in front of the launcher: srun and its options, a container, nothing."""
    launcher_words: tuple[Word, ...]
    words: tuple[Word, ...]
    """What the program is given."""
    line: int


def find_starts(script: Script, depth: int = 0) -> list[Start]:
    """Every command that starts training, those with a launcher first."""
    found: list[Start] = []
    shells = 0
    for words in _joined(script.commands):
        at, inner = _shell(words)
        if inner is None or depth >= _DEEPEST:
            found += filter(None, [start_of(words)])
        elif shells < _MOST_SHELLS:
            shells += 1
            nested = read_script(inner.text, script.name, parent=script, first_line=inner.line)
            for start in find_starts(nested, depth + 1):
                before = (*words[:at], *start.before)
                found.append(dataclasses.replace(start, before=before))
    return sorted(found, key=lambda start: not start.launcher)


def _joined(commands: Sequence[Command]) -> Iterator[tuple[Word, ...]]:
    """The words of each command; lines that hold nothing but flags belong together."""
    by_flag = itertools.groupby(commands, key=lambda c: c.words[0].text.startswith("--"))
    for are_flags, group in by_flag:
        if are_flags:
            yield tuple(word for command in group for word in command.words)
        else:
            yield from (command.words for command in group)


def start_of(words: Sequence[Word]) -> Start | None:
    """The start in the words of one command, if there is one."""
    if not words or _base(words[0].text) in _TALKING:
        return None
    for at, word in enumerate(words):
        base = _base(word.text)
        if base in _LAUNCHERS:
            return _launched(_LAUNCHERS[base], words, at, at + 1)
        if base == "accelerate" and _text(words, at + 1) == "launch":
            return _launched("accelerate", words, at, at + 2)
        if base in _PROGRAMS or (word.text.startswith("--") and at == 0):
            rest = words[at + 1 :] if base in _PROGRAMS else words
            return Start("", base, tuple(words[:at]), (), tuple(rest), word.line)
        if _PYTHON.fullmatch(base):
            return _python(words, at)
    return None


def read_start(start: Start, name: str, facts: Facts, nearby: Nearby) -> Flags:
    """Take in what launcher and scheduler say; returns the program's flags."""
    read_before(start.before, name, facts)
    if start.launcher:
        flags = Flags(start.launcher_words, name, facts)
        where = f"{name}:{start.line} {start.launcher}"
        if start.launcher == "torchrun":
            _torchrun(flags, where, facts)
        elif start.launcher == "deepspeed":
            _deepspeed(flags, where, facts, nearby)
        else:
            read_accelerate_flags(flags, facts, nearby)
        flags.note_rest(facts)
    return Flags(start.words, name, facts)


def read_before(words: Sequence[Word], name: str, facts: Facts) -> None:
    """Take in the scheduler's words in front of what it starts."""
    names = [_base(word.text) for word in words]
    if "srun" in names:
        read_srun(words[names.index("srun") + 1 :], name, facts)
    if names and names[0] in ("mpirun", "mpiexec"):
        _mpi(words, name, facts)


def _shell(words: Sequence[Word]) -> tuple[int, Word | None]:
    """Where a shell is started, and the script it is given in `bash -lc "..."`."""
    for at, word in enumerate(words):
        if _base(word.text) in _SHELLS:
            return at, _inner(words[at + 1 :])
    return 0, None


def _inner(words: Sequence[Word]) -> Word | None:
    for at, word in enumerate(words):
        if not word.text.startswith("-"):
            return None
        if word.text.endswith("c") and not word.text.startswith("--"):
            return words[at + 1] if at + 1 < len(words) else None
    return None


def _launched(launcher: str, words: Sequence[Word], at: int, first: int) -> Start:
    """Splits after the program: the first word that is neither an option nor its value."""
    here, skip_value = first, False
    program = len(words)
    while here < len(words):
        text = words[here].text
        if text.endswith(".py") or (not text.startswith("-") and not skip_value):
            program = here
            break
        takes_value = text.startswith("-") and "=" not in text and text not in _SWITCHES
        skip_value = takes_value and not skip_value
        here += 1
    return Start(
        launcher,
        _text(words, program),
        tuple(words[:at]),
        tuple(words[first:program]),
        tuple(words[program + 1 :]),
        words[at].line,
    )


def _python(words: Sequence[Word], at: int) -> Start | None:
    here = at + 1
    while here < len(words) and words[here].text.startswith("-"):
        text = words[here].text
        if text == "-m":
            module = _text(words, here + 1)
            if module in _MODULES:
                return _launched(_MODULES[module], words, at, here + 2)
            here += 1
            break
        if text == "-c":
            return None
        here += 2 if text in ("-W", "-X") else 1
    if here >= len(words):
        return None
    return Start(
        "", _text(words, here), tuple(words[:at]), (), tuple(words[here + 1 :]), words[at].line
    )


def _torchrun(flags: Flags, where: str, facts: Facts) -> None:
    facts.kind("torchrun")
    nodes = flags.take("nnodes")
    if nodes is not None and ":" in str(nodes[0]) and not is_unknown(nodes[0]):
        low, _, high = str(nodes[0]).partition(":")
        if low == high:
            facts.whole("nodes", low, nodes[1])
        else:
            facts.note(
                f"{nodes[1]} is {nodes[0]}: say which number of nodes to forecast",
                settled_by=("cluster",),
            )
    elif nodes is not None:
        facts.whole("nodes", *nodes)
    else:
        facts.say("nodes", 1, where, Strength.DEFAULT)
    processes = flags.take("nproc-per-node")
    if processes is None:
        facts.say("processes_per_node", 1, where, Strength.DEFAULT)
    elif str(processes[0]).lower() not in ("gpu", "auto", "cpu"):
        facts.whole("processes_per_node", *processes)


def _deepspeed(flags: Flags, where: str, facts: Facts, nearby: Nearby) -> None:
    facts.kind("deepspeed")
    for name, fact in (("num-nodes", "nodes"), ("num-gpus", "processes_per_node")):
        if (found := flags.take(name)) is not None and str(found[0]) != "-1":
            facts.whole(fact, *found)
    if (include := flags.take("include", "i")) is not None:
        hosts = [h for h in str(include[0]).split("@") if h]
        counts = {len(h.partition(":")[2].split(",")) for h in hosts if ":" in h}
        facts.say("nodes", len(hosts), include[1])
        if len(counts) == 1:
            facts.say("processes_per_node", counts.pop(), include[1])
    if (exclude := flags.take("exclude", "e")) is not None:
        facts.note(f"{exclude[1]} {exclude[0]} was not read", settled_by=("cluster",))
    if (hosts_file := flags.take("hostfile", "H")) is not None:
        _hosts(*hosts_file, facts, nearby)
    elif facts.get("reserved_nodes") is None:
        facts.say("nodes", 1, where, Strength.DEFAULT)


def _hosts(reference: str, where: str, facts: Facts, nearby: Nearby) -> None:
    """Lines of `worker-1 slots=8`."""
    found = nearby.text(reference, where)
    if found is None:
        return
    slots = re.findall(r"^\s*[^#\s]\S*\s+slots=(\d{1,4})\b", found[0], re.M)
    if slots:
        facts.say("nodes", len(slots), f"{found[1]} hosts", Strength.FILE)
    if len(set(slots)) == 1:
        facts.whole("processes_per_node", slots[0], f"{found[1]} slots", Strength.FILE)


def _mpi(words: Sequence[Word], name: str, facts: Facts) -> None:
    facts.kind("mpirun")
    names = {
        "-np": "world_size",
        "-n": "world_size",
        "--np": "world_size",
        "-npernode": "processes_per_node",
        "-ppn": "processes_per_node",
        "-N": "processes_per_node",
        "--npernode": "processes_per_node",
    }
    for word, following in itertools.pairwise(words):
        where = f"{name}:{word.line} {word.text}"
        if word.text in names:
            facts.whole(names[word.text], following.text, where)
        elif word.text in ("-H", "-host", "--host"):
            _mpi_hosts(following.text, where, facts)


def _mpi_hosts(text: str, where: str, facts: Facts) -> None:
    """a:4,b:4 counts nodes when every slot of them is taken."""
    slots = re.findall(r":(\d{1,4})(?=,|$)", text)
    if len(set(slots)) == 1 and len(slots) * int(slots[0]) == facts.get("world_size"):
        facts.say("nodes", len(slots), where)


def _base(text: str) -> str:
    return text.rstrip("/").rpartition("/")[2]


def _text(words: Sequence[Word], at: int) -> str:
    return words[at].text if at < len(words) else ""
