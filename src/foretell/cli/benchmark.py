"""foretell benchmark: how accurate predictors are, as fitted and on one's own measurements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from foretell.errors import ForetellError, InputError

if TYPE_CHECKING:
    from foretell.fit.compare import Comparison

_LEVELS = {
    "model": "unseen model, known family",
    "family": "unseen family",
    "new-device": "unseen device",
    "job": "distributed job, unseen configuration",
    "job, timeline alone": "the same without what jobs teach",
}
_FIGURES = ("mean", "median", "p90", "max")


def benchmark(
    measurements: Annotated[
        Optional[list[Path]],
        typer.Option(help="Store directory or .parquet file to judge by; may be given again."),
    ] = None,
    predictor: Annotated[
        str, typer.Option(help="Predictors, with commas: names or files.")
    ] = "scaledl,analytic",
    limit: Annotated[
        Optional[int], typer.Option(help="Judge about so many measurements only.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print how accurate forecasts are.

    Alone, it prints the errors that the shipped weights had on models, families and devices they
    were not fitted to. With measurements of one's own, it compares predictors on those.

    [bold]foretell benchmark[/bold]

    [bold]foretell benchmark --measurements mine --predictor scaledl,analytic,mine.json[/bold]
    """
    names = [name.strip() for name in predictor.split(",") if name.strip()]
    if not names:
        raise InputError("--predictor names none: use scaledl, analytic or files")
    if measurements:
        _compare(measurements, names, limit, json_output=json_output)
    else:
        _shipped(names, json_output=json_output)


def _shipped(names: list[str], *, json_output: bool) -> None:
    import json

    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.predictors import predictor as named
    from foretell.predictors.scaledl import ScaleDLPredictor

    cards = {}
    for name in names:
        found = named(name)
        if isinstance(found, ScaleDLPredictor):
            cards[name] = found.weights.card
    if not cards:
        raise InputError(
            f"{', '.join(names)}: no errors come with it; give --measurements to judge it by"
        )
    if json_output:
        shown = {n: {k: c[k] for k in ("errors", "spreads", "data")} for n, c in cards.items()}
        print_line(json.dumps(shown))
        return
    for name, card in cards.items():
        for level, places in card["errors"].items():
            table = plain_table(
                "where",
                "n",
                *_FIGURES,
                "in its interval",
                title=f"{name}: {_LEVELS.get(level, level)}",
            )
            for place, e in places.items():
                held = f"{e['covered']:.0%}" if "covered" in e else ""
                table.add_row(place, f"{e['n']:,}", *(f"{e[f]:.1%}" for f in _FIGURES), held)
            print_table(table)
        _print_data(card)


def _print_data(card: Mapping[str, Any]) -> None:
    from foretell.cli.show import print_line

    rows = ", ".join(f"{name} {about['rows']:,}" for name, about in card["data"].items())
    print_line(f"Fitted to {rows} measurements; every error is of members that did not see them.")


def _compare(
    places: list[Path], names: list[str], limit: Optional[int], *, json_output: bool
) -> None:
    import json

    from foretell.cli.show import counted_progress, plain_table, print_line, print_table
    from foretell.data.files import measurements_in
    from foretell.fit.compare import compare

    records = [r for place in places for r in measurements_in(place)]
    if not records:
        shown = ", ".join(map(str, places))
        raise InputError(f"--measurements {shown}: there are none; 'foretell measure' makes some")
    if limit is not None and limit < 1:
        raise InputError(f"--limit {limit} judges nothing: give 1 or more")
    if limit:
        records = records[:: max(1, len(records) // limit)]
    with counted_progress("judging") as tell:
        found = compare(records, names, tell)
    if not found.judged:
        why = f"; the first: {found.rejects[0].reason}" if found.rejects else ""
        raise ForetellError(f"none of {len(records)} measurements can be judged{why}")
    if json_output:
        print_line(json.dumps(found.plain()))
        return
    table = plain_table("predictor", "n", *_FIGURES, "in its interval")
    for name in names:
        e = found.errors(name)
        table.add_row(
            name, f"{e['n']:,}", *(f"{e[f]:.1%}" for f in _FIGURES), f"{found.covered(name):.0%}"
        )
    print_table(table)
    _print_worst(found, names[0])


def _print_worst(found: Comparison, name: str) -> None:
    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.units import format_duration

    table = plain_table("worst", "measured", "forecast", title=f"{name}: furthest off")
    for judged in found.worst(name, 5):
        said = judged.said[name].value
        table.add_row(judged.label, format_duration(judged.measured_s), format_duration(said))
    print_table(table)
    if found.rejects:
        first = found.rejects[0]
        print_line(f"{len(found.rejects)} not judged; the first: {first.origin}: {first.reason}")
