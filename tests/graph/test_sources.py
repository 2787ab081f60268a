"""References to models: what a user's file may do, what is remembered, what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import foretell
from foretell.graph import Graph, GraphCache, graph_of
from foretell.graph.blocks import recompute_paths

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


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("x = 1\ndef build(:\n    pass\n", ":2", "SyntaxError"),
        ("import torch\n\nimport no_such_package\n", ":3", "no_such_package"),
        ("import json\njson.loads('{')\n", ":2", "JSONDecodeError"),
        ("import sys\nsys.exit('no\\nthanks')\n", ":2", "SystemExit: no"),
        ("\0", "", "null bytes"),
    ],
)
def test_a_file_that_cannot_be_imported_names_its_own_line(
    tmp_path: Path, text: str, place: str, reason: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(foretell.InputError, match=reason) as caught:
        graph_of(f"{path}:build")
    assert f"{path}{place}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("raise ValueError('first\\nsecond')", "ValueError: first; it must work without"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        pytest.param(
            "return torch.nn.Linear(3, 2).cuda()",
            r"remove \.cuda\(\)",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_a_function_that_fails_is_told_in_one_sentence(
    tmp_path: Path, body: str, sentence: str
) -> None:
    path = tmp_path / "model.py"
    path.write_text(f"import torch\ndef build():\n    {body}\n")
    with pytest.raises(foretell.CaptureError, match=sentence) as caught:
        graph_of(f"{path}:build")
    assert f"{path}:3" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_modules_of_the_working_directory_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lying_here.py").write_text(MODEL.format(width=3) + "print('hello')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in sys.path if p])
    before = list(sys.path)
    assert graph_of("lying_here:build").parameters.total == 8
    assert sys.path == before
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("layers=2", "layers is given twice"),
        ("topk=2", "topk goes with experts"),
        ("gated=2", "gated=2 is not understood: write gated"),
        ("", "extra comma"),
        (" ,gated", "extra comma"),
        ("colour=1", "the options are layers, hidden"),
        ("ffn=²", "ffn=<whole number>"),
        ("heads=16,rope", "given twice"),
    ],
)
def test_mistakes_in_transformer_options_are_named(options: str, sentence: str) -> None:
    with pytest.raises(foretell.InputError, match=sentence):
        graph_of(f"{SMALL},{options}")


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("transformer:layers=1,hidden=6,heads=2,seq=4,vocab=20,rope", "odd"),
        ("transformer:layers=1,hidden=1000000000,heads=2,seq=4,vocab=20", "smaller sizes"),
        (f"transformer:layers=1,hidden={10**21},heads=2,seq=4,vocab=20", "smaller sizes"),
    ],
)
def test_sizes_that_cannot_be_are_refused(reference: str, sentence: str) -> None:
    with pytest.raises(foretell.InputError, match=sentence):
        graph_of(reference)


def test_blanks_between_transformer_options_do_not_matter() -> None:
    spaced = SMALL.replace(",", " , ").replace("=", " = ")
    assert graph_of(spaced).content_hash == graph_of(SMALL).content_hash


@pytest.mark.parametrize(("reference", "seq"), [(SMALL, 0), (f"{SMALL},topk=2", None)])
def test_a_mistake_is_refused_even_if_an_answer_is_cached(reference: str, seq: int | None) -> None:
    class Full(GraphCache):
        def get(self, key: object) -> Graph:
            return graph_of(SMALL)

    with pytest.raises(foretell.InputError, match=r"seq=0|topk"):
        graph_of(reference, seq=seq, cache=Full())


def test_names_to_recompute_may_repeat_and_a_list_means_its_items() -> None:
    from foretell.graph.sources import subject_of

    module = subject_of(SMALL.replace("layers=1", "layers=2")).module
    both = ("layers.0", "layers.1")
    assert recompute_paths(module, "layers") == both
    assert recompute_paths(module, "layers.0, layers.1 ,layers.0") == both
    for blank in (" ", "layers.0,", "layers.0,,layers.1"):
        with pytest.raises(foretell.InputError, match="without a name"):
            recompute_paths(module, blank)


@pytest.mark.parametrize("name", ["google-t5/t5-small", "openai/whisper-tiny"])
def test_a_decoder_is_fed_in_inference_too(name: str) -> None:
    graph = graph_of(f"hf:{name}", mode="infer")
    assert not graph.is_training
    assert any("decoder" in graph.modules[m] for m in graph.op_module)
