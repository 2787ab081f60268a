"""hf:NAME and hf:path/config.json, Hugging Face architectures from configuration facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretell.graph.capture import Subject
from foretell.graph.sources.hf_build import build_model, example_inputs
from foretell.graph.sources.hf_catalogue import Entry, entry, entry_from_config_file

_SAMPLE = {
    "image-classification": "image",
    "clip": "pair",
    "speech-seq2seq": "clip",
    "ctc": "clip",
}


def build_hf(name: str, *, seq: int | None = None, image_size: int | None = None) -> Subject:
    """A Hugging Face model ready to capture, with its own loss."""
    facts = _facts(name)
    model = build_model(facts)

    def inputs(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), example_inputs(facts, model, batch=batch, seq=seq, image_size=image_size)

    meta: dict[str, Any] = {"source": f"hf:{name}", "sample": _SAMPLE.get(facts.task, "sequence")}
    ids = inputs(1)[1].get("input_ids")
    if ids is not None and facts.task != "clip":
        meta["seq"] = int(ids.shape[1])
    config: Any = model.config
    return Subject(
        module=model,
        inputs=inputs,
        meta=meta,
        training_only=("labels", "return_loss"),
        inference_names={"labels": "decoder_input_ids"} if config.is_encoder_decoder else {},
    )


def _facts(name: str) -> Entry:
    if name.endswith(".json") or Path(name).is_file():
        return entry_from_config_file(name)
    if Path(name).is_dir() and (Path(name) / "config.json").is_file():
        return entry_from_config_file(Path(name) / "config.json")
    return entry(name)
