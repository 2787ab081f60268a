"""Reads #SBATCH lines and the options of srun."""

from __future__ import annotations

import re
from collections.abc import Iterable

from foretell.errors import InputError
from foretell.launch.devices import resolve_device
from foretell.launch.facts import Facts, Strength, is_unknown
from foretell.launch.shell import Word

_SHORT = {
    "-N": "--nodes",
    "-n": "--ntasks",
    "-t": "--time",
    "-C": "--constraint",
    "-G": "--gpus",
    "-p": "--partition",
    "-c": "--cpus-per-task",
    "-J": "--job-name",
    "-A": "--account",
    "-o": "--output",
    "-e": "--error",
    "-q": "--qos",
    "-w": "--nodelist",
    "-D": "--chdir",
    "-d": "--dependency",
    "-a": "--array",
    "-M": "--clusters",
    "-x": "--exclude",
}
_DIRECTIVE = re.compile(r"^#SBATCH(?:\s+(.*))?$")
_UNLIMITED = ("0", "unlimited", "infinite")


def slurm_time_s(text: str) -> float | None:
    """Seconds in any of Slurm's formats; None when there is no limit.

    30 (minutes), 30:00, 12:00:00, 2-12, 2-12:30, 2-12:30:00
    """
    plain = text.strip().lower()
    if plain in _UNLIMITED:
        return None
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", plain)
    if match is None:
        raise ValueError(f"{text!r} is not a Slurm time")
    days, first, second, third = (None if g is None else int(g) for g in match.groups())
    if days is not None or third is not None:
        hours, minutes, seconds = first, second, third
    else:
        hours, minutes, seconds = 0, first, second
    total = (days or 0) * 86400 + (hours or 0) * 3600 + (minutes or 0) * 60 + (seconds or 0)
    return float(total) if total else None


def read_directives(text: str, name: str, facts: Facts) -> dict[str, str]:
    """Take in the #SBATCH lines; returns the SLURM_ variables that follow from them."""
    words: list[Word] = []
    over = False
    for number, line in enumerate(text.splitlines(), start=1):
        match = _DIRECTIVE.match(line)
        if match is None:
            over = over or bool(line.strip() and not line.lstrip().startswith("#"))
        elif over:
            facts.note(f"{name}:{number} #SBATCH stands after a command, where Slurm ignores it")
        elif (match.group(1) or "").strip() == "hetjob":
            facts.note(f"{name}:{number} only the first part of a heterogeneous job was read")
            break
        else:
            said = re.split(r"(?:^|\s)#", match.group(1) or "")[0]
            words += [Word(re.sub("[\"']", "", word), number) for word in said.split()]
    if not words:
        return {}
    facts.kind("sbatch")
    options = slurm_options(words)
    _reservation(options, name, facts)
    return _variables(facts)


def read_srun(words: Iterable[Word], name: str, facts: Facts) -> None:
    """Take in what srun says about the step; it may use less than the job reserved."""
    facts.kind("srun")
    options = slurm_options(words)
    for flag, fact in (
        ("--nodes", "step_nodes"),
        ("--ntasks", "tasks"),
        ("--ntasks-per-node", "tasks_per_node"),
        ("--gpus-per-task", "gpus_per_task"),
    ):
        if flag in options:
            facts.whole(fact, options[flag].text, f"{name}:{options[flag].line} {flag}")
    if (word := options.get("--constraint")) is not None:
        _constraint(word, f"{name}:{word.line} --constraint", facts)
    for flag in ("--gpus-per-node", "--gres"):
        if flag in options and facts.fact("reserved_gpus_per_node") is None:
            _gpus_per_node(options[flag], f"{name}:{options[flag].line} {flag}", facts)


def slurm_options(words: Iterable[Word]) -> dict[str, Word]:
    """--nodes=2, --nodes 2, -N 2 and -N2 alike; the last one of a name counts."""
    found: dict[str, Word] = {}
    pending = ""
    for word in words:
        text = word.text
        if pending and not text.startswith("-"):
            found[pending] = Word(text, word.line)
            pending = ""
            continue
        pending = ""
        if text.startswith("--"):
            flag, equals, value = text.partition("=")
            found[flag] = Word(value, word.line)
            pending = "" if equals else flag
        elif text.startswith("-") and text[:2] in _SHORT:
            flag = _SHORT[text[:2]]
            found[flag] = Word(text[2:].lstrip("="), word.line)
            pending = "" if text[2:] else flag
    return found


def _reservation(options: dict[str, Word], name: str, facts: Facts) -> None:
    def where(flag: str) -> str:
        return f"{name}:{options[flag].line} {flag}"

    if "--nodes" in options:
        low, _, high = options["--nodes"].text.partition("-")
        if high and high != low:
            facts.note(
                f"{where('--nodes')} is {low}-{high}: say which number of nodes to forecast",
                settled_by=("cluster",),
            )
            facts.say("nodes_open", True, where("--nodes"))
        else:
            facts.whole("reserved_nodes", low, where("--nodes"))
    for flag, fact in (
        ("--ntasks", "tasks"),
        ("--ntasks-per-node", "tasks_per_node"),
    ):
        if flag in options:
            facts.whole(fact, options[flag].text, where(flag), Strength.FILE)
    for flag in ("--gpus-per-node", "--gres", "--tres-per-node"):
        if flag in options:
            _gpus_per_node(options[flag], where(flag), facts)
    for flag, fact in (("--gpus", "reserved_gpus"), ("--gpus-per-task", "gpus_per_task")):
        if flag in options:
            kind, _, count = options[flag].text.rpartition(":")
            facts.whole(fact, count, where(flag))
            if kind:
                facts.say("device_word", kind, where(flag))
    if "--time" in options:
        _time(options["--time"].text, where("--time"), facts)
    if "--constraint" in options:
        _constraint(options["--constraint"], where("--constraint"), facts)
    if "--partition" in options:
        _partition(options["--partition"].text, where("--partition"), facts)


def _gpus_per_node(word: Word, where: str, facts: Facts) -> None:
    """8, a100:8, gpu:8, gpu:a100:8, nvme:1,gpu:a100:8(S:0-1), gres/gpu:8."""
    entries = []
    for entry in re.sub(r"\([^)]*\)", "", word.text).split(","):
        parts = [part for part in re.split(r"[:=]", entry.strip()) if part]
        if not parts:
            continue
        if parts[0].lower() in ("gpu", "gres/gpu"):
            entries.append(parts[1:])
        elif where.endswith("--gpus-per-node"):
            entries.append(parts)
    if len(entries) > 1:
        raise InputError(
            f"{where} is {word.text}, with several kinds of GPU: keep the one that trains"
        )
    for parts in entries:
        count = parts.pop() if parts and (parts[-1][0].isdigit() or is_unknown(parts[-1])) else "1"
        facts.whole("reserved_gpus_per_node", count, where)
        if parts:
            facts.say("device_word", parts[0], where)


def _time(text: str, where: str, facts: Facts) -> None:
    if is_unknown(text):
        return
    try:
        limit = slurm_time_s(text)
    except ValueError:
        raise InputError(
            f"{where} is {text!r}: write minutes, HH:MM:SS or D-HH:MM:SS as Slurm does"
        ) from None
    if limit is not None:
        facts.say("time_limit_s", limit, where)


def _constraint(word: Word, where: str, facts: Facts) -> None:
    features = [f for f in re.split(r"[&|,\[\]()*]", word.text) if f]
    known = sorted({d for f in features if (d := resolve_device(f, features)) is not None})
    if len(known) == 1:
        facts.say("device_word", known[0], where, Strength.DEFAULT)
    elif known:
        facts.note(
            f"{where} allows {' and '.join(known)}: say which to forecast", settled_by=("cluster",)
        )
    facts.say("device_features", tuple(features), where)


def _partition(text: str, where: str, facts: Facts) -> None:
    known = {d for part in re.split(r"[-_,]", text) if (d := resolve_device(part)) is not None}
    if (whole := resolve_device(text)) is not None:
        known = {whole}
    if len(known) == 1:
        facts.say("device_partition", known.pop(), where)


def _variables(facts: Facts) -> dict[str, str]:
    """What Slurm will put into the environment."""
    nodes = facts.get("reserved_nodes")
    per_node = facts.get("tasks_per_node")
    tasks = facts.get("tasks") or (nodes * per_node if nodes and per_node else None)
    gpus = facts.get("reserved_gpus_per_node")
    if gpus is None and facts.get("reserved_gpus") and nodes:
        gpus = facts.get("reserved_gpus") // nodes
    values = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": per_node,
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_GPUS_ON_NODE": gpus,
        "SLURM_GPUS_PER_NODE": gpus,
        "SLURM_GPUS": facts.get("reserved_gpus"),
    }
    return {key: str(value) for key, value in values.items() if value is not None}
