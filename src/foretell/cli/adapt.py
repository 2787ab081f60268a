"""foretell adapt: teach the learned predictor a device from a few measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli.usage import need_extra
from foretell.errors import InputError

if TYPE_CHECKING:
    from foretell.data import Record


def adapt(
    device: Annotated[str, typer.Option(help="Device id of the measurements to learn from.")],
    measurements: Annotated[
        list[Path],
        typer.Option(help="Store directory or .parquet file of 'measure'; may be given again."),
    ],
    out: Annotated[Path, typer.Option(help="File of weights to write.")] = Path(
        "adapted.safetensors"
    ),
    predictor: Annotated[
        str, typer.Option(help="scaledl, or the .safetensors file to start from.")
    ] = "scaledl",
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Teach the learned predictor a device from a few measurements.

    Ten steps of different models are enough for a start. Everything learned of other devices
    stays; the device gets an embedding and a pace of its own, in seconds.

    [bold]foretell measure timm:resnet18 timm:mobilenetv3_small_100 --store mine[/bold]

    [bold]foretell adapt --device local --measurements mine --out mine.safetensors[/bold]
    """
    import json

    import numpy as np

    need_extra("torch_geometric", "foretell adapt", "fit")

    from foretell.cli.show import print_line, progress
    from foretell.data.export import check_place
    from foretell.fit.adapt import adapt as run
    from foretell.fit.corpora import corpus_of
    from foretell.predictors import predictor as named
    from foretell.predictors.scaledl import ScaleDLPredictor
    from foretell.predictors.scaledl.weights import save_weights

    if out.suffix != ".safetensors":
        raise InputError(
            f"--out {str(out)!r} must end in .safetensors, so that --predictor knows it"
        )
    check_place(out, "--out")
    records = _of_device(device, measurements)
    start = named(predictor)
    if not isinstance(start, ScaleDLPredictor):
        raise InputError(
            f"--predictor {predictor!r} is not a learned one: use scaledl or a .safetensors file"
        )
    with progress(f"adapting to {len(records)} measurements"):
        corpus, rejects = corpus_of(records, workers=1)
        found = run(start.weights, corpus, corpus.settings[0].device)
    save_weights(found.weights, out)
    before, after = (float(np.median(np.abs(r - 1))) for r in (found.before, found.after))
    if json_output:
        print_line(
            json.dumps(
                {
                    "device": corpus.settings[0].device,
                    "used": len(corpus),
                    "rejected": [f"{r.origin}: {r.reason}" for r in rejects],
                    "median_error_before": before,
                    "median_error_after": after,
                    "weights": str(out),
                }
            )
        )
        return
    print_line(
        f"{out}: {device} from {len(corpus)} measurements; median error {before:.1%} before, "
        f"{after:.1%} after, each judged by the others"
    )
    print_line(f"use it with --cluster {corpus.settings[0].device} --predictor {out}")


def _of_device(device: str, places: list[Path]) -> list[Record]:
    from foretell.data.files import measurements_in

    found = [
        r
        for place in places
        for r in measurements_in(place)
        if r.device and r.devices == 1 and r.kind != "collective"
    ]
    known = sorted({r.device for r in found})
    # "local" is one of its processors, "local@8" eight of them: as many as were measured.
    meant = [name for name in known if device in (name, name.partition("@")[0])]
    if len(meant) == 1:
        return [r for r in found if r.device == meant[0]]
    if not known:
        raise InputError(
            f"--measurements {', '.join(map(str, places))} have no step on a single device: take "
            "some with 'foretell measure'"
        )
    raise InputError(
        f"--device {device!r}: nothing was measured on it; use --device {' or '.join(known)}"
    )
