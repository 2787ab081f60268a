"""References to models: what a user's file may do, what is remembered, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import foretell
from foretell.graph import GraphCache, graph_of

SMALL = "transformer:layers=1,hidden=16,heads=2,seq=4,vocab=20"
MODEL = """
import torch

def build():
    return torch.nn.Linear({width}, 2), torch.empty(1, {width})
"""


def test_the_default_number_format_does_not_leak_into_built_in_models(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        graph = graph_of(SMALL, cache=GraphCache(tmp_path))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert graph.content_hash == graph_of(SMALL, cache=GraphCache(tmp_path / "other")).content_hash


def test_a_model_file_cannot_change_the_default_number_format(tmp_path: Path) -> None:
    path = tmp_path / "wide.py"
    path.write_text(MODEL.format(width=3) + "torch.set_default_dtype(torch.float64)\n")
    graph = graph_of(f"{path}:build")
    assert graph.parameters.nbytes == 8 * graph.parameters.total
    assert torch.get_default_dtype() == torch.float32


def test_a_changed_model_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    for width in (3, 5):
        path.write_text(MODEL.format(width=width))
        forecast = foretell.predict(f"{path}:build", batch=2)
        assert forecast.subject["parameters"] == 2 * width + 2


def test_a_changed_configuration_is_read_again(tmp_path: Path) -> None:
    for place in (tmp_path / "config.json", tmp_path):
        for layers in (1, 2):
            config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 16}
            config |= {"n_layer": layers, "n_head": 2, "vocab_size": 20, "n_positions": 8}
            (tmp_path / "config.json").write_text(json.dumps(config))
            parameters = graph_of(f"hf:{place}", seq=4).parameters
            assert sum(name.endswith("ln_1.weight") for name in parameters.name) == layers
            forecast = foretell.predict(f"hf:{place}", seq=4)
            assert forecast.subject["parameters"] == parameters.total


def test_a_models_file_is_asked_again_for_each_batch(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import torch\n"
        "class Halves(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        return torch.cat([super(Halves, self).forward(h) for h in x.chunk(2)])\n"
        "def build():\n"
        "    return Halves(3, 2), torch.empty(1, 3)\n"
    )
    for batch in (8, 16):
        forecast = foretell.predict(f"{path}:build", batch=batch)
        assert any(f"batch {batch} only" in note for note in forecast.notes)
    with pytest.raises(foretell.ForetellError, match="largest batch"):
        foretell.max_batch(f"{path}:build")
