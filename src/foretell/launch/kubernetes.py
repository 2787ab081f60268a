"""Reads a Kubeflow PyTorchJob."""

from __future__ import annotations

import re
from typing import Any

from foretell.errors import InputError
from foretell.launch.documents import Document
from foretell.launch.facts import Facts, Strength
from foretell.launch.shell import Command, Script, Word

_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/class",
    "accelerator",
    "gpu-type",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)


def is_kubernetes(document: Document) -> bool:
    """Whether a mapping is a Kubernetes object."""
    return "apiVersion" in document.values and "kind" in document.values


def read_kubernetes(document: Document, facts: Facts) -> Script | None:
    """Take in a PyTorchJob; returns its container's command as a script."""
    kind = document.get("kind")
    if kind != "PyTorchJob":
        facts.note(f"{document.where('kind')} {kind} was not read: only PyTorchJob is")
        return None
    facts.kind("pytorchjob")
    spec = document.part("spec")
    replicas = spec.part("pytorchReplicaSpecs")
    roles = [name for name in ("Master", "Worker") if isinstance(replicas.get(name), dict)]
    if not roles:
        raise InputError(
            f"{document.name} has no pytorchReplicaSpecs with Master or Worker: add them"
        )
    pods = 0
    script: Script | None = None
    for role in roles:
        part = replicas.part(role)
        count = facts.parse_whole(part.get("replicas"), part.where("replicas"), least=0)
        pods += 1 if count is None else count
        pod = part.part("template", "spec")
        container, found = _container(pod)
        _pod(pod, container, facts)
        if script is None and found.commands:
            script = found
    if not pods:
        raise InputError(f"{replicas.where()} has no replicas: write 1 or more")
    facts.say("reserved_nodes", pods, replicas.where())
    elastic = spec.part("elasticPolicy")
    for part, name in ((spec, "nprocPerNode"), (elastic, "nProcPerNode")):
        if part.get(name) not in ("gpu", "cpu"):
            facts.whole("processes_per_node", part.get(name), part.where(name), Strength.FILE)
    if script is not None:
        # The operator puts these into the environment of every pod.
        processes = facts.get("processes_per_node") or facts.get("reserved_gpus_per_node")
        for name, value in (("PET_NNODES", pods), ("PET_NPROC_PER_NODE", processes)):
            if value is not None:
                script.variables.setdefault(name, [[(str(value), 0)]])
    low, high = elastic.get("minReplicas"), elastic.get("maxReplicas")
    if low != high:
        facts.note(
            f"{elastic.where()} allows {low} to {high} replicas; {pods} were taken",
            settled_by=("cluster",),
        )
    for part in (spec.part("runPolicy"), spec):
        limit = part.get("activeDeadlineSeconds")
        if (seconds := facts.parse_whole(limit, part.where("activeDeadlineSeconds"))) is not None:
            facts.say("time_limit_s", float(seconds), part.where("activeDeadlineSeconds"))
    return script


def _container(pod: Document) -> tuple[Document, Script]:
    """The container that trains, and its command."""
    containers = _items(pod, "containers")
    if not containers:
        raise InputError(f"{pod.where('containers')} names no container: add one")
    names = [c.get("name") if isinstance(c, dict) else None for c in containers]
    chosen = names.index("pytorch") if "pytorch" in names else 0
    container = pod.part("containers", chosen)
    script = Script(pod.name)
    variables = {}
    for entry in _items(container, "env"):
        if isinstance(entry, dict) and entry.get("value") is not None:
            variables[str(entry.get("name"))] = str(entry["value"])
    script.variables = {name: [[(value, 1)]] for name, value in variables.items()}
    words = []
    for key in ("command", "args"):
        for index, text in enumerate(_items(container, key)):
            line = container.line(key, index) or 0
            words.append(Word(_filled(str(text), variables), line + _block(text)))
    if words:
        script.commands = [Command(tuple(words))]
    return container, script


def _items(document: Document, key: str) -> list[Any]:
    value = document.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(f"{document.where(key)} is no list: write one entry per line after -")
    return value


def _block(text: Any) -> int:
    """A text of several lines begins below the sign that introduces it."""
    return 1 if "\n" in str(text).strip() else 0


def _filled(text: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda m: variables.get(m.group(1), m.group()), text)


def _pod(pod: Document, container: Document, facts: Facts) -> None:
    for section in ("limits", "requests"):
        resources = container.part("resources", section)
        for name in _GPUS:
            if name in resources.values:
                facts.whole("reserved_gpus_per_node", resources.get(name), resources.where(name))
    selector = pod.part("nodeSelector")
    for label in _LABELS:
        if selector.get(label):
            facts.say("device_word", str(selector.get(label)), selector.where(label))
            return
    affinity = pod.part("affinity", "nodeAffinity")
    required = affinity.part("requiredDuringSchedulingIgnoredDuringExecution")
    for i, _ in enumerate(_items(required, "nodeSelectorTerms")):
        term = required.part("nodeSelectorTerms", i)
        for j, _ in enumerate(_items(term, "matchExpressions")):
            rule = term.part("matchExpressions", j)
            if str(rule.get("key")) not in _LABELS:
                continue
            values = _items(rule, "values")
            if rule.get("operator") == "In" and len(values) == 1:
                facts.say("device_word", str(values[0]), rule.where("values"))
            else:
                facts.note(
                    f"{rule.where('values')} leaves several devices open", settled_by=("cluster",)
                )
