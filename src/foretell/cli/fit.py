"""foretell fit: make the weights of the learned predictor from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from foretell.cli.usage import need_extra, whole_number
from foretell.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foretell.fit.spreads import Ledger
    from foretell.predictors.scaledl.weights import Weights

_EFFORT = "Effort"
_OUTPUT = "Output"


def fit(
    data: Annotated[
        Optional[Path],
        typer.Option(help="Folder of the sources; FORETELL_DATA unless given."),
    ] = None,
    parts: Annotated[
        Optional[str],
        typer.Option(help="Parts to fit to, with commas; all unless given."),
    ] = None,
    measurements: Annotated[
        Optional[list[Path]],
        typer.Option(
            help="Store directory or .parquet file of 'measure' to fit to as well; may be given "
            "again."
        ),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            help="Parts of the models and families, each left out once to judge by.",
            rich_help_panel=_EFFORT,
        ),
    ] = 5,
    seeds: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            help="Fits without each part, judged by their mean; the first of each are kept.",
            rich_help_panel=_EFFORT,
        ),
    ] = 1,
    epochs: Annotated[
        int,
        typer.Option(parser=whole_number, help="Rounds over the data.", rich_help_panel=_EFFORT),
    ] = 24,
    cross: Annotated[
        bool,
        typer.Option(
            "--cross/--no-cross",
            help="Whether a network over the graph corrects the layer model.",
            rich_help_panel=_EFFORT,
        ),
    ] = False,
    devices_out: Annotated[
        bool,
        typer.Option(
            "--devices-out/--no-devices-out",
            help="Whether to leave each device out once, for the interval of new ones.",
            rich_help_panel=_EFFORT,
        ),
    ] = True,
    jobs: Annotated[
        bool,
        typer.Option(
            "--jobs/--no-jobs",
            help="Whether to learn from distributed jobs what their timeline misses.",
            rich_help_panel=_EFFORT,
        ),
    ] = True,
    limit: Annotated[
        Optional[int],
        typer.Option(
            parser=whole_number,
            help="About so many records per part, for a quick look.",
            rich_help_panel=_EFFORT,
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            help="Processes that capture graphs and fit.",
            rich_help_panel=_EFFORT,
        ),
    ] = 2,
    seed: Annotated[int, typer.Option(parser=whole_number, help="For what chance decides.")] = 0,
    out: Annotated[
        Path, typer.Option(help="File of weights to write.", rich_help_panel=_OUTPUT)
    ] = Path("scaledl.safetensors"),
    ledger: Annotated[
        Optional[Path],
        typer.Option(help="CSV of every step that was judged.", rich_help_panel=_OUTPUT),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Fit the learned predictor to published measurements.

    Captures the graph of every measured model (once, into the cache), fits the members of an
    ensemble, each without a fold of models and families that then judges it, and writes weights
    that [bold]--predictor[/bold] takes. Interrupted, the same command goes on where it stopped.

    [bold]foretell fit --data measurements --out mine.safetensors[/bold]

    [bold]foretell fit --parts timm-train --limit 200 --epochs 5 --folds 2 --seeds 1[/bold]
    """
    import json

    need_extra("torch_geometric", "foretell fit", "fit")
    from foretell.cli.show import print_line, shared_progress
    from foretell.data.export import check_place
    from foretell.fit.jobs import JOB_SOURCES
    from foretell.fit.run import Plan
    from foretell.fit.run import fit as run
    from foretell.fit.sources import PARTS, data_directory
    from foretell.predictors.scaledl.train import Effort
    from foretell.predictors.scaledl.weights import save_weights

    if out.suffix != ".safetensors":
        raise InputError(
            f"--out {str(out)!r} must end in .safetensors, so that --predictor knows it"
        )
    for place in (out, ledger):
        if place is not None:
            check_place(place, "--out" if place is out else "--ledger")
    if ledger is not None and ledger.is_dir():
        raise InputError(f"--ledger {str(ledger)!r} is a directory: name a file")
    if limit is not None and limit < 1:
        raise InputError(f"--limit {limit} leaves nothing to fit to: use 1 or more")
    chosen = tuple(PARTS) if parts is None else tuple(parts.split(","))
    for name in chosen:
        if name not in PARTS:
            raise UnknownNameError("part", name, PARTS, f"use some of {', '.join(PARTS)}")
    if folds < 2:
        raise InputError(f"--folds {folds} leaves nothing to judge with: use 2 or more")
    if seeds < 1:
        raise InputError(f"--seeds {seeds} fits nothing: use 1 or more")
    if epochs < 1:
        raise InputError(f"--epochs {epochs} fits nothing: use 1 or more")
    if workers < 1:
        raise InputError(f"--workers {workers} leaves nobody to do it: use 1 or more")
    plan = Plan(
        data=data_directory(data),
        work=out.with_suffix(".parts"),
        parts=chosen,
        measurements=tuple(measurements or ()),
        folds=folds,
        seeds=seeds,
        effort=Effort(epochs=epochs, cross=cross, seed=seed),
        devices_out=devices_out,
        jobs=JOB_SOURCES if jobs else (),
        workers=workers,
        limit=limit,
    )
    with shared_progress() as tell:
        weights, judged = run(plan, tell)
    save_weights(weights, out)
    if ledger is not None:
        _write_ledger(judged, ledger)
    if json_output:
        print_line(json.dumps({"weights": str(out), **_plain(weights)}))
    else:
        _show(weights, out)


def _plain(weights: Weights) -> dict[str, object]:
    return {name: weights.card[name] for name in ("data", "fits", "errors", "spreads")}


def _show(weights: Weights, out: Path) -> None:
    from foretell.cli.show import plain_table, print_line, print_table

    table = plain_table(
        "unseen", "where", "steps", "mean", "median", "p90", "max", "in its interval"
    )
    for level, places in weights.card["errors"].items():
        for place, e in places.items():
            shown = (f"{e[name]:.1%}" for name in ("mean", "median", "p90", "max"))
            held = f"{e['covered']:.0%}" if "covered" in e else ""
            table.add_row(level, place, f"{e['n']:,}", *shown, held)
    print_table(table)
    minutes = sum(f["minutes"] for f in weights.card["fits"].values())
    print_line(f"{out}: {len(weights)} members, fitted in {minutes:.0f} minutes")


def _write_ledger(judged: Ledger, path: Path) -> None:
    import csv

    from foretell.data.export import whole_file

    with whole_file(path, binary=False) as stream:
        rows = csv.writer(stream)
        rows.writerow(["held_out", "place", "measured_s", "predicted_s", "novelty", "row"])
        for i in range(len(judged.row)):
            rows.writerow(
                [
                    judged.level[i],
                    judged.place[i],
                    f"{judged.measured_s[i]:.5g}",
                    f"{judged.predicted_s[i]:.5g}",
                    f"{judged.novelty[i]:.3f}",
                    judged.labels[i],
                ]
            )
