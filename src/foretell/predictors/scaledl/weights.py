"""Fitted weights on disk: safetensors with a card that says what they are."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from foretell.data.export import whole_file
from foretell.errors import InputError
from foretell.graph.graph import Floats
from foretell.predictors.analytic.constants import Together
from foretell.predictors.assemble import Spread
from foretell.predictors.scaledl.numbers import Ensemble, Known, Member
from foretell.predictors.scaledl.together import Jobs

FORMAT = 4
_LAYERS, _CROSS, _KNOWN = "layers", "cross", "known"
_REFERENCE, _SEEN, _TOGETHER, _PACES = "reference", "seen", "together", "paces"


@dataclass(frozen=True, eq=False)
class Weights:
    """An ensemble, and its card: data, versions, ledger, spreads."""

    ensemble: Ensemble
    card: Mapping[str, Any]
    seen: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """Sorted cells of the kernels it was fitted to; see domain.py."""
    together: Mapping[str, Jobs] = field(default_factory=dict)
    """Measured distributed jobs by device family."""
    paces: Mapping[str, Floats] = field(default_factory=dict)
    """Logarithms by which adapted devices take longer than their specification says, in the order
    of GROUPS, and last that of the host that launches."""

    machines: Mapping[str, Together] = field(default_factory=dict)
    """How processes do together on calibrated devices."""

    def __len__(self) -> int:
        return len(self.ensemble.members)

    def with_machine(self, device: str, together: Together, spread: Spread) -> Weights:
        """The same with how processes do together on a device."""
        spreads = self.card["spreads"]
        known = {**spreads.get("machine", {}), device: (spread.low, spread.high)}
        return dataclasses.replace(
            self,
            card={**self.card, "spreads": {**spreads, "machine": known}},
            machines={**self.machines, device: together},
        )


def save_weights(weights: Weights, path: Path) -> None:
    """Write all members and the card."""
    tensors: dict[str, Any] = {}
    ensemble = weights.ensemble
    for number, member in enumerate(ensemble.members):
        for name, value in member.layers.items():
            tensors[f"{number}/{_LAYERS}/{name}"] = _small(value)
        for name, value in member.cross.items() if member.cross else ():
            tensors[f"{number}/{_CROSS}/{name}"] = _small(value)
        tensors[f"{number}/{_KNOWN}/keys"] = member.known.keys
        tensors[f"{number}/{_KNOWN}/values"] = member.known.values.astype(np.float16)
    for kind, spec in ensemble.reference.items():
        tensors[f"{_REFERENCE}/{kind}"] = np.asarray(spec, dtype=np.float64)
    tensors[_SEEN] = np.asarray(weights.seen, dtype=np.uint64)
    for family, jobs in weights.together.items():
        tensors[f"{_TOGETHER}/{family}/at"] = _small(jobs.at)
        tensors[f"{_TOGETHER}/{family}/pull"] = _small(jobs.pull)
        tensors[f"{_TOGETHER}/{family}/left"] = _small(jobs.left)
    for device, pace in weights.paces.items():
        tensors[f"{_PACES}/{device}"] = _small(pace)
    card = {
        **weights.card,
        "format": FORMAT,
        "members": [{"devices": dict(m.devices), "names": dict(m.names)} for m in ensemble.members],
        "together": {family: jobs.length for family, jobs in weights.together.items()},
        "machines": {device: t.to_dict() for device, t in weights.machines.items()},
    }
    with whole_file(path, binary=True) as stream:
        stream.write(save(tensors, metadata={"card": json.dumps(card)}))


def load_weights(path: Path) -> Weights:
    """The reverse of save_weights."""
    try:
        with safe_open(path, framework="numpy") as file:
            card = json.loads((file.metadata() or {})["card"])
        if card["format"] != FORMAT:
            raise InputError(
                f"weights {str(path)!r} have format {card['format']}, this version reads "
                f"{FORMAT}: fit them again"
            )
        return _weights(load_file(path), card)
    except OSError as error:
        raise InputError(
            f"weights {str(path)!r} cannot be read: {error.strerror or error}"
        ) from error
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"weights {str(path)!r} are not what 'foretell fit' writes ({error}): fit them again"
        ) from error


def _weights(tensors: Mapping[str, Any], card: Mapping[str, Any]) -> Weights:
    def part(prefix: str) -> dict[str, Floats]:
        return {
            name.removeprefix(prefix): np.asarray(value, dtype=np.float64)
            for name, value in tensors.items()
            if name.startswith(prefix)
        }

    members = [
        Member(
            part(f"{number}/{_LAYERS}/"),
            part(f"{number}/{_CROSS}/") or None,
            known["devices"],
            known["names"],
            Known(
                tensors[f"{number}/{_KNOWN}/keys"],
                tensors[f"{number}/{_KNOWN}/values"].astype(np.float64),
            ),
        )
        for number, known in enumerate(card["members"])
    ]
    together = {}
    for family, length in card.get("together", {}).items():
        jobs = part(f"{_TOGETHER}/{family}/")
        together[family] = Jobs(jobs["at"], jobs["pull"], jobs["left"], float(length))
    ensemble = Ensemble(members, part(f"{_REFERENCE}/"))
    machines = {d: Together.from_dict(t) for d, t in card.get("machines", {}).items()}
    return Weights(ensemble, card, tensors[_SEEN], together, part(f"{_PACES}/"), machines)


def _small(value: Floats) -> Any:
    return np.ascontiguousarray(value, dtype=np.float32)
