"""In which order captured tensors lie in memory."""

from __future__ import annotations

import pytest
import torch

from foretell.graph.capture import CaptureOptions, capture
from foretell.graph.graph import ATTRS, Graph
from foretell.graph.layout import Layout, layout_of
from foretell.graph.ops import OpClass
from foretell.graph.sources.timm_source import build_timm

LAST = torch.channels_last


def orders(graph: Graph, name: str, attr: str = "channels_last") -> set[bool]:
    """What the graph's operators of a name say of their layout."""
    column = graph.kinds.attrs[:, ATTRS.index(attr)]
    return {bool(column[k]) for k in graph.op_kind if graph.kinds.name[k] == name}


def test_channels_last_goes_from_the_input_through_the_whole_network() -> None:
    for last in (False, True):
        options = CaptureOptions(mode="train", channels_last=last)
        graph = capture(build_timm("resnet18"), options)
        for name in ("convolution", "native_batch_norm", "convolution_backward"):
            assert orders(graph, name) == {last}, name


def test_a_network_that_permutes_its_activations_convolves_with_channels_last() -> None:
    graph = capture(build_timm("convnext_atto"), CaptureOptions(mode="infer"))
    assert orders(graph, "convolution") == {False, True}  # only the stem has them first


def test_norms_over_groups_put_channels_first_again() -> None:
    options = CaptureOptions(mode="infer", channels_last=True)
    graph = capture(build_timm("resnet50_gn"), options)
    assert orders(graph, "convolution") == {True}
    assert orders(graph, "convolution", "permuted") == {
        False,
        True,
    }  # only the stem finds them last


@pytest.mark.parametrize(
    ("op_class", "inputs", "expected"),
    [
        (OpClass.CONV, [torch.empty(2, 3, 4, 5).contiguous(memory_format=LAST)], Layout(True)),
        (OpClass.CONV, [torch.empty(2, 3, 4, 5)], Layout()),
        (  # all but the first token, as channels of a picture
            OpClass.CONV,
            [torch.empty(2, 21, 3)[:, 1:].transpose(1, 2).reshape(2, 3, 4, 5)],
            Layout(True),
        ),
        (  # the weight alone asks for it: the input is turned first
            OpClass.CONV,
            [torch.empty(2, 3, 4, 5), torch.empty(6, 3, 1, 1).to(memory_format=LAST)],
            Layout(True, permuted=True),
        ),
        (OpClass.ELEMENTWISE, [torch.empty(4, 6), torch.empty(6, 4).t()], Layout(permuted=True)),
        (OpClass.ELEMENTWISE, [torch.empty(4, 6), torch.empty(1, 6)], Layout()),
        (OpClass.ELEMENTWISE, [torch.empty(4, 12)[:, :6]], Layout(sliced=True)),
        (OpClass.MATMUL, [torch.empty(4, 12)[:, :6], torch.empty(6, 4)], Layout()),
    ],
)
def test_what_of_an_order_counts(
    op_class: OpClass, inputs: list[torch.Tensor], expected: Layout
) -> None:
    outputs = [torch.empty(4, 6)] if inputs[0].dim() == 2 else []
    assert layout_of(op_class, inputs, outputs) == expected
