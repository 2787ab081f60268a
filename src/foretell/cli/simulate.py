"""foretell simulate: play a log of jobs on a cluster under several policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from foretell.cli.usage import need_extra, whole_number
from foretell.errors import InputError

if TYPE_CHECKING:
    from foretell.schedule.readers import Left
    from foretell.schedule.sweep import Plan, Result

_JOBS, _SITE, _PLAY, _OUTPUT = "Jobs", "Site", "Comparison", "Output"
_SHOWN_LEFT = 3
_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0}


def simulate(
    trace: Annotated[
        str,
        typer.Argument(
            help="A log of jobs, or generated:jobs=10000,load=0.9,users=50,mean_s=3600,largest=64."
        ),
    ],
    cluster: Annotated[
        str, typer.Option(help="Servers and devices, such as 16x8xv100, or a TOML file.")
    ],
    policy: Annotated[
        str, typer.Option(help="Policies, with commas; NAME-oracle is told how long jobs are.")
    ] = "a-srpt,fifo,srtf",
    log_format: Annotated[
        Optional[str],
        typer.Option(
            "--format",
            help="Of the log, if it is not recognised: csv, cases, philly, swf, sacct, "
            "alibaba-2020, alibaba-2023, helios, acme, gavel, pollux.",
            rich_help_panel=_JOBS,
        ),
    ] = None,
    time_unit: Annotated[
        str,
        typer.Option(help="Of numbers that are times: s, min or h.", rich_help_panel=_JOBS),
    ] = "s",
    jobs: Annotated[
        Optional[int],
        typer.Option(
            parser=whole_number, help="Use so many jobs only, the first.", rich_help_panel=_JOBS
        ),
    ] = None,
    traffic: Annotated[
        str,
        typer.Option(
            help="What devices of a job tell each other: none (it does not matter where they are) "
            "or typical (a mixture of well-known networks).",
            rich_help_panel=_JOBS,
        ),
    ] = "none",
    load: Annotated[
        str,
        typer.Option(
            help="How many times as fast jobs arrive; several with commas.", rich_help_panel=_JOBS
        ),
    ] = "1",
    placement: Annotated[
        str,
        typer.Option(
            help="Where jobs go: heavy-edge, consolidated, best-fit, spread, random, exact.",
            rich_help_panel=_SITE,
        ),
    ] = "heavy-edge",
    lengths: Annotated[
        str,
        typer.Option(
            help="Who says how long jobs will be: forest, boosted, last-two, mean, stated or "
            "oracle.",
            rich_help_panel=_SITE,
        ),
    ] = "forest",
    restart: Annotated[
        float,
        typer.Option(help="Seconds that a stopped job loses to go on.", rich_help_panel=_SITE),
    ] = 60.0,
    drop_larger: Annotated[
        bool,
        typer.Option(
            "--drop-larger",
            help="Leave out jobs that need more devices than the largest pool has.",
            rich_help_panel=_JOBS,
        ),
    ] = False,
    contention: Annotated[
        bool,
        typer.Option(
            "--contention",
            help="Jobs that span servers slow each other down at the ports.",
            rich_help_panel=_SITE,
        ),
    ] = False,
    failure: Annotated[
        Optional[list[str]],
        typer.Option(
            help="SERVER:FROM:TO, a server that is away between two times in seconds; may be given "
            "again.",
            rich_help_panel=_SITE,
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            help="Play everything so often, with other seeds.",
            rich_help_panel=_PLAY,
        ),
    ] = 1,
    workers: Annotated[
        Optional[int],
        typer.Option(
            parser=whole_number, help="Processes; one per core unless given.", rich_help_panel=_PLAY
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where to play: processes or ray.", rich_help_panel=_PLAY)
    ] = "processes",
    html: Annotated[
        Optional[Path],
        typer.Option(help="Write a report with plots, one page.", rich_help_panel=_OUTPUT),
    ] = None,
    schedule: Annotated[
        Optional[Path],
        typer.Option(help="Write who ran where and when, as Parquet.", rich_help_panel=_OUTPUT),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Play a log of jobs on a cluster under several policies and compare them.

    Logs of Philly, Helios, Acme, Alibaba, Slurm (sacct), the Standard Workload Format, Gavel,
    Pollux and any CSV whose header names submission, duration and GPUs are recognised. So are
    JSON lines with a case of 'foretell predict' each, which are forecast for the cluster.

    [bold]foretell simulate jobs.csv --cluster 16x8xv100 --policy a-srpt,fifo,easy[/bold]

    [bold]foretell simulate generated:jobs=5000,load=0.9 --cluster 8x8xa100 --html out.html[/bold]
    """
    import json

    from foretell._version import __version__
    from foretell.api import cluster_of
    from foretell.cli.show import print_line, shared_progress
    from foretell.data.export import check_place, whole_file
    from foretell.schedule.play import Setup
    from foretell.schedule.pool import pools_of
    from foretell.schedule.simulator import Rules
    from foretell.schedule.sweep import Plan, Source, summary, sweep

    if time_unit not in _UNITS_S:
        raise InputError(f"--time-unit {time_unit!r} is not known: use {', '.join(_UNITS_S)}")
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs} leaves nothing to play: use 1 or more")
    for place, option, end in ((html, "--html", ".html"), (schedule, "--schedule", ".parquet")):
        if place is not None:
            check_place(place, option)
            if place.suffix != end:
                raise InputError(f"{option} {str(place)!r} must end in {end}")
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers} leaves nobody to do it: use 1 or more")
    if html is not None:
        need_extra("matplotlib", "--html", "plot")
    names = tuple(name.strip() for name in policy.split(",") if name.strip())
    if lengths in ("forest", "boosted"):
        need_extra("sklearn", f"--lengths {lengths}", "schedule")
    plan = Plan(
        source=Source(
            text=trace,
            log_format=log_format,
            unit_s=_UNITS_S[time_unit],
            most=jobs,
            drop_larger=drop_larger,
        ),
        setup=Setup(
            pools=pools_of(cluster_of(cluster)),
            placement=placement,
            lengths=lengths,
            rules=Rules(
                restart_s=restart,
                contention=contention,
                outages=tuple(_outage(text) for text in failure or ()),
            ),
        ),
        policies=names,
        loads=tuple(_load(text) for text in load.split(",")),
        seeds=seeds,
        traffic=traffic,
    )
    with shared_progress() as tell:
        plan.forecast(lambda share: tell("forecasting", share))
        played_trace, left = plan.trace(plan.loads[0], 0)
        if contention and played_trace.is_silent:
            raise InputError("--contention needs jobs that say something: add --traffic typical")
        results = list(
            sweep(plan, workers=workers, engine=engine, tell=lambda share: tell("playing", share))
        )
    if schedule is not None:
        from foretell.schedule.export import write_schedule

        write_schedule(plan, results, schedule)
    if html is not None:
        from foretell.schedule.report import report

        with whole_file(html, binary=False) as stream:
            stream.write(report(plan, results))
    if json_output:
        print_line(
            json.dumps(
                {
                    "policies": summary(results),
                    "jobs": len(played_trace),
                    "gpus": sum(spec.devices for spec in plan.setup.pools),
                    "left_out": [
                        {"line": each.line, "reason": each.reason, "malformed": each.malformed}
                        for each in left
                    ],
                    "version": __version__,
                }
            )
        )
    else:
        _show(plan, results, left)


def _show(plan: Plan, results: Sequence[Result], left: Sequence[Left]) -> None:
    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.schedule.report import COLUMNS, shown
    from foretell.schedule.sweep import summary

    rows = summary(results)
    several = len(plan.loads) > 1
    names = [name for name, _ in COLUMNS.values()]
    table = plain_table("policy", *(("load",) if several else ()), *names)
    for row in rows:
        cells = [shown(row[key], kind) for key, (_, kind) in COLUMNS.items()]
        table.add_row(row["policy"], *((f"{row['load']:g}",) if several else ()), *cells)
    trace, _ = plan.trace(plan.loads[0], 0)
    devices = sum(spec.devices for spec in plan.setup.pools)
    offered = rows[0]["offered_load"]
    busy = "" if offered is None else f", {offered:.0%} of what they can do arrives"
    print_line(f"{len(trace):,} jobs on {devices:,} devices{busy}")
    print_table(table)
    _show_left(left)


def _show_left(left: Sequence[Left]) -> None:
    from foretell.cli.show import print_line

    for malformed, what in ((True, "malformed"), (False, "not jobs to schedule")):
        mine = [each for each in left if each.malformed == malformed]
        if mine:
            some = "; ".join(f"line {each.line}: {each.reason}" for each in mine[:_SHOWN_LEFT])
            more = f"; and {len(mine) - _SHOWN_LEFT:,} more" if len(mine) > _SHOWN_LEFT else ""
            print_line(f"left out, {what}: {some}{more}")


def _load(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--load {text!r} is not a number: use 1.2, or 0.8,1,1.2") from None


def _outage(text: str) -> Any:
    from foretell.schedule.simulator import Outage

    parts = text.split(":")
    try:
        server, start_s, end_s = int(parts[0]), float(parts[1]), float(parts[2])
    except (ValueError, IndexError):
        server, start_s, end_s = -1, 0.0, 0.0
    if len(parts) != 3 or server < 0 or not 0 <= start_s < end_s:
        raise InputError(
            f"--failure {text!r} is not SERVER:FROM:TO with a server from 0 and two times in "
            "seconds, the first before the second"
        )
    return Outage(server, start_s, end_s)
