"""The fitted numbers of collectives, per link, and where they come from."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from foretell.cluster import Device, Link
from foretell.errors import InputError

PROTOCOLS = ("ll", "ll128", "simple")
"""Small messages travel with flags in every 8 or 128 bytes: soon under way, but slower."""
PATTERNS = ("ring", "exchange", "pair", "switch")
"""Around the ranks; each with each; one to one; reduced inside the switch."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One way to move messages over a link."""

    start_s: float
    """Before the first message leaves."""
    hop: float
    """Time of one step, in units of the link's latency."""
    efficiency: float
    """Share of the link's nominal bandwidth that a long message reaches."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """How ranks on one link do in one pattern of messages."""

    protocols: Mapping[str, Protocol]
    edge: float = 0.0
    """What filling and draining the pipeline costs, in messages of one rank's share."""
    blend: float = 1.5
    """How sharply latency gives way to bandwidth: 1 adds them, more takes the greater."""
    reach: Mapping[int, float] = field(default_factory=dict)
    """Share of the bandwidth left by number of ranks, where a link is no crossbar."""

    def reach_of(self, ranks: int) -> float:
        """The share for a number of ranks: between measured ones by logarithm, beyond the last."""
        if not self.reach:
            return 1.0
        known = sorted(self.reach)
        if ranks <= known[0]:
            return self.reach[known[0]]
        for low, high in itertools.pairwise(known):
            if ranks <= high:
                weight = math.log(ranks / low) / math.log(high / low)
                below, above = math.log(self.reach[low]), math.log(self.reach[high])
                return math.exp((1 - weight) * below + weight * above)
        return self.reach[known[-1]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "protocols": {
                name: [_short(p.start_s), _short(p.hop), _short(p.efficiency)]
                for name, p in self.protocols.items()
            },
            "edge": _short(self.edge),
            "blend": _short(self.blend),
            "reach": {str(n): _short(share) for n, share in self.reach.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Pattern:
        """The reverse of to_dict."""
        return cls(
            protocols={
                name: Protocol(start_s=values[0], hop=values[1], efficiency=values[2])
                for name, values in data["protocols"].items()
            },
            edge=data["edge"],
            blend=data["blend"],
            reach={int(n): share for n, share in data["reach"].items()},
        )


LinkConstants = Mapping[str, Pattern]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Patterns by link, from "pcie4/l40s" over "pcie4" and "pcie" to "default"."""

    links: Mapping[str, LinkConstants]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def pattern(self, name: str, link: Link, device: Device) -> Pattern | None:
        """The most specific there is; None where a link cannot do it."""
        for key in keys_of(link, device):
            if name in self.links.get(key, {}):
                return self.links[key][name]
        return None

    def to_json(self) -> str:
        """Readable JSON text."""
        links = {
            key: {name: pattern.to_dict() for name, pattern in patterns.items()}
            for key, patterns in self.links.items()
        }
        return json.dumps({"links": links, "provenance": dict(self.provenance)}, indent=1)

    @classmethod
    def from_json(cls, text: str, origin: str) -> Constants:
        """Parse to_json's text; `origin` names it in errors."""
        try:
            data = json.loads(text)
            links = {
                key: {name: Pattern.from_dict(values) for name, values in patterns.items()}
                for key, patterns in data["links"].items()
            }
            return cls(links=links, provenance=data.get("provenance", {}))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise InputError(
                f"collective constants {origin} cannot be read ({error}): fit them again"
            ) from error


def keys_of(link: Link, device: Device) -> tuple[str, ...]:
    """Where constants are looked up, the most specific first.

    A cut-down link is like the full one (nvlink4-h800 like nvlink4); a bridge has no switch and
    is not.
    """
    base = link.id if link.id.endswith("-bridge") else link.id.split("-")[0]
    return (f"{link.id}/{device.id}", link.id, base, link.kind, "default")


@functools.cache
def shipped_constants() -> Constants:
    """The constants that come with the package."""
    file = resources.files("foretell.comm").joinpath("constants.json")
    return Constants.from_json(file.read_text(encoding="utf-8"), "shipped with foretell")


def _short(value: float) -> float:
    return float(f"{value:.4g}")
