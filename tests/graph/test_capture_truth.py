"""Captured graphs equal what really runs: operators, shapes and FLOPs against CPU runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from foretell.graph import Graph
from foretell.graph.capture import Subject, capture
from foretell.graph.loss import default_loss
from foretell.graph.ops import OpClass
from foretell.graph.sources.python_source import subject_from_module
from foretell.graph.sources.timm_source import build_timm
from foretell.graph.whole_rows import assume_whole_rows
from tests.graph.real_run import graph_calls, run_for_real
from tests.graph.zoo import BATCH, HF, OWN, TIMM, Specimen, cross_entropy

CPU_HABITS = {
    # CPU convolutions return 1x1 maps in another stride order, which a later view must copy.
    "convnext_atto": ("as_strided", "new_zeros", "copy"),
    # Writing a constant into a slice is a fill on CPU and a copy elsewhere.
    "t5": ("scalar_tensor", "copy", "fill"),
}


@pytest.mark.parametrize("specimen", OWN, ids=str)
def test_own_models_run_the_captured_operators(specimen: Specimen) -> None:
    torch.manual_seed(0)
    real_module = specimen.build()
    inputs = specimen.inputs(BATCH)
    with torch.device("meta"):
        subject = subject_from_module(specimen.build(), specimen.inputs(BATCH), specimen.loss)
    ignored = () if specimen.layout_copies else ("clone",)
    assert_same(subject, real_module, _call(inputs), specimen.loss or default_loss, ignored)


@pytest.mark.parametrize("name", TIMM)
def test_timm_models_run_the_captured_operators(name: str) -> None:
    import timm

    subject = build_timm(name, image_size=TIMM[name])
    size = TIMM[name]
    extra = {"img_size": size} if size == 224 and "224" in name else {}
    real = timm.create_model(name, **extra)
    inputs = [torch.rand(BATCH, 3, size, size)], {}
    assert_same(subject, real, inputs, cross_entropy, CPU_HABITS.get(name, ()))


@pytest.mark.parametrize("model_type", HF)
def test_hugging_face_models_run_the_captured_operators(model_type: str) -> None:
    task, facts = HF[model_type]
    real, meta = _hf_model(task, model_type, facts), None
    with torch.device("meta"):
        meta = _hf_model(task, model_type, facts)

    def inputs(batch: int) -> tuple[list[Any], dict[str, Any]]:
        ids = torch.zeros(batch, 12, dtype=torch.int64)
        return [], {"input_ids": ids, "labels": ids}

    subject = Subject(module=meta, inputs=inputs)
    with assume_whole_rows():  # seven scalar checks of positions, which capture answers itself
        habits = CPU_HABITS.get(model_type, ())
        assert_same(subject, real, inputs(BATCH), default_loss, habits)


def test_lstm_is_one_operator_with_all_its_flops() -> None:
    with torch.device("meta"):
        lstm = torch.nn.LSTM(10, 20, num_layers=2, bidirectional=True, batch_first=True)
        subject = subject_from_module(lstm, torch.empty(3, 7, 10))
    graph = capture(subject).at(3)
    first = 2 * 4 * 20 * (10 + 20)
    second = 2 * 4 * 20 * (40 + 20)
    forward = 2 * 3 * 7 * (first + second)
    kinds = [i for i, n in enumerate(graph.kinds.name) if n == "rnn"]
    assert len(kinds) == 1
    assert graph.kind_flops[kinds[0]] == forward
    assert "rnn_backward" in graph.kinds.name


def test_attention_is_one_operator_with_its_true_flops() -> None:
    subject = build_timm("vit_tiny_patch16_224")
    graph = capture(subject).at(4)
    chosen = [i for i, n in enumerate(graph.kinds.name) if n == "attention"]
    assert len(chosen) == 1
    assert graph.kind_counts[chosen[0]] == 12
    assert graph.kind_flops[chosen[0]] == 2 * 2 * 4 * 3 * 197 * 197 * 64


def assert_same(
    subject: Subject, real_module: Any, inputs: Any, loss: Any, ignored: tuple[str, ...] = ()
) -> None:
    graph = capture(subject).at(BATCH)
    real_module.train()
    real = run_for_real(real_module, inputs, loss)
    ours, theirs = (
        Counter({key: n for key, n in calls.items() if key[0] not in ignored})
        for calls in (graph_calls(graph), real.calls)
    )
    assert ours == theirs, f"only captured: {ours - theirs}\nonly real: {theirs - ours}"
    assert _contraction_flops(graph) == real.flops


def _contraction_flops(graph: Graph) -> int:
    """FLOPs without attention, whose CPU kernel torch does not count."""
    plain = graph.kinds.op_class != OpClass.ATTENTION
    return int((graph.kind_flops * graph.kind_counts)[plain].sum())


def _call(inputs: Any) -> tuple[list[Any], dict[str, Any]]:
    return (list(inputs) if isinstance(inputs, tuple) else [inputs]), {}


def _hf_model(task: str, model_type: str, facts: dict[str, Any]) -> Any:
    import transformers

    no_dropout = {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "attention_dropout": 0.0,
        "dropout": 0.0,
        "dropout_rate": 0.0,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "max_position_embeddings": 32}
    if model_type in ("gpt2", "t5", "distilbert"):
        sizes = {}
    config = transformers.AutoConfig.for_model(model_type, **sizes, **no_dropout, **facts)
    config.use_cache = False
    if model_type == "t5":
        config.decoder_start_token_id = 0
    factory = {
        "masked-lm": transformers.AutoModelForMaskedLM,
        "causal-lm": transformers.AutoModelForCausalLM,
        "seq2seq-lm": transformers.AutoModelForSeq2SeqLM,
    }[task]
    # CPU's fused attention does not differentiate T5's position bias; GPU's does.
    how = "eager" if model_type == "t5" else "sdpa"
    return factory.from_config(config, attn_implementation=how)
