"""Build a Hugging Face architecture on the meta device, with inputs to train it on.

Meta tensors have shapes and no storage, so nothing is downloaded, initialised or allocated.
Attention is PyTorch's fused one where the architecture has it. Experts of a mixture run as
grouped matrix products (transformers' default, `config._experts_implementation = "grouped_mm"`),
whose shapes do not depend on where the tokens go.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from foretell.errors import InputError, MissingExtraError
from foretell.graph.sources.hf_catalogue import Entry
from foretell.graph.sources.torchvision_repair import repair_torchvision

if TYPE_CHECKING:
    from transformers import PretrainedConfig

ATTENTION = ("sdpa", "eager")

_AUTO_CLASS = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "image-classification": "AutoModelForImageClassification",
    "clip": "AutoModel",
    "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
    "ctc": "AutoModelForCTC",
}

# What a capture must not do: keep a cache, skip layers by chance, or mask a random part of the
# input, which needs values that meta tensors do not have.
_FOR_CAPTURE = {
    "use_cache": False,
    "layerdrop": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "apply_spec_augment": False,
}
# Facts of a checkpoint that say how it was stored, not what it computes.
_STORAGE = ("auto_map", "dtype", "quantization_config", "torch_dtype", "transformers_version")

_TEXT_LENGTH = {"causal-lm": 2048}
_OTHER_TEXT_LENGTH = 512
_LIMIT_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len")
_AUDIO_SAMPLES_PER_S = 16_000
_AUDIO_S = 10
_CHARACTERS_PER_S = 15


def build_model(entry: Entry, *, attention: str = "sdpa") -> torch.nn.Module:
    """The model of `entry` on the meta device, in float32 and in training mode.

    `attention` is "sdpa" (fused; architectures that lack it fall back to "eager") or "eager".
    """
    if attention not in ATTENTION:
        raise InputError(f"{attention=} is not known: use {' or '.join(ATTENTION)}")
    transformers = _transformers()
    with _quiet(transformers):
        model = _build(transformers, entry, attention)
    if entry.task == "ctc":
        model.loss_function = _ctc_loss
    if entry.task == "causal-lm":
        model.loss_type = "ForCausalLM"  # not guessed from class names such as GPT2LMHeadModel
    if entry.config.get("tie_word_embeddings") is False:
        _untie_output(model)
    trained: torch.nn.Module = model.train()
    return trained


def example_inputs(
    entry: Entry,
    model: torch.nn.Module,
    *,
    batch: int,
    seq: int | None = None,
    image_size: int | None = None,
) -> dict[str, Any]:
    """Meta inputs for `model(**inputs).loss`, labels included.

    `seq` counts tokens (of both sides of an encoder-decoder, of Whisper's transcript), or samples
    of 16 kHz audio for a CTC model. Left out, it is 2048 for decoders and 512 for other text
    models or less where the model's limit is lower, 448 for Whisper and 10 s for CTC.
    """
    for name, value in (("batch", batch), ("seq", seq), ("image_size", image_size)):
        if value is not None and value < 1:
            raise InputError(f"{name}={value} must be at least 1")
    config: Any = model.config
    if entry.task == "image-classification":
        return {**_pixels(model, config, batch, image_size), "labels": _integers(batch)}
    if entry.task == "clip":
        length = _text_length(entry, model, config.text_config, seq)
        return {
            "input_ids": _integers(batch, length),
            **_pixels(model, config.vision_config, batch, image_size),
            "return_loss": True,
        }
    if entry.task == "speech-seq2seq":
        frames = 2 * config.max_source_positions  # the encoder's convolutions halve them
        length = _within(entry, config.max_target_positions, seq, config.max_target_positions)
        return {
            "input_features": torch.empty(batch, config.num_mel_bins, frames, device="meta"),
            "labels": _integers(batch, length),
        }
    if entry.task == "ctc":
        samples = seq or _AUDIO_S * _AUDIO_SAMPLES_PER_S
        characters = max(1, samples * _CHARACTERS_PER_S // _AUDIO_SAMPLES_PER_S)
        return {
            "input_values": torch.empty(batch, samples, device="meta"),
            "labels": _integers(batch, characters),
        }
    length = _text_length(entry, model, config, seq)
    labels = (batch,) if entry.task == "sequence-classification" else (batch, length)
    return {"input_ids": _integers(batch, length), "labels": _integers(*labels)}


def _transformers() -> Any:
    repair_torchvision()
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("hf:... models", "hf") from None
    return transformers


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep advice about checkpoints, which we do not load, from the terminal."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)


def _build(transformers: Any, entry: Entry, attention: str) -> Any:
    if entry.model_type not in transformers.CONFIG_MAPPING:
        raise InputError(
            f"{entry.name} has model_type {entry.model_type!r}, which transformers"
            f" {transformers.__version__} does not know, and code shipped beside a checkpoint is"
            " never run: install a transformers that knows it, or give a function that builds the"
            " model, as in my_model.py:build"
        )
    config_class = transformers.CONFIG_MAPPING[entry.model_type]
    auto_class = getattr(transformers, _AUTO_CLASS[entry.task])
    if config_class not in auto_class._model_mapping:
        raise InputError(
            f"{entry.name} cannot be trained for {entry.task}: transformers has no such model of"
            f" type {entry.model_type!r}, so correct its architectures, or give the text_config of"
            " a multimodal model as a config.json of its own"
        )
    # Asking for sdpa by name is refused where it is missing; not asking prefers it.
    chosen = {} if attention == "sdpa" else {"attn_implementation": attention}
    try:
        config = _config(config_class, entry)
        with torch.device("meta"):
            return auto_class.from_config(config, dtype=torch.float32, **chosen)
    except Exception as error:  # each architecture validates its numbers in its own way
        reason = " ".join(str(error).split())
        raise InputError(
            f"{entry.name} does not describe a {entry.model_type!r} model ({reason}): correct its"
            " configuration"
        ) from error


def _config(config_class: Any, entry: Entry) -> PretrainedConfig:
    facts = {k: copy.deepcopy(v) for k, v in entry.config.items() if k not in _STORAGE}
    config: PretrainedConfig = config_class.from_dict(facts)
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id
    if entry.task.endswith("-classification") and config.num_labels > 1:
        config.problem_type = "single_label_classification"
    if entry.task == "sequence-classification" and config.pad_token_id is None:
        config.pad_token_id = 0
    for part in (config, *(getattr(config, name) for name in config.sub_configs)):
        for field, value in _FOR_CAPTURE.items():
            if hasattr(part, field):
                setattr(part, field, value)
    return config


def _ctc_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    blank_token_id: int,
    reduction: str,
    zero_infinity: bool,
    **_: object,
) -> torch.Tensor:
    """CTC loss of rows without padding, whose lengths are known without reading values."""
    log_probs = logits.log_softmax(-1, dtype=torch.float32).transpose(0, 1)
    frames, batch, _vocabulary = log_probs.shape
    return torch.nn.functional.ctc_loss(
        log_probs,
        labels,
        (frames,) * batch,  # type: ignore[arg-type]
        (labels.shape[1],) * batch,  # type: ignore[arg-type]
        blank=blank_token_id,
        reduction=reduction,
        zero_infinity=zero_infinity,
    )


def _untie_output(model: Any) -> None:
    """Give the output layer its own weight where transformers ties it against the checkpoint.

    T5 v1.1 and mT5 checkpoints store a separate one, and loading them keeps it.
    """
    output = model.get_output_embeddings()
    if output is not None and output.weight is model.get_input_embeddings().weight:
        output.weight = torch.nn.Parameter(torch.empty_like(output.weight))


def _text_length(
    entry: Entry, model: torch.nn.Module, config: PretrainedConfig, seq: int | None
) -> int:
    limit = _position_limit(model, config)
    default = _TEXT_LENGTH.get(entry.task, _OTHER_TEXT_LENGTH)
    return _within(entry, limit, seq, default if limit is None else min(limit, default))


def _position_limit(model: torch.nn.Module, config: PretrainedConfig) -> int | None:
    """The longest sequence the model has positions for, None if any length will do."""
    limits = (getattr(config, name, None) for name in _LIMIT_FIELDS)
    limit: int | None = next((n for n in limits if n), None)
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if limit and name.endswith("position_embeddings") and isinstance(padding, int):
            return limit - padding - 1  # RoBERTa and its kin count from after the padding's
    return limit


def _within(entry: Entry, limit: int | None, seq: int | None, default: int) -> int:
    if seq is not None and limit is not None and seq > limit:
        raise InputError(
            f"{seq=} is longer than {entry.name} allows: it has positions for {limit} tokens"
        )
    return seq or default


def _pixels(
    model: torch.nn.Module, config: PretrainedConfig, batch: int, image_size: int | None
) -> dict[str, Any]:
    own_size = getattr(config, "image_size", 224)
    height, width = own_size if isinstance(own_size, (list, tuple)) else (own_size, own_size)
    inputs: dict[str, Any] = {}
    if image_size is not None and (image_size, image_size) != (height, width):
        height = width = image_size
        if "interpolate_pos_encoding" in inspect.signature(model.forward).parameters:
            inputs["interpolate_pos_encoding"] = True
    inputs["pixel_values"] = torch.empty(batch, config.num_channels, height, width, device="meta")
    return inputs


def _integers(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.long, device="meta")
