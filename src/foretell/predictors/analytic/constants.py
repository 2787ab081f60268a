"""The fitted numbers of the analytic predictor, per device family, and where they come from."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from foretell.comm import Constants as CommConstants
from foretell.comm.constants import shipped_constants as shipped_links
from foretell.errors import InputError
from foretell.graph.graph import Floats
from foretell.parallel import OpTimes
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.assemble import Spread

SCALARS = ("overhead_s", "dispatch_s", "tile_latency_s", "half_waves", "cache_gain")
NAMES = (
    *(f"compute[{group}]" for group in GROUPS),
    *(f"memory[{group}]" for group in GROUPS),
    *SCALARS,
)
"""The fitted numbers of a family in the order of FamilyConstants.logs."""
_DEFAULT_COMPUTE = 0.60
_DEFAULT_MEMORY = 0.70


@dataclass(frozen=True, kw_only=True)
class FamilyConstants:
    """Efficiencies of one device family in one layout and execution mode."""

    compute: Floats
    """Share of peak FLOP/s per rate group that a large, well-shaped operator reaches."""
    memory: Floats
    """Share of peak memory bandwidth per rate group."""
    overhead_s: float = 3e-6
    """Time of an operator that does nothing, on the device."""
    dispatch_s: float = 6e-6
    """Host time to launch one operator; the step cannot be faster than all of them."""
    tile_latency_s: float = 5e-7
    """Time to fill and drain the pipeline of one tile of a matrix product."""
    half_waves: float = 0.3
    """Tiles per multiprocessor at which it does."""
    cache_gain: float = 1.0
    """Extra bandwidth, in units of the memory's, for tensors that fit in the last-level cache."""

    def changed_as(
        self, before: FamilyConstants, after: FamilyConstants, groups: Sequence[str]
    ) -> FamilyConstants:
        """These constants with the efficiencies of some groups changed as between two others."""
        chosen = np.isin(GROUPS, groups)

        def changed(name: str) -> Floats:
            ratio = getattr(after, name) / getattr(before, name)
            own: Floats = getattr(self, name)
            return np.where(chosen, own * ratio, own)

        return dataclasses.replace(self, compute=changed("compute"), memory=changed("memory"))

    def logs(self) -> Floats:
        """The logarithms of all constants in the order of NAMES: what is fitted."""
        scalars = [getattr(self, name) for name in SCALARS]
        logs: Floats = np.log(np.concatenate([self.compute, self.memory, scalars]))
        return logs

    @classmethod
    def from_logs(cls, logs: Floats) -> FamilyConstants:
        """The reverse of logs."""
        values = np.exp(logs)
        compute, memory, scalars = np.split(values, [len(GROUPS), 2 * len(GROUPS)])
        named = dict(zip(SCALARS, scalars.tolist(), strict=True))
        return cls(compute=compute, memory=memory, **named)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        numbers = {name: float(getattr(self, name)) for name in SCALARS}
        return {
            "compute": _named(self.compute),
            "memory": _named(self.memory),
            **{k: float(f"{v:.5g}") for k, v in numbers.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FamilyConstants:
        """The reverse of to_dict; groups left out take the default efficiency."""
        return cls(
            compute=_column(data.get("compute", {}), _DEFAULT_COMPUTE),
            memory=_column(data.get("memory", {}), _DEFAULT_MEMORY),
            **{k: float(v) for k, v in data.items() if k not in ("compute", "memory")},
        )


@dataclass(frozen=True, kw_only=True)
class Together:
    """How processes on devices of a family exchange, and get in each other's way."""

    links: CommConstants
    """Links that were measured."""
    slowdown: float = 1.0
    """By how much operators take longer while the other processes compute."""
    contention: float = 0.0
    """By how much more while an exchange goes on."""
    exchange_factor: float = 1.0
    """By how much exchanges within a step take longer than alone."""
    copy_bytes_per_s: float = math.inf
    """Rate of copies into the buffers that are exchanged."""

    def all_links(self) -> CommConstants:
        """Those measured, and as shipped all others."""
        return CommConstants(links={**shipped_links().links, **self.links.links})

    def applied(self, times: OpTimes) -> OpTimes:
        """Times of operators alone as they are among others."""
        return dataclasses.replace(
            times,
            device_s=times.device_s * self.slowdown,
            contention=self.contention,
            exchange_factor=self.exchange_factor,
            copy_bytes_per_s=self.copy_bytes_per_s,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        numbers = {name: float(f"{getattr(self, name):.5g}") for name in _TOGETHER}
        return {"links": json.loads(self.links.to_json())["links"], **numbers}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Together:
        """The reverse of to_dict."""
        links = CommConstants.from_json(json.dumps({"links": data["links"]}), "of processes")
        return cls(links=links, **{name: float(data[name]) for name in _TOGETHER})


_TOGETHER = ("slowdown", "contention", "exchange_factor", "copy_bytes_per_s")


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Everything fitted: constants by key, spreads by key, and provenance."""

    families: Mapping[str, FamilyConstants]
    spreads: Mapping[str, Spread]
    together: Mapping[str, Together] = field(default_factory=dict)
    """By family, where it was measured."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def family(self, name: str, *, variants: tuple[str, ...] = ()) -> tuple[FamilyConstants, str]:
        """Constants of a family in the most specific variant there is, and the key used.

        `variants` are tried from the first to the last: "ada/nhwc", then "ada", then "default".
        """
        for key in (*(f"{name}/{v}" for v in variants), name):
            if key in self.families:
                return self.families[key], key
        for key in (*(f"default/{v}" for v in variants), "default"):
            if key in self.families:
                return self.families[key], key
        raise InputError("the analytic constants have no 'default' family: fit them again")

    def spread(self, key: str) -> Spread:
        """The spread for a key; the default's where it was never measured."""
        return self.spreads.get(key) or self.spreads["default"]

    def to_json(self) -> str:
        """Readable JSON text."""
        return json.dumps(
            {
                "families": {k: f.to_dict() for k, f in self.families.items()},
                "spreads": {k: [s.low, s.high] for k, s in self.spreads.items()},
                "together": {k: t.to_dict() for k, t in self.together.items()},
                "provenance": dict(self.provenance),
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str, origin: str) -> Constants:
        """Parse to_json's text; `origin` names it in errors."""
        try:
            data = json.loads(text)
            return cls(
                families={k: FamilyConstants.from_dict(v) for k, v in data["families"].items()},
                spreads={k: Spread(low=v[0], high=v[1]) for k, v in data["spreads"].items()},
                together={k: Together.from_dict(v) for k, v in data.get("together", {}).items()},
                provenance=data.get("provenance", {}),
            )
        except KeyError as error:
            raise InputError(f"constants {origin} lack {error}: fit them again") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"constants {origin} are not what 'foretell calibrate' writes: fit them again"
            ) from error


@functools.cache
def shipped_constants() -> Constants:
    """The constants that come with the package."""
    file = resources.files("foretell.predictors.analytic").joinpath("constants.json")
    return Constants.from_json(file.read_text(encoding="utf-8"), "shipped with foretell")


def load_constants(path: Path) -> Constants:
    """Constants from a file."""
    try:
        return Constants.from_json(path.read_text(encoding="utf-8"), repr(str(path)))
    except OSError as error:
        raise InputError(
            f"constants file {str(path)!r} cannot be read ({error.strerror}): name one that "
            "'foretell calibrate' wrote"
        ) from error


def _named(column: Floats) -> dict[str, float]:
    return {name: float(f"{v:.4g}") for name, v in zip(GROUPS, column, strict=True)}


def _column(named: Mapping[str, float], default: float) -> Floats:
    return np.array([float(named.get(name, default)) for name in GROUPS])
