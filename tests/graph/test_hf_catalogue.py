"""Hugging Face architectures are found by name, count what was published, and can be captured."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from foretell.errors import CaptureError, InputError, MissingExtraError, UnknownNameError
from foretell.graph import Graph
from foretell.graph.capture import Subject, capture
from foretell.graph.loss import default_loss
from foretell.graph.sources import hf_build
from foretell.graph.sources.hf_build import build_model, example_inputs
from foretell.graph.sources.hf_catalogue import (
    TASKS,
    Entry,
    entry,
    entry_from_config_file,
    names,
)
from tests.graph.real_run import graph_calls, run_for_real

ARCHITECTURES = sorted({entry(name).name for name in names()})
TINY_LLAMA = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
ONE_PER_TASK_AND_MIXTURE = [
    "bert-base-uncased",
    "deberta-v3-small",
    "gpt2",
    "flan-t5-small",
    "bart-base",
    "vit-base-patch16-224",
    "clip-vit-base-patch32",
    "whisper-tiny",
    "wav2vec2-base",
    "wavlm-base-plus",
    "Mixtral-8x7B-v0.1",
    "OLMoE-1B-7B-0924",
    "gpt-oss-20b",
    "granite-3.0-1b-a400m-base",
    "Qwen1.5-MoE-A2.7B",
    "DeepSeek-V2-Lite",
]


def test_the_catalogue_knows_many_models_of_every_task() -> None:
    assert len(ARCHITECTURES) >= 40
    assert {entry(name).task for name in names()} == set(TASKS)


def test_no_two_names_differ_only_in_case() -> None:
    assert len({name.lower() for name in names()}) == len(names())


def test_every_name_is_found_without_its_owner() -> None:
    for name in names():
        assert entry(name.partition("/")[2]).name == entry(name).name


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("META-LLAMA/llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("gpt2", "openai-community/gpt2"),
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-70B"),
    ],
)
def test_lookup_ignores_case_owner_and_edition(given: str, found: str) -> None:
    assert entry(given).name == found


def test_an_unknown_name_gets_near_matches_and_another_way() -> None:
    with pytest.raises(UnknownNameError, match=r"Llama-3\.1-8B") as caught:
        entry("meta-llama/Llama-3.1-8")
    assert "or give the path of a config.json" in str(caught.value)
    with pytest.raises(UnknownNameError, match=r"bert-base-uncased"):
        entry("bert-base-uncase")
    with pytest.raises(UnknownNameError, match=r"'qqqqqq': give the path of a config\.json"):
        entry("qqqqqq")


def test_facts_cannot_be_changed_by_a_caller() -> None:
    with pytest.raises(TypeError):
        entry("gpt2").config["n_layer"] = 1  # type: ignore[index]


def test_a_field_can_be_null() -> None:
    assert entry("Mistral-7B-v0.3").config["sliding_window"] is None


def test_the_catalogue_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from foretell.graph.sources.hf_catalogue import entry; entry('gpt2');"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("config", "task"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, "causal-lm"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "causal-lm"),
        ({"model_type": "roberta", "architectures": ["RobertaForMaskedLM"]}, "masked-lm"),
        (
            {"model_type": "bert", "architectures": ["BertForSequenceClassification"]},
            "sequence-classification",
        ),
        (
            {"model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"]},
            "image-classification",
        ),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "seq2seq-lm"),
        (
            {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]},
            "speech-seq2seq",
        ),
        ({"model_type": "clip", "architectures": ["CLIPModel"]}, "clip"),
        ({"model_type": "hubert", "architectures": ["HubertModel"]}, "ctc"),
        ({"model_type": "qwen3"}, "causal-lm"),
        ({"model_type": "led", "architectures": ["LEDForConditionalGeneration"]}, "seq2seq-lm"),
    ],
)
def test_a_config_file_tells_the_task(tmp_path: Path, config: dict[str, object], task: str) -> None:
    found = entry_from_config_file(_written(tmp_path, config))
    assert found.task == task
    assert found.model_type == config["model_type"]
    assert found.parameters is None


def test_a_directory_stands_for_its_config_file(tmp_path: Path) -> None:
    _written(tmp_path, {"model_type": "llama", **TINY_LLAMA})
    assert entry_from_config_file(tmp_path).config["hidden_size"] == 32


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not valid JSON"),
        ("[]", "holds a JSON list"),
        ("{}", "has no model_type"),
        ('{"model_type": "unheard-of"}', "does not say what"),
        ('{"model_type": "unheard-of", "architectures": 7}', "does not say what"),
    ],
)
def test_a_bad_config_file_is_refused_by_name(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(InputError, match=problem) as caught:
        entry_from_config_file(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_config_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        entry_from_config_file(tmp_path / "config.json")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_built_model_counts_the_published_parameters(name: str) -> None:
    model = build_model(entry(name))
    built = sum(p.numel() for p in model.parameters())
    published = entry(name).parameters
    assert published is not None
    rounded = len(str(published).rstrip("0")) <= 4
    assert built == pytest.approx(published, rel=0.01 if rounded else 0)


def test_a_70b_model_builds_in_a_moment_and_takes_no_memory() -> None:
    build_model(entry("gpt2"))  # the first build imports transformers
    start = time.perf_counter()
    model = build_model(entry("Llama-3.1-70B"))
    assert time.perf_counter() - start < 2
    assert all(t.is_meta for t in (*model.parameters(), *model.buffers()))


@pytest.mark.parametrize("name", ["opt-350m", "wav2vec2-base", "nllb-200-distilled-600M"])
def test_nothing_of_a_built_model_is_left_to_chance_or_cached(name: str) -> None:
    model = build_model(entry(name))
    config: Any = model.config
    assert model.training
    assert not getattr(config, "use_cache", False)
    assert not getattr(config, "apply_spec_augment", False)
    assert not any(
        getattr(config, f, 0) for f in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")
    )


def test_unknown_code_is_never_run(tmp_path: Path) -> None:
    config = {
        "model_type": "unheard-of",
        "architectures": ["UnheardOfForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_unheard_of.UnheardOfForCausalLM"},
    }
    with pytest.raises(InputError, match=r"'unheard-of'.* never run"):
        build_model(entry_from_config_file(_written(tmp_path, config)))


def test_a_known_type_with_own_code_is_built_from_the_library(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"},
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8"},
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        **TINY_LLAMA,
    }
    found = entry_from_config_file(_written(tmp_path, config))
    model = build_model(found)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert next(model.parameters()).dtype == torch.float32
    assert _captured(found, seq=16).kind_counts.sum() > 100


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"task": "ctc"}, "cannot be trained for ctc"),
        ({"config": {**TINY_LLAMA, "hidden_size": 33}}, "does not describe a 'llama' model"),
        ({"config": {**TINY_LLAMA, "hidden_size": "wide"}}, "does not describe a 'llama' model"),
    ],
)
def test_an_impossible_model_is_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        build_model(dataclasses.replace(_tiny_llama(), **wrong))


def test_attention_can_be_spelled_out_but_not_invented() -> None:
    model: Any = build_model(_tiny_llama(), attention="eager")
    assert model.config._attn_implementation == "eager"
    with pytest.raises(InputError, match="attention='flash'"):
        build_model(_tiny_llama(), attention="flash")


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"foretell\[hf\]"):
        build_model(entry("gpt2"))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("Llama-3.2-1B", {"input_ids": (3, 2048), "labels": (3, 2048)}),
        ("gpt2", {"input_ids": (3, 1024), "labels": (3, 1024)}),
        ("roberta-base", {"input_ids": (3, 512), "labels": (3, 512)}),
        ("t5-small", {"input_ids": (3, 512), "labels": (3, 512)}),
        ("electra-small-discriminator", {"input_ids": (3, 512), "labels": (3,)}),
        ("dinov2-small", {"pixel_values": (3, 3, 518, 518), "labels": (3,)}),
        ("clip-vit-base-patch32", {"input_ids": (3, 77), "pixel_values": (3, 3, 224, 224)}),
        ("whisper-tiny", {"input_features": (3, 80, 3000), "labels": (3, 448)}),
        ("wav2vec2-base", {"input_values": (3, 160_000), "labels": (3, 150)}),
    ],
)
def test_inputs_have_the_usual_size(name: str, shapes: dict[str, tuple[int, ...]]) -> None:
    inputs = example_inputs(entry(name), build_model(entry(name)), batch=3)
    tensors = {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}
    assert {k: tuple(v.shape) for k, v in tensors.items()} == shapes
    assert all(v.is_meta for v in tensors.values())


@pytest.mark.parametrize(
    ("name", "limit"),
    [("gpt2", 1024), ("roberta-base", 512), ("whisper-tiny", 448), ("clip-vit-base-patch32", 77)],
)
def test_a_sequence_beyond_the_positions_is_refused(name: str, limit: int) -> None:
    model = build_model(entry(name))
    example_inputs(entry(name), model, batch=1, seq=limit)
    with pytest.raises(InputError, match=rf"seq={limit + 1} .*{name} .* {limit} tokens"):
        example_inputs(entry(name), model, batch=1, seq=limit + 1)


def test_relative_positions_have_no_limit() -> None:
    inputs = example_inputs(entry("t5-small"), build_model(entry("t5-small")), batch=1, seq=9999)
    assert inputs["input_ids"].shape == (1, 9999)


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"batch": 1, "seq": 0}])
def test_empty_inputs_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        example_inputs(_tiny_llama(), build_model(_tiny_llama()), **sizes)


@pytest.mark.parametrize("name", ["vit-base-patch16-224", "swin-tiny-patch4-window7-224"])
def test_images_can_have_another_size(name: str) -> None:
    found = entry(name)
    model = build_model(found)
    inputs = example_inputs(found, model, batch=2, image_size=256)
    assert inputs["pixel_values"].shape == (2, 3, 256, 256)
    assert model(**inputs).logits.shape == (2, 1000)


@pytest.mark.parametrize("name", ONE_PER_TASK_AND_MIXTURE)
def test_a_whole_step_can_be_captured(name: str) -> None:
    graph = _captured(entry(name))
    trained = graph.parameters.numel.sum()
    assert trained == pytest.approx(entry(name).parameters, rel=0.01)
    assert {"mm", "_grouped_mm"} & set(graph.kinds.name)


def test_causal_attention_needs_no_mask() -> None:
    made_for_masks = {"tril", "where", "bitwise_and", "all", "cumsum", "le"}
    for name in ("Llama-3.2-1B", "bart-base"):
        assert not made_for_masks & set(_captured(entry(name)).kinds.name)


def test_transformers_is_itself_again_after_a_capture_that_failed() -> None:
    from transformers import masking_utils

    before = dict(vars(masking_utils))
    model = build_model(_tiny_llama())
    with pytest.raises(CaptureError, match="input_ids"):
        capture(Subject(module=model, inputs=lambda batch: ((), {})))
    assert dict(vars(masking_utils)) == before


@pytest.mark.parametrize(
    "facts",
    [
        {"model_type": "llama", "config": TINY_LLAMA},
        {"model_type": "mixtral", "config": {**TINY_LLAMA, "num_local_experts": 4}},
        {
            "model_type": "olmoe",
            "config": {**TINY_LLAMA, "num_experts": 4, "num_experts_per_tok": 2},
        },
    ],
    ids=lambda facts: str(facts["model_type"]),
)
def test_a_real_step_runs_the_captured_products(facts: dict[str, Any]) -> None:
    import transformers

    found = dataclasses.replace(_tiny_llama(), **facts)
    config: Any = build_model(found).config
    real = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    ids = torch.randint(3, 90, (3, 16))
    run = run_for_real(real, ([], {"input_ids": ids, "labels": ids}), default_loss)
    graph = _captured(found, seq=16).at(3)
    assert _products(graph_calls(graph)) == _products(run.calls)


def test_tasks_and_auto_classes_are_the_same_set() -> None:
    assert set(hf_build._AUTO_CLASS) == set(TASKS)


def _products(calls: Counter[Any]) -> Counter[Any]:
    heavy = ("mm", "bmm", "addmm", "_grouped_mm", "attention", "attention_backward", "embedding")
    return Counter({key: n for key, n in calls.items() if key[0] in heavy})


def _captured(found: Entry, seq: int | None = None) -> Graph:
    model = build_model(found)

    def inputs(batch: int) -> tuple[tuple[()], dict[str, Any]]:
        return (), dict(example_inputs(found, model, batch=batch, seq=seq))

    return capture(Subject(module=model, inputs=inputs))


def _tiny_llama() -> Entry:
    return Entry("tiny", "llama", "causal-lm", None, TINY_LLAMA)


def _written(directory: Path, config: dict[str, Any]) -> Path:
    file = directory / "config.json"
    file.write_text(json.dumps(config))
    return file
