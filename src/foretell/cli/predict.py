"""foretell predict: a forecast for one case, or for a file of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from foretell.cli.usage import a_number, whole_number
from foretell.errors import CannotError, InputError

if TYPE_CHECKING:
    from foretell.api import Case

_MODEL = "What to train"
_HOW = "How it is trained"
_WHERE = "Where"
_SPREAD = "How it is spread"
_LENGTH = "How long"
_OUTPUT = "Output"
_NOT_OF_THE_CASE = (
    "context",
    "model",
    "max_batch",
    "json_output",
    "trace",
    "cases",
    "out",
    "launch_file",
)


def predict(
    context: typer.Context,
    model: Annotated[
        Optional[str],
        typer.Argument(
            help="timm:NAME, hf:NAME, hf:config.json, transformer:layers=..,hidden=.., "
            "file.py:function or package.module:function"
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            help="a100-80gb, 8xh100-sxm, 2x8xa100-80gb:ib-hdr or a .toml file",
            rich_help_panel=_WHERE,
        ),
    ] = "a100-80gb",
    batch: Annotated[
        Optional[int],
        typer.Option(
            parser=whole_number,
            help="Samples per model copy and forward pass; 32 if left out.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    global_batch: Annotated[
        Optional[int],
        typer.Option(parser=whole_number, help="Samples per optimizer step.", rich_help_panel=_HOW),
    ] = None,
    image_size: Annotated[
        Optional[int],
        typer.Option(parser=whole_number, help="Pixels per side.", rich_help_panel=_MODEL),
    ] = None,
    seq: Annotated[
        Optional[int],
        typer.Option(parser=whole_number, help="Tokens per sequence.", rich_help_panel=_MODEL),
    ] = None,
    mode: Annotated[str, typer.Option(help="train or infer.", rich_help_panel=_HOW)] = "train",
    precision: Annotated[
        str,
        typer.Option(
            help="fp32, tf32, fp16, bf16, amp-fp16, amp-bf16 or fp8.", rich_help_panel=_HOW
        ),
    ] = "fp32",
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="NHWC memory layout.", rich_help_panel=_HOW)
    ] = False,
    optimizer: Annotated[
        str,
        typer.Option(help="none, sgd, momentum, adam, adamw or adafactor.", rich_help_panel=_HOW),
    ] = "adamw",
    fused_optimizer: Annotated[
        bool,
        typer.Option(
            "--fused-optimizer", help="Optimizer update in one kernel.", rich_help_panel=_HOW
        ),
    ] = False,
    compile: Annotated[
        bool,
        typer.Option("--compile", help="torch.compile instead of eager.", rich_help_panel=_HOW),
    ] = False,
    torch_version: Annotated[
        Optional[str], typer.Option(help="PyTorch that will run it.", rich_help_panel=_HOW)
    ] = None,
    recompute: Annotated[
        str,
        typer.Option(
            help="Activation checkpointing: none, full, selective or module names.",
            rich_help_panel=_HOW,
        ),
    ] = "none",
    master_weights: Annotated[
        bool,
        typer.Option(
            "--master-weights", help="fp32 master copy of bf16/fp16 weights.", rich_help_panel=_HOW
        ),
    ] = False,
    fp32_gradients: Annotated[
        bool,
        typer.Option(
            "--fp32-gradients", help="Add gradients up in fp32 (Megatron).", rich_help_panel=_HOW
        ),
    ] = False,
    dp: Annotated[
        Optional[int],
        typer.Option(
            parser=whole_number,
            help="Data-parallel replicas; follows from the cluster.",
            rich_help_panel=_SPREAD,
        ),
    ] = None,
    tp: Annotated[
        int,
        typer.Option(
            parser=whole_number, help="Ranks that split every layer.", rich_help_panel=_SPREAD
        ),
    ] = 1,
    sp: Annotated[
        bool,
        typer.Option(
            "--sp", help="Split the sequence where tp leaves layers whole.", rich_help_panel=_SPREAD
        ),
    ] = False,
    pp: Annotated[
        int, typer.Option(parser=whole_number, help="Pipeline stages.", rich_help_panel=_SPREAD)
    ] = 1,
    cp: Annotated[
        int,
        typer.Option(
            parser=whole_number, help="Ranks that split sequences.", rich_help_panel=_SPREAD
        ),
    ] = 1,
    ep: Annotated[
        int,
        typer.Option(
            parser=whole_number, help="Ranks that share experts out.", rich_help_panel=_SPREAD
        ),
    ] = 1,
    zero: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            help="Shard 1 optimizer state, 2 also gradients, 3 also parameters (FSDP).",
            rich_help_panel=_SPREAD,
        ),
    ] = 0,
    shard: Annotated[
        Optional[int],
        typer.Option(
            parser=whole_number,
            help="Ranks that share one copy under --zero; all if left out.",
            rich_help_panel=_SPREAD,
        ),
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(help="gpipe, 1f1b, interleaved or zero-bubble.", rich_help_panel=_SPREAD),
    ] = "1f1b",
    virtual_stages: Annotated[
        int,
        typer.Option(
            parser=whole_number, help="Model chunks per pipeline rank.", rich_help_panel=_SPREAD
        ),
    ] = 1,
    bucket_mb: Annotated[
        float,
        typer.Option(
            parser=a_number, help="Gradients exchanged at once, in MiB.", rich_help_panel=_SPREAD
        ),
    ] = 25.0,
    overlap: Annotated[
        bool,
        typer.Option(
            help="Exchange gradients and parameters beside compute.", rich_help_panel=_SPREAD
        ),
    ] = True,
    prefetch: Annotated[
        int,
        typer.Option(
            parser=whole_number, help="Units gathered ahead (--zero 3).", rich_help_panel=_SPREAD
        ),
    ] = 1,
    reshard: Annotated[
        bool,
        typer.Option(
            help="Give gathered parameters up after forward (--zero 3).", rich_help_panel=_SPREAD
        ),
    ] = True,
    offload_optimizer: Annotated[
        bool,
        typer.Option("--offload-optimizer", help="Optimizer on the host.", rich_help_panel=_SPREAD),
    ] = False,
    straggler: Annotated[
        float,
        typer.Option(
            parser=a_number,
            help="Share by which the slowest device is slower.",
            rich_help_panel=_SPREAD,
        ),
    ] = 0.0,
    tp_plan: Annotated[
        Optional[str],
        typer.Option(
            help="module=column|row|whole, comma-separated; the rest is planned.",
            rich_help_panel=_SPREAD,
        ),
    ] = None,
    tp_joint: Annotated[
        bool,
        typer.Option(
            help="Layers that read one activation exchange its gradient once.",
            rich_help_panel=_SPREAD,
        ),
    ] = True,
    epochs: Annotated[
        Optional[float],
        typer.Option(parser=a_number, help="Passes over the data.", rich_help_panel=_LENGTH),
    ] = None,
    samples: Annotated[
        Optional[int],
        typer.Option(parser=whole_number, help="Samples in the data set.", rich_help_panel=_LENGTH),
    ] = None,
    steps: Annotated[
        Optional[int],
        typer.Option(parser=whole_number, help="Optimizer steps.", rich_help_panel=_LENGTH),
    ] = None,
    tokens: Annotated[
        Optional[float],
        typer.Option(parser=a_number, help="Tokens to train on.", rich_help_panel=_LENGTH),
    ] = None,
    predictor: Annotated[
        str,
        typer.Option(
            help="scaledl (learned), scaledl-graph (with a network over the graph), analytic, "
            "or a file of 'foretell calibrate', 'adapt' or 'fit'.",
            rich_help_panel=_OUTPUT,
        ),
    ] = "scaledl",
    max_batch: Annotated[
        bool,
        typer.Option(
            "--max-batch",
            help="Find the largest batch that fits and divides --global-batch; forecast it unless "
            "--batch names another.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False,
    trace: Annotated[
        Optional[Path],
        typer.Option(help="Write a Chrome/Perfetto trace of the step.", rich_help_panel=_OUTPUT),
    ] = None,
    launch_file: Annotated[
        Optional[Path],
        typer.Option(
            "--from",
            help="Read a launch script or configuration: torchrun, sbatch, accelerate, DeepSpeed, "
            "Megatron, PyTorchJob. Options beside it go before it; --no-compile and the like undo "
            "its switches.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    cases: Annotated[
        Optional[Path],
        typer.Option(
            help="Answer a file of cases, one JSON object a line.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    out: Annotated[
        Optional[Path], typer.Option(help="Where answers to --cases go.", rich_help_panel=_OUTPUT)
    ] = None,
) -> None:
    """Forecast step time, memory, utilisation, total time and cost of a model on a cluster.

    No GPU, weights or download is needed: the model is run once on shapes alone.

    [bold]foretell predict timm:resnet50 --batch 256 --precision amp-bf16 --cluster 8xa100-80gb
    --epochs 90 --samples 1281167[/bold]
    """
    options = dict(locals())
    shared = {name: value for name, value in options.items() if name not in _NOT_OF_THE_CASE}
    if cases is not None:
        _refuse_beside_cases(context)
        _predict_file(cases, out)
        return
    if out is not None:
        raise InputError("--out goes with --cases: use --json and redirect for a single forecast")
    from foretell.api import Case

    if launch_file is not None:
        given = {name: value for name, value in shared.items() if _was_given(context, name)}
        case, notes = _launched(launch_file, given | ({"model": model} if model else {}))
    elif model is None:
        raise InputError(
            "no model given: name one, such as timm:resnet50, or use --from or --cases FILE"
        )
    else:
        case, notes = Case(model=model, **shared), ()
    _predict_one(case, max_batch, json_output, trace, notes)


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _launched(path: Path, given: dict[str, Any]) -> tuple[Case, tuple[str, ...]]:
    """The case a launch file describes, with the options given beside it."""
    from foretell.api import case_from_launch
    from foretell.launch import beside, read_launch

    launch = beside(read_launch(path), given)
    return case_from_launch(launch), launch.notes


def _refuse_beside_cases(context: typer.Context) -> None:
    """A case file says everything itself: options beside it would be ignored."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if not _was_given(context, name) or name in ("cases", "out"):
            continue
        if name == "model":
            raise InputError("--cases brings its own models: leave the model argument out")
        what = "each line of FILE" if name not in _NOT_OF_THE_CASE else "a single forecast"
        raise InputError(
            f"{parameter.opts[0]} does not go with --cases FILE: it belongs to {what}, "
            "so leave it out here"
        )


def _predict_one(
    case: Case, max_batch: bool, json_output: bool, trace: Path | None, notes: tuple[str, ...]
) -> None:
    import json

    from foretell.api import max_batch_of, workload_of
    from foretell.cli.show import print_line, progress, show_forecast
    from foretell.predictors import predictor

    with progress(f"capturing {case.model}", quiet=json_output):
        workload, cluster = workload_of(case)
    largest = max_batch_of(workload, cluster) if max_batch else None
    if largest is not None and case.batch is None:
        workload = workload.at_batch(max(1, largest))
    forecast = predictor(case.predictor).predict(workload, cluster)
    forecast = dataclasses.replace(forecast, notes=(*forecast.notes, *notes))
    if trace is not None:
        _write_trace(case, workload, cluster, trace)
    if json_output:
        extra = {} if largest is None else {"max_batch": largest}
        print_line(json.dumps(forecast.to_dict() | extra))
    else:
        show_forecast(forecast, workload, cluster, largest)


def _write_trace(case: Case, workload: Any, cluster: Any, path: Path) -> None:
    import json

    from foretell.predictors import predictor
    from foretell.predictors.protocol import PlaysSteps
    from foretell.predictors.trace import chrome_trace

    chosen = predictor(case.predictor)
    if not isinstance(chosen, PlaysSteps):
        raise InputError(f"--trace is not offered by predictor {case.predictor!r}: use analytic")
    placed, run = chosen.play(workload, cluster)
    text = json.dumps(chrome_trace(placed, run, cluster.groups[0].device.name))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"trace {str(path)!r} cannot be written: {error.strerror}") from error


def _predict_file(cases: Path, out: Path | None) -> None:
    if out is None:
        raise InputError("--cases needs --out FILE.jsonl for the answers")
    from foretell.cases import run_cases
    from foretell.cli.show import counted_progress, print_line

    try:
        with counted_progress("predicting") as advance:
            answered, failed = run_cases(cases, out, advance)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("run the same command again to go on") from None
    print_line(f"{answered} answered, {failed} failed, in {out}")
    if not answered:
        raise CannotError(f"no case of {str(cases)!r} could be answered: see the errors in {out}")
