"""Megatron-LM's own regression runs: iteration time and peak allocated memory, many commits.

Read from a table with one row per version of a golden_values file in upstream's history, with the
arguments of its test case at that commit, and a JSON file with the newest arguments of every test
case. Rows of a second table, of the newest files alone, are all rejected: its arguments may be
later than its figures.

One record per test case, platform, environment and configuration: medians over the commits that
share it, at the origin of the last of them in the table; the others count as merged. What cannot be
described, and why, is `megatron_arguments`' to say; such rows are rejected, and so are those
without time or memory and those whose numbers were copied from another platform.

- The logged memory is that of the last rank, so of the last pipeline stage.
- Without a stated platform the runs are on A100: tests were named after it until May 2025, and
  the long-term-support image ran nowhere else.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from foretell.data.importers.megatron_arguments import (
    Arguments,
    arguments,
    options_of,
    plain_name,
    undescribed,
)
from foretell.data.importers.rows import (
    BadRowError,
    Row,
    csv_table,
    grouped,
    json_object,
    merged,
    rejected,
)
from foretell.data.importers.source import Rows, Source, find
from foretell.data.importers.steps import step_record
from foretell.data.record import Record, Reject

_HISTORY, _SUMMARY = "golden_values_history.csv", "golden_values_summary.csv"
_NEWEST = "model_args_by_test_case.json"
_MODELS = ("gpt", "moe", "mixtral", "bert")
_TIME, _MEMORY = "iter_time_median_s", "mem_max_allocated_bytes"
_FIGURES = (_TIME, "iter_time_p10", "iter_time_p90", _MEMORY)
MEASURED = (
    *("commit", "date", "n_iter", *_FIGURES, "mem_allocated_bytes_last"),
    *("config_sha", "train-iters"),
)
"""Columns that are no part of a configuration."""
_TO_COMPARE = ("test_case", "platform", "env", "date")
"""Columns by which rows are compared before any is described."""

Configuration = tuple[tuple[str, str], ...]


def read(folder: Path) -> Rows:
    """Rows that stand alone as unusable, then one configuration after the other."""
    newest, unread = _newest(folder)
    yield from unread
    table = list(csv_table(folder, _HISTORY))
    found, rejects = grouped(table, _configuration)
    yield from rejects
    away = {reject.origin for reject in rejects}
    copies = _copies([row for row in table if row.origin not in away])
    for rows in found.values():
        usable = []
        for row in rows:
            reason = _unusable(row, copies)
            if reason:
                yield Reject(row.origin, reason)
            else:
                usable.append(row)
        if usable:
            yield from merged(usable, _record, None if unread else newest)
    later = "arguments that may be later than the figures"
    yield from rejected(csv_table(folder, _SUMMARY), later)


def _newest(folder: Path) -> tuple[dict[str, Arguments], list[Reject]]:
    """The newest arguments of test cases, by their plain names, and files without."""
    found: dict[str, Arguments] = {}
    unread = []
    for path in find(folder, _NEWEST):
        cases = json_object(folder, path)
        if isinstance(cases, Reject):
            unread.append(cases)
            continue
        for name, args in cases.items():
            if isinstance(args, dict):
                found[plain_name(name)] = {k.removeprefix("--"): v for k, v in args.items()}
    return found, unread


def _configuration(row: Row) -> Configuration:
    if row.text("model") not in _MODELS:
        raise BadRowError("neither GPT, nor a mixture of experts, nor BERT")
    for name in _TO_COMPARE:
        row.text(name)
    for name in (*_FIGURES, "mem_allocated_bytes_last"):
        if row.text(name):
            row.positive(name)
    return tuple((k, v) for k, v in row.cells.items() if k not in MEASURED)


def _unusable(row: Row, copies: set[str]) -> str:
    if not row.text(_TIME) or not row.text(_MEMORY):
        return "no time or no memory"
    return "copied from another platform" if row.origin in copies else ""


def _record(rows: list[Row], newest: Mapping[str, Arguments] | None) -> Record:
    """Of rows with one configuration."""
    row = rows[-1]
    if newest is None:
        raise BadRowError("the file of its arguments cannot be read")
    device = _device(row)
    if device is None:
        raise BadRowError("platform not stated")
    if not row.text("num-layers") or not row.text("hidden-size"):
        raise BadRowError("configuration not stated")
    own = {k: v for k, v in row.cells.items() if k not in MEASURED}
    args = arguments(row.text("test_case"), own, newest)
    reason = undescribed(row, args, device)
    if reason:
        raise BadRowError(reason)
    options = options_of(row, args, device)
    between = [float(r.text("mem_allocated_bytes_last") or "nan") for r in rows]
    between = [b for b in between if b == b]
    return step_record(
        options,
        group=" ".join(f"{k}={v}" for k, v in options.items() if k != "cluster"),
        time_s=statistics.median(r.positive(_TIME) for r in rows),
        samples=len(rows),
        allocated_bytes=statistics.median(r.positive(_MEMORY) for r in rows),
        metrics={"allocated_between_steps_bytes": statistics.median(between)} if between else {},
        environment={
            "model": row.text("model"),
            "test_case": row.text("test_case"),
            "platform": row.text("platform"),
            "environment": row.text("env"),
            "transformer_engine": row.text("transformer-impl") != "local",
            "deterministic": bool(row.text("deterministic-mode")),
            "grouped_products": bool(args.get("moe-grouped-gemm")),
        },
        source=SOURCE.name,
        origin=row.origin,
    )


def _device(row: Row) -> str | None:
    platform = row.text("platform").lower()
    if "gb200" in platform:
        return "gb200"
    if "h100" in platform:
        return "h100-sxm"
    if "a100" in platform:
        return "a100-80gb"
    old = row.text("env") == "lts" or row.text("date") < "2025-05"
    named = "dgx_a100" in row.text("test_case") or old
    return "a100-80gb" if not platform and named else None


def _copies(rows: list[Row]) -> set[str]:
    """Origins of rows whose numbers are an earlier row's from another device."""
    first: dict[tuple[str, ...], str | None] = {}
    found = set()
    for row in sorted(rows, key=lambda r: r.text("date")):
        numbers = tuple(row.text(name) for name in _FIGURES)
        if not all(numbers):
            continue
        device = _device(row)
        foreign = "gb200" in row.text("test_case") and device != "gb200"
        if foreign or first.setdefault(numbers, device) not in (device, None):
            found.add(row.origin)
    return found


SOURCE = Source(
    name="megatron_golden",
    repository="https://github.com/NVIDIA/Megatron-LM",
    commit="d98e8a64ddf34856e74b24714e3bedb2f5a39553",
    licence="BSD-3-Clause",
    use="fit",
    files=(_HISTORY, _SUMMARY, _NEWEST),
    read=read,
)
