"""Fit and judge the times of collectives: python -m benchmarks.collectives [--write].

Prints errors in sample, with each system left out, and with each kind of link left out; writes
the per-case ledger, and with --write the constants that ship with the package.
"""

from __future__ import annotations

import argparse
import csv
import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from benchmarks.collective_fit import fit, prior, ratios
from benchmarks.collective_rows import Row, rows
from benchmarks.figures import errors
from benchmarks.sources import RESULTS, ROOT
from benchmarks.stated_collectives import SAME_AS, stated
from foretell.comm import Collective
from foretell.comm.constants import Constants, LinkConstants

_OUT = ROOT / "src" / "foretell" / "comm" / "constants.json"
# Links whose switch reduces on its way; those without it stand in a mesh.
_SWITCHED = ("nvlink4", "nvlink5")
_MESHED = ("nvlink2",)
_CARDS = ("a100-80gb-pcie", "h100-nvl")
_EVERY = 3
_RANGES = (
    ("to 64 KiB", 0, 2**16),
    ("to 1 MiB", 2**16, 2**20),
    ("to 16 MiB", 2**20, 2**24),
    ("over 16 MiB", 2**24, np.inf),
)

# Fitted and judged, but a forecast should not promise anybody that host.
_NOT_SHIPPED = {
    "pcie4/l40s": "one host without peer access; MLPerf runs on L40S are several times faster"
}


def link_of(row: Row) -> str:
    """The link a row tells of."""
    node = row.group.node_group
    if row.group.nodes > 1:
        return node.network_link.kind
    if row.group.per_node > 2 and node.gpu_link.id.endswith("-bridge"):
        return node.device.host_link
    return node.gpu_link.id


def key_of(row: Row) -> str:
    """The constants a row is for: of cards, the machine decides more than the link."""
    link = link_of(row)
    return f"{link}/{row.system}" if link.startswith("pcie") or row.system in _CARDS else link


def _tells_of_kind(row: Row) -> bool:
    """Whether a row tells of its kind of link rather than of one machine.

    Four and eight L40S reach 5 and 1 of 31 GB/s, as if that host had no peer access. What a switch
    reduces tells nothing of rings, and a mesh nothing of crossbars.
    """
    no_peers = row.system == "l40s" and row.group.size > 2
    reduced = row.in_switch and row.kind is Collective.ALL_REDUCE and row.group.size > 4
    link = link_of(row)
    return not (no_peers or (reduced and link in _SWITCHED) or link in _MESHED)


def fit_all(chosen: Iterable[Row], wanted: Collection[str] | None = None) -> Constants:
    """Constants of every link there are rows of, of their kinds, and what is stated.

    `wanted` names the links that matter; others are not fitted.
    """
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in chosen:
        by_key[key_of(row)].append(row)
    links: dict[str, LinkConstants] = {}
    for kind in ("nvlink", "pcie"):
        known = [r for key, held in by_key.items() if key.startswith(kind) for r in held]
        told = [row for row in known if _tells_of_kind(row)][::_EVERY]
        links[kind] = {**prior(), **fit(told, kind, prior(), level=True)}
    links["default"] = links["nvlink"]
    links |= stated(links["default"])
    for key, held in sorted(by_key.items()):
        if wanted is None or key.split("/")[0] in wanted:
            start = next(links[k] for k in (key, key[:4], key[:6]) if k in links)
            own = fit(held, key, start, with_switch=key in _SWITCHED)
            links[key] = {**links.get(key, {}), **own}
    _share_switch(links)
    links |= {key: links[like] for key, like in SAME_AS.items() if like in links}
    return Constants(links=links)


def _share_switch(links: dict[str, LinkConstants]) -> None:
    """A switched link nobody measured does as the other one."""
    known = [links[key]["switch"] for key in _SWITCHED if "switch" in links.get(key, {})]
    for key in _SWITCHED:
        if key not in links and known:
            links[key] = {"switch": known[0]}


def without(chosen: Sequence[Row], name: Callable[[Row], str]) -> np.ndarray:
    """measured / predicted for every row, by constants that never saw rows of its name."""
    result = np.zeros(len(chosen))
    for left_out in sorted({name(row) for row in chosen}):
        away = [i for i, row in enumerate(chosen) if name(row) == left_out]
        wanted = {link_of(chosen[i]) for i in away}
        if wanted & set(_SWITCHED):
            wanted |= set(_SWITCHED)
        constants = fit_all((row for row in chosen if name(row) != left_out), wanted)
        result[away] = ratios([chosen[i] for i in away], constants)
    return result


def main() -> None:
    """Fit, judge, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the shipped constants")
    options = parser.parse_args()
    chosen = rows()
    constants = fit_all(chosen)
    judged = {
        "in sample": ratios(chosen, constants),
        "system left out": without(chosen, lambda row: row.system),
        "link left out": without(chosen, link_of),
    }
    for title, name in (
        ("system", lambda row: row.system),
        ("system and collective", lambda row: f"{row.system} {row.kind.value}"),
        ("size", _range_of),
        ("system and size", lambda row: f"{row.system} {_range_of(row)}"),
    ):
        for how, found in judged.items():
            _print_table(f"{how}, by {title}", chosen, found, name)
    _write_ledger(chosen, judged)
    if options.write:
        links = {k: v for k, v in constants.links.items() if k not in _NOT_SHIPPED}
        shipped = Constants(links=links, provenance=_provenance(chosen))
        _OUT.write_text(shipped.to_json() + "\n", encoding="utf-8")
        print(f"wrote {_OUT.relative_to(ROOT)}")


def _range_of(row: Row) -> str:
    return next(name for name, low, high in _RANGES if low < row.nbytes <= high)


def _print_table(
    title: str, chosen: Sequence[Row], found: np.ndarray, name: Callable[[Row], str]
) -> None:
    print(f"\n{title:34} {'rows':>6} {'mean':>8} {'median':>8} {'p90':>8} {'max':>9}")
    at: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(chosen):
        at[name(row)].append(i)
    for key, own in [*sorted(at.items()), ("all", list(range(len(chosen))))]:
        e = errors(found[own])
        print(
            f"{key:34} {len(own):6d} {e['mean']:7.1f}% {e['median']:7.1f}% {e['p90']:7.1f}% "
            f"{e['max']:8.1f}%",
            flush=True,
        )


def _provenance(chosen: Sequence[Row]) -> dict[str, object]:
    return {
        "fitted": datetime.date.today().isoformat(),
        "sources": "AIConfigurator (Apache-2.0), Vidur (MIT), vTrain (MIT)",
        "rows": dict(sorted(Counter(key_of(row) for row in chosen).items())),
        "pooled": ["nvlink", "pcie", "default"],
        "copied": dict(SAME_AS),
        "stated": sorted(stated(prior())),
        "left_out": dict(_NOT_SHIPPED),
    }


def _write_ledger(chosen: Sequence[Row], judged: dict[str, np.ndarray]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "collectives.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        names = [f"measured_over_predicted_{how.replace(' ', '_')}" for how in judged]
        writer.writerow(
            ["source", "system", "link", "collective", "ranks", "nbytes", "measured_us", *names]
        )
        for i, row in enumerate(chosen):
            numbers = [f"{found[i]:.3f}" for found in judged.values()]
            what = [row.source, row.system, link_of(row), row.kind.value, row.group.size]
            writer.writerow([*what, round(row.nbytes), f"{1e6 * row.measured_s:.5g}", *numbers])
    print(f"\nwrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
