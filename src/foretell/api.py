"""The Python API: one call from a model to a forecast. The command line is a thin coat over it."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretell.cluster import Cluster, parse_cluster
from foretell.errors import InputError, UnknownNameError
from foretell.graph import Graph, graph_of
from foretell.graph.sources import file_stamp, scheme_of
from foretell.predictors import DEFAULT_PREDICTOR, Forecast, largest_batch, predictor
from foretell.predictors.assemble import memory_constants
from foretell.workload import Recipe, Settings, Workload

if TYPE_CHECKING:
    import torch

DEFAULT_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Case(Settings):
    """One question, with the option names that CLI, case files and Python share."""

    model: str
    cluster: str = "a100-80gb"
    batch: int | None = None
    """Samples per device and forward pass; follows from global_batch, else 32."""
    image_size: int | None = None
    seq: int | None = None
    predictor: str = DEFAULT_PREDICTOR

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Case:
        """A case from a JSON object; refuses unknown names and wrong types."""
        known = {f.name for f in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise UnknownNameError("option", name, known)
        if "model" not in values:
            raise InputError("the case has no model: add one, such as timm:resnet50")
        return cls(**{name: _typed(name, value) for name, value in values.items()})

    def recipe(self, devices: int) -> Recipe:
        """The training settings; the batch follows from global_batch when only that is given."""
        batch = self.batch
        if batch is None and self.global_batch is not None:
            batch, rest = divmod(self.global_batch, devices)
            if rest or not batch:
                raise InputError(
                    f"global_batch={self.global_batch} does not divide over {devices} devices: "
                    "choose a multiple, or give batch as well"
                )
        return Recipe(
            batch=DEFAULT_BATCH if batch is None else batch,
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(Settings)},
        )


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
    """The largest batch per device that fits in memory; 0 when not even one sample does."""
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
    from foretell.graph.capture import CaptureOptions
    from foretell.graph.own import capture_own
    from foretell.graph.sources.blocks import recompute_paths
    from foretell.graph.sources.python_source import subject_from_module

    recipe = Recipe(mode=mode, precision=precision, torch_version=torch_version)
    return capture_own(
        subject_from_module(module, inputs, loss),
        CaptureOptions(
            mode=mode,
            precision=precision,
            channels_last=channels_last,
            fused_attention=recipe.fused_attention,
            recompute=recompute_paths(module, recompute) if mode == "train" else (),
        ),
        batch=batch,
    )


def workload_of(case: Case) -> tuple[Workload, Cluster]:
    """The workload and cluster a case speaks of."""
    where = cluster_of(case.cluster)
    recipe = case.recipe(where.total_devices)
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
    return Workload(graph, recipe), where


def predict_case(case: Case) -> Forecast:
    """The forecast for one case."""
    workload, where = workload_of(case)
    return predictor(case.predictor).predict(workload, where)


def max_batch_of(workload: Workload, cluster: Cluster) -> int:
    """The largest batch per device that fits on every device of the cluster."""
    return min(
        largest_batch(workload, d.memory_bytes, memory_constants(d)) for d in cluster.devices
    )


@functools.lru_cache(maxsize=256)
def cluster_of(text: str) -> Cluster:
    """parse_cluster, remembered."""
    return parse_cluster(text)


def _graph(reference: str, batch: int, **options: Any) -> Graph:
    """graph_of, remembered until a file it was made from changes."""
    own = {"batch": batch} if scheme_of(reference) == "python" else {}
    return _remembered_graph(file_stamp(reference), reference, **own, **options)


@functools.lru_cache(maxsize=256)
def _remembered_graph(stamp: object, reference: str, **options: Any) -> Graph:
    return graph_of(reference, **options)


def _prepare(
    model: Any, inputs: Any, loss: Any, cluster: str | Cluster, options: dict[str, Any]
) -> tuple[Workload, Cluster, Case]:
    reference = model if isinstance(model, str) else "module"
    text = cluster if isinstance(cluster, str) else cluster.spec
    case = Case.from_mapping({"model": reference, "cluster": text, **options})
    where = cluster_of(cluster) if isinstance(cluster, str) else cluster
    if isinstance(model, str):
        if inputs is not None or loss is not None:
            raise InputError("inputs and loss go with an nn.Module, not with a model reference")
        return workload_of(case)[0], where, case
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
    return Workload(graph, recipe), where, case


@functools.cache
def _field_types() -> dict[str, tuple[type, ...]]:
    hints = typing.get_type_hints(Case)
    return {
        name: typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        for name, hint in hints.items()
    }


def _typed(name: str, value: Any) -> Any:
    """The value in its field's type, or a sentence that says which type it should have."""
    allowed = _field_types()[name]
    if value is None and type(None) in allowed:
        return None
    if bool in allowed and isinstance(value, bool):
        return value
    if isinstance(value, bool):
        pass
    elif int in allowed and isinstance(value, (int, float)) and float(value).is_integer():
        return int(value)
    elif float in allowed and isinstance(value, (int, float)):
        return float(value)
    elif str in allowed and isinstance(value, str):
        return value
    elif name == "torch_version" and isinstance(value, float):
        return str(value)
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    expected = next(wanted[t] for t in allowed if t in wanted)
    raise InputError(f"{name}={value!r} must be {expected}")
