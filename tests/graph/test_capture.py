"""Capture: what users hand in, what they get back, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import foretell
from foretell.errors import InputError
from foretell.graph import Graph, GraphCache, Phase, Role, graph_of, load_graph, save_graph
from foretell.graph import with_optimizer as add_optimizer
from foretell.graph.blocks import recompute_paths, repeated_blocks
from foretell.graph.ops import DType, OpClass


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.head = nn.Linear(8, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids).mean(1))


def test_a_users_module_stays_as_it_was_and_tied_weights_count_once() -> None:
    module = Tied().eval()
    graph = foretell.capture(module, torch.zeros(2, 5, dtype=torch.int64))
    assert graph.parameters.total == 240
    assert module.embed.weight.device.type == "cpu"
    assert module.head.weight is module.embed.weight
    assert not module.training


def test_backward_operators_know_their_module_and_their_forward_twin() -> None:
    graph = graph_of("timm:resnet18")
    backward = [i for i, n in enumerate(graph.op_name) if n == "convolution_backward"]
    for i in backward:
        twin = int(graph.op_forward[i])
        assert graph.op_name[twin] == "convolution"
        assert graph.op_module[twin] == graph.op_module[i]
    assert "layer4.1.conv2" in {graph.modules[graph.op_module[i]] for i in backward}


def test_edges_follow_the_data_and_never_point_backwards() -> None:
    graph = graph_of("timm:vit_tiny_patch16_224", precision="amp-fp16")
    assert (graph.edge_src < graph.edge_dst).all()
    reached = np.isin(np.arange(len(graph)), graph.edge_dst)
    assert reached.mean() > 0.8


def test_parameters_are_found_through_casts() -> None:
    graph = graph_of("timm:resnet18", precision="amp-fp16")
    convs = [i for i, n in enumerate(graph.op_name) if n == "convolution"]
    names = {graph.parameters.name[graph.op_parameter[i]] for i in convs}
    assert "layer1.0.conv1.weight" in names
    assert len(names) == len(convs)


def test_saved_activations_end_in_backward() -> None:
    graph = graph_of("timm:resnet18")
    saved = graph.storages.role == Role.SAVED
    turn = np.flatnonzero(graph.op_phase == Phase.BACKWARD)[0]
    assert (graph.storages.alloc_op[saved] < turn).all()
    assert (graph.storages.free_op[saved] >= turn).all()
    assert graph.op_saved_bytes().sum() == graph.storage_bytes[saved].sum()


def test_operators_know_the_bytes_of_their_parameter() -> None:
    graph = graph_of("timm:resnet18")
    first = graph.op_name.index("convolution")
    assert graph.op_parameter_bytes()[first] == 4 * 64 * 3 * 7 * 7
    assert graph.op_parameter_bytes()[graph.op_name.index("max_pool2d_with_indices")] == 0


def test_the_optimizer_adds_one_operator_per_trainable_parameter() -> None:
    graph = graph_of("timm:resnet18")
    full = add_optimizer(graph, "adamw")
    added = full.phase_mask(Phase.OPTIMIZER).sum()
    assert added == graph.parameters.trainable.sum() == 62
    moved = (full.kind_bytes_read + full.kind_bytes_written)[full.op_kind][-added:].sum()
    assert moved == 20 * 4 * graph.parameters.total


def test_a_graph_survives_saving_byte_for_byte(tmp_path: Path) -> None:
    graph = graph_of("timm:resnet18", recompute="full")
    save_graph(graph, tmp_path / "g.npz")
    again = load_graph(tmp_path / "g.npz")
    assert again.content_hash == graph.content_hash
    assert again.meta == graph.meta
    assert (tmp_path / "g.npz").stat().st_size < 40_000


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04rubbish", b"\x93NUMPY"])
def test_a_damaged_graph_file_is_refused_and_never_served_from_the_cache(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "g.npz"
    path.write_bytes(content)
    with pytest.raises(foretell.InputError, match=r"g\.npz"):
        load_graph(path)
    cache = GraphCache(tmp_path)
    path.rename(cache._path({"a": 1}))
    assert cache.get({"a": 1}) is None


def test_pickles_in_a_graph_file_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", text=np.array([{"format": 3}], dtype=object))
    with pytest.raises(foretell.InputError, match="not a saved graph"):
        load_graph(tmp_path / "g.npz")


def test_content_hash_ignores_batch_and_tells_models_apart() -> None:
    a, b = graph_of("timm:resnet18"), graph_of("timm:resnet34")
    assert a.content_hash == a.at(64).content_hash != b.content_hash


def test_old_torch_spells_attention_out() -> None:
    new = graph_of("timm:vit_tiny_patch16_224")
    old = graph_of("timm:vit_tiny_patch16_224", fused_attention=False)
    assert "attention" in new.kinds.name
    assert "attention" not in old.kinds.name
    assert old.flops < new.flops  # fused backward computes the scores once more


def test_attention_of_five_dimensions_has_no_kernel_and_runs_in_full_precision() -> None:
    graph = graph_of("timm:nest_tiny", precision="amp-fp16", mode="infer")
    assert "attention" not in graph.kinds.name
    products = [k for k, name in enumerate(graph.kinds.name) if name == "bmm"]
    assert {DType(int(graph.kinds.dtype[k])) for k in products} == {DType.FP32}


def test_repeated_blocks_share_their_kinds() -> None:
    small = graph_of("transformer:layers=4,hidden=64,heads=4,seq=16,vocab=100")
    large = graph_of("transformer:layers=40,hidden=64,heads=4,seq=16,vocab=100")
    assert len(large) > 8 * len(small)
    assert len(large.kinds) == len(small.kinds)


@pytest.mark.parametrize(
    ("reference", "blocks"),
    [
        ("timm:resnet18", 8),
        ("timm:vit_tiny_patch16_224", 12),
        ("timm:swin_tiny_patch4_window7_224", 12),
    ],
)
def test_blocks_are_what_people_call_blocks(reference: str, blocks: int) -> None:
    from foretell.graph.sources import subject_of

    assert len(repeated_blocks(subject_of(reference).module)) == blocks


def test_named_modules_can_be_recomputed() -> None:
    from foretell.graph.sources import subject_of

    module = subject_of("timm:vit_tiny_patch16_224").module
    assert recompute_paths(module, ["mlp"]) == tuple(f"blocks.{i}.mlp" for i in range(12))
    assert recompute_paths(module, "selective") == tuple(f"blocks.{i}.attn" for i in range(12))


def test_dropout_keeps_one_byte_a_number() -> None:
    model = "transformer:layers=2,hidden=64,heads=2,seq=8,vocab=100"
    plain, dropped = (graph_of(f"{model}{flag}", precision="bf16") for flag in ("", ",dropout"))
    masks = 5 * 8 * 64  # of the embedding and twice in every block
    output = 2 * 8 * 64  # of the embedding's dropout, in place of the sum before it
    saved = [float(g.op_saved_bytes().sum()) for g in (plain, dropped)]
    assert saved[1] - saved[0] in (masks, masks + output)
    inference = graph_of(f"{model},dropout", mode="infer")
    assert "native_dropout" not in inference.op_name


def test_a_fused_loss_keeps_one_wide_softmax_and_returns_it_as_the_gradient() -> None:
    model = "transformer:layers=1,hidden=64,heads=2,seq=8,vocab=1000"
    plain, fused = (graph_of(f"{model}{flag}", precision="bf16") for flag in ("", ",fused_loss"))
    losses = [n for n, c in zip(fused.op_name, fused.op_class, strict=True) if c == OpClass.LOSS]
    assert losses == ["cross_entropy_", "cross_entropy_backward_"]
    wide = 4 * 8 * 1000
    counts = [int((g.storage_bytes == wide).sum()) for g in (plain, fused)]
    assert counts[1] == 1
    assert counts[0] >= 3
    forward, backward = (fused.op_name.index(n) for n in losses)
    assert fused.op_forward[backward] == forward


def test_a_fused_gate_saves_its_inputs_only() -> None:
    model = "transformer:layers=1,hidden=64,heads=2,seq=8,vocab=100,gated"
    plain, fused = (graph_of(f"{model}{flag}", precision="bf16") for flag in ("", ",fused_gate"))
    saved = [float(g.op_saved_bytes().sum()) for g in (plain, fused)]
    assert saved[0] - saved[1] == 2 * 8 * 256
    with pytest.raises(InputError, match="gated"):
        graph_of("transformer:layers=1,hidden=64,heads=2,seq=8,vocab=100,fused_gate")


def test_moe_experts_compute_topk_copies_of_each_token() -> None:
    graph: Graph = graph_of(
        "transformer:layers=1,hidden=64,heads=2,seq=16,vocab=50,experts=8,topk=2,ffn=128"
    )
    grouped = [i for i, n in enumerate(graph.kinds.name) if n == "_grouped_mm"]
    forward = 2 * (2 * 16) * 64 * 128
    assert forward in {int(graph.kind_flops[i]) for i in grouped}


def test_a_loss_nobody_can_train_is_explained() -> None:
    frozen = nn.Linear(3, 3).requires_grad_(False)
    with pytest.raises(foretell.CaptureError, match="trainable"):
        foretell.capture(frozen, torch.rand(2, 3))


def test_wrong_example_inputs_name_the_mismatch() -> None:
    with pytest.raises(foretell.CaptureError, match=r"reduction dim|mat1"):
        foretell.capture(nn.Linear(3, 3), torch.rand(2, 7))
