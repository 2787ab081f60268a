"""foretell calibrate: measure this machine within a budget, and fit forecasts to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from foretell.cli.usage import need_extra, numbers, whole_number
from foretell.errors import InputError

if TYPE_CHECKING:
    from foretell.calibrate import Calibration, Campaign, Turn
    from foretell.graph.graph import Floats
    from foretell.measure.world import World
    from foretell.predictors.analytic import AnalyticPredictor
    from foretell.predictors.scaledl import ScaleDLPredictor

_WHERE = "Where"
_OUTPUT = "Output"


def calibrate(
    budget: Annotated[str, typer.Option(help="Time to spend, such as 10m or 1h.")],
    nproc: Annotated[
        str,
        typer.Option(
            help="Processes, with commas; with 1,2 exchanges between two are measured as well.",
            rich_help_panel=_WHERE,
        ),
    ] = "1",
    hosts: Annotated[
        Optional[list[str]],
        typer.Option(
            help="As of 'measure': 2@1gbit for namespaces, or machines; may be given again.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            help="Threads of each process; 0 deals the cores out to the most processes.",
            rich_help_panel=_WHERE,
        ),
    ] = 0,
    out: Annotated[
        Path,
        typer.Option(
            help="File to write, for --predictor: .safetensors for the learned predictor, .json "
            "for the analytic one.",
            rich_help_panel=_OUTPUT,
        ),
    ] = Path("calibrated.json"),
    store: Annotated[
        Optional[Path],
        typer.Option(
            help="Directory that keeps measurements; those of this machine in it count.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(parser=whole_number, help="For what chance decides.")] = 0,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Measure what tells most about this machine, and fit forecasts to it.

    Chooses operators and small models by design, measures them, chooses again with what is known
    then, and writes a file that [bold]--predictor[/bold] takes. Interrupted, the same command
    goes on where it stopped.

    [bold]foretell calibrate --budget 10m --nproc 1,2 --out mine.json[/bold]

    [bold]foretell predict timm:resnet18 --batch 8 --cluster local --predictor mine.json[/bold]
    """
    import json

    from foretell.calibrate import Campaign, fit_machine
    from foretell.cli.show import print_line
    from foretell.data.export import check_place
    from foretell.data.store import Store, default_store
    from foretell.units import parse_duration

    if out.suffix not in (".json", ".safetensors"):
        raise InputError(
            f"--out {str(out)!r} must end in .safetensors (the learned predictor) or .json (the "
            "analytic one), so that --predictor knows it"
        )
    learned = out.suffix == ".safetensors"
    if learned:
        need_extra("torch_geometric", "calibrating the learned predictor", "fit")
    check_place(out, "--out")
    worlds = _worlds(numbers("nproc", nproc), hosts or [], threads)
    campaign = Campaign(
        store=Store(store) if store else default_store(),
        budget_s=parse_duration(budget),
        worlds=worlds,
        name=out.name,
        seed=seed,
    )
    turns = _run(campaign)
    plain = fit_machine(campaign.records(), worlds[0].device)
    found: Calibration[Any] = _learned(plain, campaign) if learned else plain
    found.predictor.save(out)
    if json_output:
        print_line(json.dumps(_plain(found, turns, campaign, out)))
    else:
        _show(found, turns, campaign, out)


def _learned(
    plain: Calibration[AnalyticPredictor], campaign: Campaign
) -> Calibration[ScaleDLPredictor]:
    from foretell.calibrate.learned import fit_learned
    from foretell.cli.show import progress
    from foretell.predictors.scaledl import ScaleDLPredictor

    with progress("fitting the learned predictor"):
        return fit_learned(campaign.records(), plain.device, ScaleDLPredictor.shipped(), plain)


def _worlds(counts: list[int], hosts: list[str], threads: int) -> list[World]:
    """One process, then all others, each with the same threads."""
    import dataclasses
    import os

    from foretell.measure.world import World, parse_hosts

    worlds = [World(), *(World(processes=n) for n in counts if n > 1)]
    worlds += [World(processes=n, **parse_hosts(h)) for h in hosts for n in counts]
    most = max(w.processes * (w.namespaces or 1) for w in worlds)
    dealt = threads or max(1, len(os.sched_getaffinity(0)) // most)
    return [dataclasses.replace(w, threads=dealt) for w in worlds]


def _run(campaign: Campaign) -> list[Turn]:
    from foretell.cli.show import timed_progress

    with timed_progress("calibrating", campaign.budget_s) as tell:
        campaign.tell = tell
        try:
            return list(campaign.run())
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "what was measured is kept; the same command goes on from there"
            ) from None


def _plain(
    found: Calibration[Any], turns: list[Turn], campaign: Campaign, out: Path
) -> dict[str, object]:
    import dataclasses

    return {
        "device": found.device.id,
        "operators": found.operators,
        "steps": found.steps,
        "shared_steps": found.shared_steps,
        "collectives": found.collectives,
        "error_before": _median_error(found.before),
        "error_after": _median_error(found.after),
        "error_after_shared": _median_error(found.after_shared),
        "turns": [dataclasses.asdict(t) for t in turns],
        "spent_s": campaign.spent_s,
        "constants": str(out),
        "store": str(campaign.store.directory),
    }


def _show(found: Calibration[Any], turns: list[Turn], campaign: Campaign, out: Path) -> None:
    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.units import format_duration

    table = plain_table("chosen for", ">measured", ">took", ">expected error then")
    for turn in turns:
        table.add_row(
            turn.cluster,
            str(turn.measured),
            format_duration(turn.spent_s),
            f"{100 * turn.uncertainty:.0f} %",
        )
    if turns:
        print_table(table)
    print_line(
        f"{found.operators} operators, {found.steps} steps of one process and "
        f"{found.shared_steps} of several, {found.collectives} collectives; "
        f"{format_duration(campaign.spent_s)} of {format_duration(campaign.budget_s)}"
    )
    before, after = _median_error(found.before), _median_error(found.after)
    if not found.steps:
        print_line("note: no whole step was measured in that time: give a larger --budget")
    if before is not None and after is not None:
        print_line(
            f"median error of a step: {100 * before:.0f} % as shipped, {100 * after:.0f} % now "
            "(each model predicted without its own measurements)"
        )
    shared = _median_error(found.after_shared)
    if shared is not None:
        print_line(f"of steps of several processes, which were fitted on: {100 * shared:.0f} %")
    print_line(f"constants in {out}: foretell predict ... --predictor {out}")


def _median_error(ratios: Floats) -> float | None:
    """Of predicted over measured; None where nothing was measured."""
    import numpy as np

    return float(np.median(np.abs(ratios - 1))) if len(ratios) else None
