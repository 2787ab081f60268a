"""The Python API: one call from a model to a forecast. The command line is a thin coat over it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.cluster import Cluster, parse_cluster
from foretell.errors import InputError, UnknownNameError, described
from foretell.graph import Graph, graph_of
from foretell.graph.sources import captured_precision, file_stamp, graph_of_own, scheme_of
from foretell.predictors import DEFAULT_PREDICTOR, Forecast, largest_batch, predictor
from foretell.predictors.assemble import memory_constants
from foretell.workload import Recipe, Settings, Workload
from foretell.workload.captured import settled_options

if TYPE_CHECKING:
    import torch

    from foretell.launch import Launch

DEFAULT_BATCH = 32
# What a model reads in one sample -> the sizes that can be chosen for it.
_SIZES = {
    "image": ("image_size",),
    "pair": ("image_size", "seq"),
    "sequence": ("seq",),
    "clip": ("seq",),
    "sample": (),
}


@dataclass(frozen=True, kw_only=True)
class Case(Settings):
    """One question, with the option names that CLI, case files and Python share."""

    model: str
    cluster: str = "a100-80gb"
    batch: int | None = None
    """Samples per model copy and forward pass; follows from global_batch, else 32."""
    image_size: int | None = None
    seq: int | None = None
    predictor: str = DEFAULT_PREDICTOR

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Case:
        """A case from a JSON object; refuses unknown names and wrong types."""
        known = {f.name for f in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                hint = "'foretell predict --help' lists them"
                raise UnknownNameError("option", name, known, hint)
        if "model" not in values:
            raise InputError("the case has no model: add one, such as timm:resnet50")
        return cls(**values)

    def recipe(self, devices: int) -> Recipe:
        """The training settings; the batch follows from global_batch when only that is given."""
        batch = self.batch
        replicas = self.layout(devices).dp
        if batch is None and self.global_batch is not None:
            batch, rest = divmod(self.global_batch, replicas)
            if rest or not batch:
                raise InputError(
                    f"global_batch={self.global_batch} does not divide over {replicas} replicas: "
                    "choose a multiple, or give batch as well"
                )
        return Recipe(
            batch=DEFAULT_BATCH if batch is None else batch,
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(Settings)},
        )


def case_from_launch(launch: Launch) -> Case:
    """The case a launch file describes; what it does not say and a forecast needs is asked for."""
    if lacking := launch.missing():
        hints = [note for note in launch.notes if set(launch.settled_by[note]) & set(lacking)]
        if "cluster" in lacking and launch.device_hint and not hints:
            hints = [f"it speaks of {launch.device_hint}"]
        shown = f" ({'; '.join(hints)})" if hints else ""
        raise InputError(
            f"{launch.path!r} does not say {' and '.join(lacking)}{shown}: give "
            + " and ".join("the model" if n == "model" else f"--{n}" for n in lacking)
        )
    return Case.from_mapping(launch.options)


def predict(
    model: str | Graph | torch.nn.Module,
    *,
    inputs: Any = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    cluster: str | Cluster = "a100-80gb",
    **options: Any,
) -> Forecast:
    """Forecast one training (or inference) job.

    `model` is a reference such as "timm:resnet50", an nn.Module with example `inputs`, or a
    Graph captured before. `options` are the fields of Case.
    """
    workload, where, case = _prepare(model, inputs, loss, cluster, options)
    return predictor(case.predictor).predict(workload, where)


def max_batch(
    model: str | Graph | torch.nn.Module,
    *,
    inputs: Any = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    cluster: str | Cluster = "a100-80gb",
    **options: Any,
) -> int:
    """The largest batch per model copy that fits in memory; 0 when not even one sample does."""
    workload, where, _ = _prepare(model, inputs, loss, cluster, options)
    return max_batch_of(workload, where)


def capture(
    module: torch.nn.Module,
    inputs: Any = None,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    mode: str = "train",
    precision: str = "fp32",
    channels_last: bool = False,
    recompute: str = "none",
    torch_version: str | None = None,
    batch: int | None = None,
) -> Graph:
    """The Graph of a module, which itself is left as it was.

    `batch` is the one the graph will be asked about: the module's code may depend on it.
    """
    from foretell.graph.sources.python_source import subject_from_module

    _check_module("module", module, "an nn.Module")
    _check_loss(loss)
    recipe = Recipe(
        mode=mode,
        precision=precision,
        channels_last=channels_last,
        recompute=recompute,
        torch_version=torch_version,
    )
    return graph_of_own(
        subject_from_module(module, inputs, loss),
        batch=batch,
        mode=recipe.mode,
        precision=captured_precision(recipe.precision),
        channels_last=recipe.channels_last,
        fused_attention=recipe.fused_attention,
        recompute=recipe.recompute,
    )


def workload_of(case: Case, cluster: Cluster | None = None) -> tuple[Workload, Cluster]:
    """The workload and cluster a case speaks of; `cluster` goes before the case's own."""
    where = cluster or cluster_of(case.cluster)
    recipe = case.recipe(where.total_devices)
    try:
        graph = _graph(
            case.model,
            recipe.batch,
            image_size=case.image_size,
            seq=case.seq,
            mode=recipe.mode,
            precision=recipe.precision,
            channels_last=recipe.channels_last,
            fused_attention=recipe.fused_attention,
            recompute=recipe.recompute,
        )
    except OSError as error:
        raise InputError(f"model {case.model!r} cannot be read: {error.strerror}") from error
    _check_sizes(case, graph)
    return Workload(graph, recipe), where


def predict_case(case: Case) -> Forecast:
    """The forecast for one case."""
    workload, where = workload_of(case)
    return predictor(case.predictor).predict(workload, where)


def max_batch_of(workload: Workload, cluster: Cluster) -> int:
    """The largest batch per model copy that fits on every device of the cluster."""
    return min(
        largest_batch(workload, cluster, d.memory_bytes, memory_constants(d))
        for d in cluster.devices
    )


def cluster_of(text: str) -> Cluster:
    """parse_cluster, remembered for as long as the file it names does not change."""
    return _parsed(text, _content(text))


@functools.lru_cache(maxsize=256)
def _parsed(text: str, content: bytes | None) -> Cluster:
    return parse_cluster(text)


def _graph(reference: str, batch: int, **options: Any) -> Graph:
    """graph_of, remembered until a file it was made from changes."""
    own = {"batch": batch} if scheme_of(reference) == "python" else {}
    return _remembered_graph(file_stamp(reference), reference, **own, **options)


@functools.lru_cache(maxsize=256)
def _remembered_graph(stamp: object, reference: str, **options: Any) -> Graph:
    return graph_of(reference, **options)


def _content(name: str) -> bytes | None:
    """What a cluster file holds now; None when the name is not that of a file."""
    if name.endswith(".toml"):
        with contextlib.suppress(OSError, ValueError):
            return Path(name).read_bytes()
    return None


def _prepare(
    model: Any, inputs: Any, loss: Any, cluster: Any, options: dict[str, Any]
) -> tuple[Workload, Cluster, Case]:
    if not isinstance(model, str | Graph):
        _check_module(
            "model", model, "a reference such as 'timm:resnet50', an nn.Module or a Graph"
        )
    if not isinstance(cluster, str | Cluster):
        raise InputError(
            f"cluster is {described(cluster)}: give a text such as '8xa100-80gb' or a Cluster"
        )
    if isinstance(model, str | Graph) and (inputs is not None or loss is not None):
        raise InputError("inputs and loss go with an nn.Module, not with a reference or a Graph")
    _check_loss(loss)
    if isinstance(model, Graph):
        options = settled_options(model, options)
    reference = model if isinstance(model, str) else "module"
    where = cluster_of(cluster) if isinstance(cluster, str) else cluster
    case = Case.from_mapping({"model": reference, "cluster": where.spec, **options})
    if isinstance(model, str):
        return workload_of(case, where)[0], where, case
    recipe = case.recipe(where.total_devices)
    if isinstance(model, Graph):
        return Workload(model, recipe), where, case
    graph = capture(
        model,
        inputs,
        loss=loss,
        mode=recipe.mode,
        precision=recipe.precision,
        channels_last=recipe.channels_last,
        recompute=recipe.recompute,
        torch_version=recipe.torch_version,
        batch=recipe.batch,
    )
    _check_sizes(case, graph)
    return Workload(graph, recipe), where, case


def _check_module(argument: str, value: object, wanted: str) -> None:
    import torch

    if isinstance(value, torch.nn.Module):
        return
    call = ", so call it and pass what it returns" if callable(value) else ""
    raise InputError(f"{argument} is {described(value)}{call}: give {wanted}")


def _check_loss(loss: object) -> None:
    if loss is not None and not callable(loss):
        raise InputError(
            f"loss is {described(loss)}: give a function from the model's output to a scalar"
        )


def _check_sizes(case: Case, graph: Graph) -> None:
    """A size the model has no use for would be ignored."""
    sample = graph.meta.get("sample", "sample")
    for name in ("image_size", "seq"):
        value = getattr(case, name)
        if value is not None and name not in _SIZES.get(sample, (name,)):
            reason = (
                "whose example inputs say it" if sample == "sample" else f"which reads {sample}s"
            )
            raise InputError(
                f"{name}={value} does not apply to {graph.meta.get('source', case.model)}, "
                f"{reason}: leave it out"
            )
