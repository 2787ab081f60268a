"""The `foretell` command: one module per verb. Heavy imports happen inside the verbs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from foretell._version import __version__
from foretell.cli.adapt import adapt
from foretell.cli.benchmark import benchmark
from foretell.cli.calibrate import calibrate
from foretell.cli.data import data
from foretell.cli.design import design
from foretell.cli.devices import devices
from foretell.cli.fit import fit
from foretell.cli.measure import measure
from foretell.cli.models import models
from foretell.cli.predict import predict
from foretell.cli.simulate import simulate
from foretell.cli.streams import discard_output, make_printable
from foretell.cli.switches import SwitchCommand
from foretell.cli.usage import usage_sentence
from foretell.errors import CannotError, ForetellError, InputError, one_line

_INTERRUPTED = 130
# Typer has carried a click of its own for a while; this class is there in all versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="foretell",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Forecast time, memory, utilisation, traffic and cost of deep learning before it runs.",
    epilog="Example: [bold]foretell predict timm:resnet50 --batch 256 --cluster h100-sxm[/bold]",
)
app.command(cls=SwitchCommand)(predict)
app.command()(devices)
app.command()(models)
app.command()(design)
app.command()(measure)
app.command()(calibrate)
app.command()(fit)
app.command()(adapt)
app.command()(benchmark)
app.command()(simulate)
app.add_typer(data, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"foretell {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line; errors become one sentence and an exit code."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    make_printable()
    try:
        exit_code = _invoke(arguments)
        print(end="", flush=True)
        return exit_code
    except ForetellError as error:
        return _fail(one_line(error), error.exit_code)
    except _UsageError as error:
        return _fail(usage_sentence(error), InputError.exit_code)
    except BrokenPipeError:
        discard_output()
        return 0
    except OSError as error:
        if error.filename is not None:
            raise
        discard_output()
        return _fail(f"output cannot be written: {error.strerror}", CannotError.exit_code)
    except KeyboardInterrupt as stop:
        return _fail(": ".join(["interrupted", *map(str, stop.args)]), _INTERRUPTED)


def _invoke(arguments: list[str]) -> int:
    """Typer's parsing and the verb, without its own treatment of errors."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("foretell", arguments) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return 0


def _fail(sentence: str, exit_code: int) -> int:
    print(f"foretell: {sentence}", file=sys.stderr)
    return exit_code
