"""foretell measure: real runs of workloads on this machine, kept in the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from foretell.cli.usage import a_number, numbers, whole_number
from foretell.errors import CannotError, InputError

if TYPE_CHECKING:
    from foretell.data import Record
    from foretell.data.store import Store
    from foretell.measure.details import Details
    from foretell.measure.runner import Job, Plan, Report
    from foretell.measure.task import Task
    from foretell.measure.world import World

_WHAT = "What to run"
_WHERE = "Where"
_HOW = "How well"
_OUTPUT = "Output"
_LONGEST_S = 3600
_BUSY_LOAD = 0.5
_NOT_SET = {
    "model": "name models as arguments",
    "batch": "use --batch",
    "cluster": "it runs on this machine, see --nproc and --hosts",
    "predictor": "nothing is predicted here",
}


def measure(
    models: Annotated[
        Optional[list[str]],
        typer.Argument(help="Models as 'predict' takes them, op:linear,in=..,out=.. among them."),
    ] = None,
    batch: Annotated[
        Optional[str], typer.Option(help="Batches, with commas: 8,16,32.", rich_help_panel=_WHAT)
    ] = None,
    option: Annotated[
        Optional[list[str]],
        typer.Option(
            "--set",
            help="Any other option of 'predict': --set precision=amp-bf16 --set zero=3.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    cases: Annotated[
        Optional[Path],
        typer.Option(
            help="A file of cases, one JSON object a line.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    ops: Annotated[
        bool,
        typer.Option("--ops", help="Single operators over many sizes.", rich_help_panel=_WHAT),
    ] = False,
    collectives: Annotated[
        bool,
        typer.Option("--collectives", help="Collectives over many sizes.", rich_help_panel=_WHAT),
    ] = False,
    nproc: Annotated[
        str, typer.Option(help="Processes on each host, with commas: 1,2.", rich_help_panel=_WHERE)
    ] = "1",
    hosts: Annotated[
        Optional[list[str]],
        typer.Option(
            help="1 for this machine, 2@1gbit for two network namespaces on it (needs root), or "
            "machines to join this one by ssh (or $FORETELL_SSH); may be given again.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            help="Threads of each process; 0 deals the cores out.",
            rich_help_panel=_WHERE,
        ),
    ] = 0,
    engine: Annotated[
        str,
        typer.Option(
            help="local, ray, ray://ADDRESS or slurm: where the runs are carried out.",
            rich_help_panel=_WHERE,
        ),
    ] = "local",
    needs: Annotated[
        str,
        typer.Option(
            help="What a machine of ray or slurm must have: accelerator_type:A100, a constraint.",
            rich_help_panel=_WHERE,
        ),
    ] = "",
    rounds: Annotated[
        int,
        typer.Option(
            parser=whole_number, help="Times each workload is taken up.", rich_help_panel=_HOW
        ),
    ] = 2,
    seconds: Annotated[
        float,
        typer.Option(parser=a_number, help="Sampling time per round.", rich_help_panel=_HOW),
    ] = 4.0,
    budget: Annotated[
        Optional[str],
        typer.Option(help="Begin nothing new after this time: 20m, 2h.", rich_help_panel=_HOW),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(help="Sample usage of processor, memory, network.", rich_help_panel=_HOW),
    ] = True,
    plots: Annotated[
        Optional[Path],
        typer.Option(
            help="Folder for a picture of each workload's usage over time.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    profile: Annotated[
        Optional[Path],
        typer.Option(
            help="Folder for a table of each workload's operators and their times.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Leave out what the store has already.", rich_help_panel=_HOW
        ),
    ] = False,
    store: Annotated[
        Optional[Path],
        typer.Option(help="Directory that keeps measurements.", rich_help_panel=_OUTPUT),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Run workloads for real and keep what they took.

    Every workload is warmed up, sampled until its step time is known well, and taken up again in
    later rounds, so that a busy moment of the machine does not spoil it. A run that crashes or runs
    out of memory is a result too.

    [bold]foretell measure timm:resnet18 --batch 8,16 --nproc 1,2[/bold]
    """
    from foretell.cli.show import print_line
    from foretell.data.store import Store, default_store
    from foretell.measure.jobs import not_yet_measured
    from foretell.measure.runner import Plan
    from foretell.units import parse_duration

    where = Store(store) if store else default_store()
    task = _task(seconds, probe, profile is not None)
    details = _details(plots, profile, probe, engine)
    chosen = _worlds(nproc, hosts or ["1"], threads)
    jobs = _jobs(
        models or [],
        numbers("batch", batch) if batch else [],
        _settings(option or []),
        chosen,
        task,
    )
    jobs += _tables(cases, ops, collectives, chosen, task)
    if not jobs:
        raise InputError(
            "nothing to measure: name a model, or give --cases, --ops or --collectives"
        )
    if resume:
        wanted = len(jobs)
        jobs = not_yet_measured(jobs, where.records(source="foretell"))
        if not jobs:
            print_line(f"all {wanted} are in {where.directory} already")
            return
    budget_s = parse_duration(budget) if budget else None
    if needs and engine == "local":
        raise InputError(
            f"needs={needs!r} chooses among machines: give --engine ray or slurm as well"
        )
    where.check_writable()
    plan = Plan(rounds=rounds, budget_s=budget_s, needs=needs)
    report = _run(jobs, where, plan, engine, details)
    _show(report, where.directory, json_output)


def _task(seconds: float, probe: bool, profile: bool) -> Task:
    from foretell.measure.task import Task

    if not 0 < seconds <= _LONGEST_S:
        raise InputError(f"seconds={seconds:g} must be more than 0 and at most {_LONGEST_S}")
    return Task(options={}, seconds=seconds, probe=probe, profile=profile)


def _details(plots: Path | None, profile: Path | None, probe: bool, engine: str) -> Details:
    from foretell.measure.details import Details

    if engine != "local" and (plots or profile):
        raise InputError(f"--plots and --profile stay on one machine: leave out --engine {engine}")
    if plots and not probe:
        raise InputError("--plots shows what --no-probe leaves out: give one of them")
    return Details(plots, profile)


def _worlds(nproc: str, hosts: list[str], threads: int) -> list[World]:
    from foretell.measure.jobs import worlds

    return worlds(numbers("nproc", nproc), hosts, threads)


def _jobs(
    models: list[str],
    batches: list[int],
    settings: dict[str, Any],
    chosen: list[World],
    task: Task,
) -> list[Job]:
    from foretell.cli.show import progress
    from foretell.measure.jobs import check_models, workload_jobs

    if not models and (batches or settings):
        raise InputError("--batch and --set belong to models: name one, such as timm:resnet18")
    jobs = workload_jobs(models, batches or [None], chosen, settings, task)
    with progress("looking at the models"):
        check_models(jobs)
    return jobs


def _tables(
    cases: Path | None, ops: bool, collectives: bool, chosen: list[World], task: Task
) -> list[Job]:
    from foretell.cli.show import progress
    from foretell.measure.jobs import case_jobs, collective_jobs, operator_jobs

    found = case_jobs(cases, chosen, task) if cases is not None else []
    if ops:
        with progress("choosing operators this machine can run"):
            found += operator_jobs(chosen, task)
    return found + (collective_jobs(chosen, task) if collectives else [])


def _settings(pairs: list[str]) -> dict[str, Any]:
    """name=value as case files have them: numbers and true or false are such, the rest is text."""
    import json

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InputError(f"--set {pair!r} is not understood: write --set option=value")
        if name in _NOT_SET:
            raise InputError(f"--set {name} is not taken: {_NOT_SET[name]}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _run(jobs: list[Job], store: Store, plan: Plan, engine: str, details: Details) -> Report:
    from foretell.cli.show import counted_progress
    from foretell.measure.engines import run_on

    with counted_progress("measuring") as advance:
        try:
            return run_on(
                engine, jobs, store, plan, lambda done, total, _: advance(done, total), details
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "what was measured is kept; go on with the same command and --resume"
            ) from None


def _show(report: Report, directory: Path, json_output: bool) -> None:
    import dataclasses
    import json

    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.units import format_bytes, format_duration

    if json_output:
        rows = [dataclasses.asdict(r) for r in report.records]
        print_line(json.dumps({"records": rows, "left": report.left}, default=list))
        return
    table = plain_table(
        "workload", ">batch", "cluster", ">step time", "95 % interval", ">memory", ""
    )
    for r in report.records:
        interval = (
            f"{format_duration(r.time_low_s)} – {format_duration(r.time_high_s)}"
            if r.time_low_s is not None and r.time_high_s is not None
            else ""
        )
        table.add_row(
            _named(r),
            str(r.batch or ""),
            r.cluster,
            format_duration(r.time_s) if r.time_s is not None else "",
            interval,
            format_bytes(r.resident_bytes) if r.resident_bytes else "",
            "" if r.ok else f"{r.outcome}: {r.reason}",
        )
    print_table(table)
    good = sum(r.ok for r in report.records)
    left = f", {report.left} left for lack of time" if report.left else ""
    bad = len(report.records) - good
    without = f", {bad} without a time" if bad else ""
    print_line(f"{good} measured{without}{left}, in {directory}")
    load = max((r.environment.get("load_1m", 0.0) for r in report.records), default=0.0)
    if load > _BUSY_LOAD:
        print_line(
            f"note: the machine was busy (load {load:.1f}) before this began: times may be long"
        )
    if report.records and not good:
        refused = all(r.outcome == "refused" for r in report.records)
        kind = InputError if refused else CannotError
        raise kind("no workload could be measured: the table says why")


def _named(record: Record) -> str:
    size = record.options.get("nbytes")
    return f"{record.model} {size} B" if size else record.model
