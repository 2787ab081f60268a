"""PipeDream's profiles: forward and backward time of every layer of a network, on one GPU.

The GPU is not told, so rows have no device. Batch and image size follow from the sizes of
activations in fp32. Where that describes a layer exactly it becomes an op: reference, else its
text stays the model. The time of a layer is its forward and backward together. Lines with an edge
between two layers are no rows.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretell.data.importers.operators import linear, operator_record, rowwise
from foretell.data.importers.rows import LINE, BadRowError, Row, lines, taken
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record, Reject
from foretell.graph.sources.op_shape import op_reference

_LAYER = re.compile(
    r"(?P<id>\w+) -- (?P<text>.*) -- forward_compute_time=(?P<forward>[^,]*), "
    r"backward_compute_time=(?P<backward>[^,]*), activation_size=(?P<activation>[^,]*), "
    r"parameter_size=(?P<parameters>.*)"
)
_EDGE = re.compile(r"\t(?P<from>\w+) -- (?P<to>\w+)")
_UNNAMED = re.compile(r"(?:^|, )(\d+)(?=[,)])")
_NUMBERS = re.compile(r"\d+(?:\.\d+)?")
_ITEMSIZE = 4
_IMAGE_NUMBERS = 3 * 224 * 224
_OPTIONS = {"mode": "train", "precision": "fp32"}
_KEEP_CHANNELS = ("ReLU", "Dropout", "Add", "MaxPool2d", "AvgPool2d")
_FARTHEST = 50
_POOLS = {"MaxPool2d": "max_pool2d", "AvgPool2d": "avg_pool2d"}


@dataclass(frozen=True)
class _Layer:
    id: str
    text: str
    forward_s: float
    backward_s: float
    outputs: tuple[float, ...]
    """How many numbers each output holds."""
    parameter_bytes: float

    @property
    def kind(self) -> str:
        """Conv2d of Conv2d(3, 64, ...)."""
        return self.text.partition("(")[0].strip()

    @property
    def unnamed(self) -> list[int]:
        """[3, 64, ...] of Conv2d(3, 64, ...)."""
        return [int(number) for number in _UNNAMED.findall(self.text.partition("(")[2])]

    def named(self, name: str) -> int | None:
        """What name= says; of a pair (3, 3) the one number it holds twice."""
        match = re.search(rf"\b{name}=\(?(\d+)(?:, (\d+)\))?", self.text)
        return int(match[1]) if match and match[2] in (None, match[1]) else None


class _Network:
    """Layers and what comes before each."""

    def __init__(self, layers: Sequence[_Layer], edges: Sequence[tuple[str, str]]) -> None:
        self._layers = {layer.id: layer for layer in layers}
        self._before: dict[str, list[str]] = defaultdict(list)
        for start, end in edges:
            self._before[end].append(start)
        self.batch = _batch(layers)

    def before(self, layer: _Layer) -> list[_Layer]:
        """The layers whose outputs a layer reads."""
        return [self._layers[i] for i in self._before[layer.id] if i in self._layers]

    def channels(self, layer: _Layer, steps: int = _FARTHEST) -> int | None:
        """Channels of a layer's output, told by it or by the layers before it."""
        if not steps:
            return None
        if layer.kind == "Conv2d":
            return layer.unnamed[1]
        if layer.kind == "BatchNorm2d":
            return layer.unnamed[0]
        found = [self.channels(previous, steps - 1) for previous in self.before(layer)]
        if layer.text == "Concat(1)" and found and None not in found:
            return sum(channels or 0 for channels in found)
        return found[0] if layer.kind in _KEEP_CHANNELS and found else None


def read(folder: Path) -> Rows:
    """All layers of all networks."""
    for path in find(folder, *SOURCE.files):
        yield from _rows(folder, path)


def _rows(folder: Path, path: Path) -> Rows:
    found: list[tuple[Row, _Layer | Reject]] = []
    edges: list[tuple[str, str]] = []
    for row in lines(folder, path):
        edge = _EDGE.match(row.cells.get(LINE, ""))
        if edge:
            edges.append((edge["from"], edge["to"]))
        elif row.flaw or row.text(LINE):
            found.append((row, taken(row, _parsed)))
    network = _Network([layer for _, layer in found if isinstance(layer, _Layer)], edges)
    for row, layer in found:
        if isinstance(layer, Reject):
            yield layer
        else:
            yield taken(row, _record, layer, network, _name(path))


def _parsed(row: Row) -> _Layer:
    match = _LAYER.fullmatch(row.text(LINE))
    if match is None:
        raise BadRowError("the line is neither a layer nor an edge")
    try:
        return _Layer(
            id=match["id"],
            text=" ".join(match["text"].split()),
            forward_s=float(match["forward"]) / 1e3,
            backward_s=float(match["backward"]) / 1e3,
            outputs=tuple(float(n) / _ITEMSIZE for n in _NUMBERS.findall(match["activation"])),
            parameter_bytes=float(match["parameters"]),
        )
    except ValueError:
        raise BadRowError("a time or a size is not a number") from None


def _name(path: Path) -> str:
    """The network: what a flat file is called, or upstream's folder."""
    flat = path.name.removesuffix(".gz").removesuffix("graph.txt").rstrip(".")
    return flat or path.parent.name


def _batch(layers: Sequence[_Layer]) -> int | None:
    """The batch as the layer says that leaves no choice: rows of a product, states of an LSTM."""
    for layer in layers:
        outputs = layer.named("out_features")
        if layer.kind == "Linear" and outputs and layer.outputs:
            return _whole(layer.outputs[0] / outputs)
    for layer in layers:
        hidden = layer.unnamed[1:2]
        if layer.kind == "LSTM" and len(layer.outputs) > 1 and hidden and hidden[0]:
            return _whole(layer.outputs[1] / hidden[0])
    for layer in layers:
        if layer.kind == "Input" and layer.outputs:
            return _whole(layer.outputs[0] / _IMAGE_NUMBERS)
    return None


def _record(row: Row, layer: _Layer, network: _Network, name: str) -> Record:
    if layer.kind.startswith("Input"):
        raise BadRowError("the time of loading data, not of a layer")
    if layer.forward_s + layer.backward_s <= 0:
        raise BadRowError("a layer without time of its own")
    return operator_record(
        _reference(layer, network) or layer.text,
        device="",
        batch=network.batch,
        options=_OPTIONS,
        time_s=layer.forward_s + layer.backward_s,
        forward_s=layer.forward_s,
        backward_s=layer.backward_s,
        metrics={
            "activation_bytes": sum(layer.outputs) * _ITEMSIZE,
            "parameter_bytes": layer.parameter_bytes,
        },
        source=SOURCE.name,
        origin=row.origin,
        environment={"network": name, "layer": layer.id},
    )


def _reference(layer: _Layer, network: _Network) -> str | None:
    """The op: reference that describes the layer exactly, or None."""
    if not network.batch or not layer.outputs:
        return None
    width = _whole(layer.outputs[0] / network.batch)
    if width is None:
        return None
    if layer.kind in ("ReLU", "Dropout"):
        return rowwise(layer.kind.lower(), width)
    if layer.kind == "Linear":
        inner, outer = layer.named("in_features"), layer.named("out_features")
        return linear(inner, outer) if inner and outer else None
    if layer.kind == "BatchNorm2d":
        channels = layer.unnamed[0]
        size = _side(width, channels)
        return op_reference("batch_norm", channels=channels, size=size) if size else None
    if layer.kind == "Embedding" or re.fullmatch(r"LSTM\(\d+, \d+\)", layer.text):
        first, second = layer.unnamed[:2]
        seq = _whole(width / second)
        if seq is None:
            return None
        if layer.kind == "LSTM":
            return op_reference("lstm", **{"in": first, "hidden": second, "seq": seq})
        return op_reference("embedding", rows=first, width=second, seq=seq)
    return _windowed(layer, network, width)


def _windowed(layer: _Layer, network: _Network, width: int) -> str | None:
    """Convolutions and pools whose padding is half their kernel."""
    kernel, stride = layer.named("kernel_size"), layer.named("stride")
    before = network.before(layer)
    if not before or not kernel or not stride or "ceil_mode=True" in layer.text:
        return None
    if (layer.named("padding") or 0) != kernel // 2:
        return None
    is_conv = layer.kind == "Conv2d"
    inner, outer = layer.unnamed[:2] if is_conv else [network.channels(layer)] * 2
    size = _side(before[0].outputs[0] / (network.batch or 1), inner or 0)
    if not size or not inner or not outer:
        return None
    side = (size + 2 * (kernel // 2) - kernel) // stride + 1
    if _side(width, outer) != side:
        return None
    window = {"size": size, "kernel": kernel, "stride": stride}
    if is_conv:
        sizes = {"in": inner, "out": outer, "groups": layer.named("groups") or 1}
        return op_reference("conv2d", **sizes, **window)
    return op_reference(_POOLS[layer.kind], channels=outer, **window)


def _whole(value: float) -> int | None:
    return round(value) if value >= 1 and value == round(value) else None


def _side(numbers: float, channels: int) -> int | None:
    """The side of square images with so many channels."""
    area = _whole(numbers / channels) if channels else None
    side = math.isqrt(area or 0)
    return side if area and side * side == area else None


SOURCE = Source(
    name="pipedream",
    repository="https://github.com/msr-fiddle/pipedream",
    commit="7db6a1c3e64996d5b319faec6ca38cb31bfea1c4",
    licence="MIT",
    use="fit",
    files=("*graph.txt",),
    read=read,
)
