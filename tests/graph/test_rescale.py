"""A graph captured once equals a capture at any other batch, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph import Graph
from foretell.graph.capture import CaptureOptions, Subject, capture
from foretell.graph.sources import subject_of

# Vision networks of every kind timm has, and transformers of every kind Hugging Face has.
TIMM = (
    "resnet18 resnext50_32x4d efficientnet_b0 mobilenetv3_small_050 densenet121 regnety_002 "
    "convnext_atto vgg11 ghostnet_050 hrnet_w18_small vit_tiny_patch16_224 deit_tiny_patch16_224 "
    "swin_tiny_patch4_window7_224 beit_base_patch16_224 mixer_s32_224 pit_ti_224 levit_128s "
    "xcit_nano_12_p16_224 coat_tiny maxvit_tiny_rw_224 poolformer_s12 edgenext_xx_small "
    "sequencer2d_s nfnet_l0"
).split()
HF = (
    "google-bert/bert-base-uncased openai-community/gpt2 facebook/opt-125m google-t5/t5-small "
    "EleutherAI/pythia-70m bigscience/bloom-560m meta-llama/Llama-3.2-1B facebook/bart-base "
    "openai/clip-vit-base-patch32 openai/whisper-tiny facebook/wav2vec2-base Qwen/Qwen3-0.6B"
).split()
OTHER = (24, 7)


@pytest.mark.parametrize("reference", [f"timm:{n}" for n in TIMM] + [f"hf:{n}" for n in HF])
def test_rescaling_equals_capturing_at_another_batch(reference: str) -> None:
    seq = 64 if "wav2vec2" not in reference and reference.startswith("hf:") else None
    options = CaptureOptions(precision="amp-fp16" if reference.startswith("timm:") else "fp32")
    graph = capture(subject_of(reference, seq=seq), options)
    batch = OTHER[len(reference) % 2]
    direct = capture(_at_fixed_batch(subject_of(reference, seq=seq), batch), options)
    assert_equal_at(graph.at(batch), direct)


def test_a_batch_below_one_is_refused() -> None:
    graph = capture(subject_of("timm:resnet18"))
    with pytest.raises(Exception, match="batch 0"):
        graph.at(0)


def test_contrastive_losses_grow_with_the_square_of_the_batch() -> None:
    graph = capture(subject_of("hf:openai/clip-vit-base-patch32"))
    assert graph.kinds.flops[:, 2].any()


def assert_equal_at(scaled: Graph, direct: Graph) -> None:
    """Same operators in the same order with the same costs, and the same memory."""
    assert scaled.op_name == direct.op_name
    for column in ("kind_flops", "kind_bytes_read", "kind_bytes_written"):
        left = getattr(scaled, column)[scaled.op_kind]
        right = getattr(direct, column)[direct.op_kind]
        assert np.array_equal(left, right), column
    assert np.array_equal(scaled.storage_bytes, direct.storage_bytes)
    assert np.array_equal(scaled.storages.alloc_op, direct.storages.alloc_op)
    assert np.array_equal(scaled.storages.free_op, direct.storages.free_op)


def _at_fixed_batch(subject: Subject, batch: int) -> Subject:
    """The subject fed with one batch size whatever it is asked for, so that nothing scales."""
    inputs = subject.inputs
    subject.inputs = lambda _: inputs(batch)
    return subject
