"""The `foretell` command: one module per verb. Heavy imports happen inside the verbs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from foretell._version import __version__
from foretell.cli.devices import devices
from foretell.cli.models import models
from foretell.cli.predict import predict
from foretell.errors import ForetellError

app = typer.Typer(
    name="foretell",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Forecast time, memory, utilisation, traffic and cost of deep learning before it runs.",
    epilog="Example: [bold]foretell predict timm:resnet50 --batch 256 --cluster h100-sxm[/bold]",
)
app.command()(predict)
app.command()(devices)
app.command()(models)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"foretell {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors become one sentence and an exit code."""
    try:
        app()
    except ForetellError as error:
        print(f"foretell: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(0)
    except KeyboardInterrupt:
        print("foretell: interrupted", file=sys.stderr)
        sys.exit(130)
