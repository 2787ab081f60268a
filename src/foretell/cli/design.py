"""foretell design: which cases to measure next within a budget of machine time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from foretell.cli.usage import a_number, numbers, whole_number
from foretell.errors import InputError

if TYPE_CHECKING:
    from foretell.api import Case
    from foretell.design import Plan
    from foretell.design.known import Run

_CANDIDATES = "What to choose from"
_CHOICE = "How to choose"
_OUTPUT = "Output"
_SHOWN = 20


def design(
    budget: Annotated[
        str, typer.Option(help="Machine time to spend, such as 20m, 90s or 2h: all processes.")
    ],
    cluster: Annotated[
        str,
        typer.Option("--cluster", "--device", help="Where: a device such as a100-80gb, or local."),
    ] = "local",
    candidates: Annotated[
        Optional[Path],
        typer.Option(help="A file of cases, one JSON object a line.", rich_help_panel=_CANDIDATES),
    ] = None,
    ops: Annotated[
        bool,
        typer.Option(
            "--ops", help="Single operators over a grid of sizes.", rich_help_panel=_CANDIDATES
        ),
    ] = False,
    models: Annotated[
        Optional[str],
        typer.Option(help="Model references, comma-separated.", rich_help_panel=_CANDIDATES),
    ] = None,
    batch: Annotated[
        str,
        typer.Option(help="Batches of --models, comma-separated.", rich_help_panel=_CANDIDATES),
    ] = "8,32",
    nproc: Annotated[
        str,
        typer.Option(
            help="Numbers of processes of --models, comma-separated.", rich_help_panel=_CANDIDATES
        ),
    ] = "1",
    mode: Annotated[
        str, typer.Option(help="train or infer.", rich_help_panel=_CANDIDATES)
    ] = "train",
    precision: Annotated[
        str, typer.Option(help="As of foretell predict.", rich_help_panel=_CANDIDATES)
    ] = "fp32",
    method: Annotated[
        str,
        typer.Option(
            help="v-optimal, d-optimal, a-optimal, latin-hypercube or random.",
            rich_help_panel=_CHOICE,
        ),
    ] = "v-optimal",
    seed: Annotated[
        int,
        typer.Option(parser=whole_number, help="For what chance decides.", rich_help_panel=_CHOICE),
    ] = 0,
    repeats: Annotated[
        int,
        typer.Option(
            parser=whole_number, help="Most measurements of one case.", rich_help_panel=_CHOICE
        ),
    ] = 1,
    seconds: Annotated[
        float,
        typer.Option(
            parser=a_number, help="Sampling of each case and round.", rich_help_panel=_CHOICE
        ),
    ] = 4.0,
    rounds: Annotated[
        int,
        typer.Option(
            parser=whole_number, help="How often each case is taken up.", rich_help_panel=_CHOICE
        ),
    ] = 2,
    store: Annotated[
        Optional[Path],
        typer.Option(
            help="Measurements in this directory are known already.", rich_help_panel=_CHOICE
        ),
    ] = None,
    out: Annotated[
        Optional[Path],
        typer.Option(help="Write the chosen cases, one a line.", rich_help_panel=_OUTPUT),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Choose what to measure next: the cases that tell most about a machine for their cost.

    [bold]foretell design --budget 20m --device t4 --ops --models timm:resnet18 --batch 8,64[/bold]
    """
    import json

    from foretell.api import cluster_of
    from foretell.cli.show import counted_progress, print_line
    from foretell.design import plan
    from foretell.design.candidates import captured
    from foretell.design.cost import Effort
    from foretell.design.methods import check_method
    from foretell.units import parse_duration

    budget_s = parse_duration(budget)
    check_method(method)
    if repeats < 1:
        raise InputError(f"--repeats {repeats} allows no measurement: give 1 or more")
    if rounds < 1 or not seconds > 0:
        raise InputError("--rounds and --seconds must be above zero, or nothing is measured")
    where = cluster_of(cluster).spec
    options = {"mode": mode, "precision": precision}
    cases = _cases(
        candidates, ops, models, numbers("batch", batch), numbers("nproc", nproc), where, options
    )
    with counted_progress("capturing") as advance:
        found, left_out = captured(cases, lambda done: advance(done, len(cases)))
    runs, notes = _runs(store, where)
    notes += [f"{len(left_out)} cases left out: {left_out[0]}"] if left_out else []
    effort = Effort(seconds=seconds, rounds=rounds)
    chosen = plan(
        found, budget_s, method=method, seed=seed, repeats=repeats, runs=runs, effort=effort
    )
    if out is not None:
        _write(chosen, out)
    if json_output:
        print_line(json.dumps({**chosen.to_dict(), "notes": notes}))
    else:
        _show(chosen, notes)


def _cases(
    file: Path | None,
    ops: bool,
    models: str | None,
    batches: list[int],
    processes: list[int],
    cluster: str,
    options: dict[str, Any],
) -> list[Case]:
    from foretell.design.candidates import cases_in_file, model_cases, operator_cases

    cases = []
    if file is not None:
        cases += cases_in_file(file, cluster=cluster, **options)
    if models is not None:
        references = _references(models)
        cases += model_cases(references, batches, processes, cluster, **options)
    if ops:
        cases += operator_cases(cluster, **options)
    if not cases:
        raise InputError(
            "there is nothing to choose from: give --candidates FILE, --models REF,REF or --ops"
        )
    return cases


def _references(text: str) -> list[str]:
    """'timm:a,op:linear,in=8,out=4' -> ['timm:a', 'op:linear,in=8,out=4']."""
    return [part.strip() for part in re.split(r",(?=[^,=]*:)", text) if part.strip()]


def _runs(store: Path | None, cluster: str) -> tuple[list[Run], list[str]]:
    """What was measured before on the device, and what of it cannot be used."""
    if store is None:
        return [], []
    if not store.is_dir():
        raise InputError(f"store {str(store)!r} is not a directory: name one with measurements")
    from foretell.api import cluster_of
    from foretell.data.store import Store
    from foretell.design.known import runs_on
    from foretell.predictors.assemble import slowest

    runs, strange = runs_on(slowest(cluster_of(cluster)), Store(store).records())
    return runs, [f"{strange} measurements describe no case"] if strange else []


def _write(chosen: Plan, path: Path) -> None:
    import json

    from foretell.design.candidates import plain

    lines = "".join(json.dumps(plain(choice.case)) + "\n" for choice in chosen.choices)
    try:
        path.write_text(lines, encoding="utf-8")
    except OSError as error:
        raise InputError(f"output {str(path)!r} cannot be written: {error.strerror}") from error


def _show(chosen: Plan, notes: list[str]) -> None:
    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.units import format_duration

    table = plain_table("measure", ">batch", "on", ">step", ">cost", ">bits")
    for choice in chosen.choices[:_SHOWN]:
        table.add_row(
            choice.case.model,
            str(choice.case.batch or ""),
            choice.case.cluster,
            format_duration(choice.step_s),
            format_duration(choice.cost_s),
            f"{choice.information_bits:.2f}",
        )
    print_table(table)
    if len(chosen.choices) > _SHOWN:
        print_line(f"and {len(chosen.choices) - _SHOWN} more: --out FILE writes them all")
    print_line(
        f"{len(chosen.choices)} of {chosen.candidates} cases, {chosen.method}: "
        f"{format_duration(chosen.cost_s)} of {format_duration(chosen.budget_s)}, "
        f"{sum(c.information_bits for c in chosen.choices):.0f} bits"
    )
    print_line(
        f"mean standard error of the predicted times: {100 * chosen.uncertainty_before:.0f} % now, "
        f"{100 * chosen.uncertainty_after:.0f} % then"
    )
    if chosen.measured:
        print_line(f"{chosen.measured} earlier measurements count")
    for note in notes:
        print_line(f"note: {note}")
