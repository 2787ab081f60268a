"""A comparison of policies as one HTML page that needs nothing else."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from foretell._version import __version__
from foretell.schedule.plots import distribution, gantt, over_time
from foretell.schedule.sweep import Plan, Result, summary
from foretell.units import format_duration

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #2e2e2e; max-width: 1080px; margin: 2.5rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
p.about { color: #7d7d7d; margin-top: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .3rem .7rem; border-bottom: 1px solid #e6e6e6; }
th { color: #7d7d7d; font-weight: 500; } th:first-child, td:first-child { text-align: left; }
tr.best td { font-weight: 600; } svg { max-width: 100%; height: auto; }
div.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
@media (max-width: 700px) { div.pair { grid-template-columns: 1fr; } }
"""
COLUMNS: Mapping[str, tuple[str, str]] = {
    "mean_jct_s": ("mean JCT", "time"),
    "p90_jct_s": ("p90", "time"),
    "p99_jct_s": ("p99", "time"),
    "mean_wait_s": ("mean wait", "time"),
    "mean_slowdown": ("slowdown", "number"),
    "makespan_s": ("makespan", "time"),
    "utilisation": ("utilisation", "share"),
    "fragmentation": ("fragmented", "share"),
    "fairness": ("fairness", "number"),
    "restarts": ("restarts", "count"),
}
"""Of the comparison: what each is called, and how it is written."""


def shown(value: float | None, kind: str) -> str:
    """A measure as people read it."""
    if value is None:
        return ""
    if kind == "time":
        return format_duration(value)
    if kind == "share":
        return f"{value:.1%}"
    return f"{value:,.0f}" if kind == "count" else f"{value:.3g}"


def report(plan: Plan, results: Sequence[Result]) -> str:
    """Tables of all runs; pictures of the first seed at every load."""
    devices = sum(spec.devices for spec in plan.setup.pools)
    parts = [
        f"<h1>{html.escape(plan.source.text)}</h1>",
        f'<p class="about">{devices} devices · {len(plan.policies)} policies · '
        f"{plan.seeds} seed{'s' if plan.seeds > 1 else ''} · placement "
        f"{html.escape(plan.setup.placement)} · lengths {html.escape(plan.setup.lengths)} · "
        f"foretell {__version__}</p>",
    ]
    rows = summary(results)
    for load in plan.loads:
        mine = [r for r in results if r.run.load == load and r.run.seed == 0]
        parts += _load(plan, load, [r for r in rows if r["load"] == load], mine)
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>Foretell: {html.escape(plan.source.text)}</title>\n<style>{_STYLE}</style>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _load(
    plan: Plan, load: float, rows: Sequence[Mapping[str, Any]], results: Sequence[Result]
) -> list[str]:
    trace, _ = plan.trace(load, 0)
    devices = sum(spec.devices for spec in plan.setup.pools)
    best = min(results, key=lambda r: r.played.measures["mean_jct_s"] or 0.0)
    heading = f"Load x {load:g}" if len(plan.loads) > 1 else "Policies"
    return [
        f"<h2>{heading}: {len(trace):,} jobs</h2>",
        _table(rows),
        '<h2>How long jobs take, and how long they wait</h2><div class="pair">',
        distribution(results, "jct_s", "from arrival to end"),
        distribution(results, "wait_s", "without devices"),
        "</div><h2>The cluster over time</h2>",
        over_time(trace, results, devices),
        over_time(trace, results, devices, waiting=True),
        f"<h2>Who runs where under {html.escape(best.run.policy)}</h2>",
        gantt(best, plan.setup.pools),
        "<h2>By the devices that jobs need, mean JCT</h2>",
        _classes(results),
    ]


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    least = min(row["mean_jct_s"] for row in rows)
    head = "".join(f"<th>{name}</th>" for name, _ in COLUMNS.values())
    lines = [f"<table><tr><th>policy</th>{head}</tr>"]
    for row in rows:
        cells = "".join(f"<td>{shown(row[key], kind)}</td>" for key, (_, kind) in COLUMNS.items())
        best = ' class="best"' if row["mean_jct_s"] == least else ""
        lines.append(f"<tr{best}><td>{html.escape(row['policy'])}</td>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def _classes(results: Sequence[Result]) -> str:
    classes = results[0].tables["by_devices"]
    head = "".join(f"<th>{c['devices']} ({c['jobs']:,} jobs)</th>" for c in classes)
    lines = [f"<table><tr><th>policy</th>{head}</tr>"]
    for result in results:
        cells = "".join(
            f"<td>{format_duration(c['mean_jct_s'])}</td>" for c in result.tables["by_devices"]
        )
        lines.append(f"<tr><td>{html.escape(result.run.policy)}</td>{cells}</tr>")
    return "\n".join([*lines, "</table>"])
