"""Capture of a user's own module: it is left alone, and code that looks at the batch is seen."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import foretell
from foretell.graph import load_graph, save_graph
from foretell.graph.capture import CaptureOptions, Subject, capture
from tests.graph.zoo import OWN, Specimen

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


class Own(nn.Module):
    """One linear layer, used as a test wants."""

    def __init__(self, rule: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.rule = rule

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rule(self.layer, x)


def loops(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([layer(x[i]) for i in range(x.shape[0])])


def rows(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.stack([layer(row) for row in x])


def repeats(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(torch.stack([x[0]] * x.shape[0]))


def branches(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(layer(x)) if x.shape[0] > 64 else layer(x)


def splits(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([layer(part) for part in x.split(1000)])


def chunks(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([layer(part) for part in x.chunk(2)])


def views(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x.view(x.shape[0] // 4, 4, -1))


def plain(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def doubles(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(layer(x) if random.random() < 0.5 else x)


BATCH_RULES = (loops, rows, repeats, branches, splits, chunks, views)


@pytest.mark.parametrize("rule", BATCH_RULES)
def test_code_that_looks_at_the_batch_is_captured_at_the_asked_batch(
    rule: Callable[[nn.Module, torch.Tensor], torch.Tensor],
) -> None:
    started = time.monotonic()
    graph = foretell.capture(Own(rule), torch.empty(4, 8), mode="infer", batch=128)
    assert time.monotonic() - started < 5
    uses = 2 if rule is branches else 1
    assert graph.only_batch == graph.batch == 128
    assert graph.flops == uses * 2 * 128 * 8 * 8
    assert any("batch 128 only" in note for note in graph.notes)
    with pytest.raises(foretell.InputError, match="batch 128 only"):
        graph.at(64)


def test_without_an_asked_batch_the_example_inputs_give_it() -> None:
    assert foretell.capture(Own(views), torch.empty(4, 8)).only_batch == 4
    assert foretell.capture(Own(plain), torch.empty(4, 8)).only_batch is None


def test_a_forecast_tells_that_the_batch_matters_and_no_largest_one_is_searched() -> None:
    forecast = foretell.predict(Own(branches), inputs=torch.empty(1, 8), batch=16)
    assert any("batch 16 only" in note for note in forecast.notes)
    with pytest.raises(foretell.ForetellError, match="largest batch cannot be searched"):
        foretell.max_batch(Own(branches), inputs=torch.empty(1, 8))


def test_a_graph_for_one_batch_stays_so_on_disk(tmp_path: Path) -> None:
    graph = foretell.capture(Own(chunks), torch.empty(1, 8), batch=16)
    save_graph(graph, tmp_path / "g.npz")
    again = load_graph(tmp_path / "g.npz")
    assert (again.only_batch, again.notes) == (16, graph.notes)
    assert again.flops == graph.flops


@pytest.mark.parametrize("specimen", OWN, ids=str)
@pytest.mark.parametrize("batch", [1, 24])
def test_ordinary_modules_scale(specimen: Specimen, batch: int) -> None:
    graph = foretell.capture(specimen.build(), specimen.inputs(2), loss=specimen.loss, batch=batch)
    assert graph.only_batch is None
    assert not graph.notes


def test_chance_is_the_same_in_every_run_and_the_users_is_not_spent() -> None:
    random.seed(5)
    state = random.getstate()
    graph = foretell.capture(Own(doubles), torch.empty(1, 8), batch=16)
    assert graph.only_batch is None
    assert random.getstate() == state


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_users_module_stays_as_it_was(device: str) -> None:
    with torch.device(device):
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).eval()
    before = {n: (p.dtype, p.stride(), p.grad) for n, p in module.named_parameters()}
    foretell.capture(module, torch.empty(1, 3, 4, 4), precision="bf16", channels_last=True)
    after = {n: (p.dtype, p.stride(), p.grad) for n, p in module.named_parameters()}
    assert after == before
    assert not any(m.training for m in module.modules())


def test_a_module_without_parameters_keeps_its_mode() -> None:
    module = nn.Sequential(nn.ReLU()).train()
    foretell.capture(module, torch.empty(1, 3), mode="infer")
    assert module.training
    assert module[0].training


def test_a_module_that_cannot_be_copied_is_refused_in_one_sentence() -> None:
    module = nn.Linear(3, 3)
    module.guard = threading.Lock()
    with pytest.raises(foretell.CaptureError, match="deepcopy"):
        foretell.capture(module, torch.empty(1, 3))


def test_attributes_that_carry_gradients_do_not_stop_a_capture() -> None:
    module = nn.Linear(3, 3)
    module.cached = module.weight * 2
    assert foretell.capture(module, torch.empty(1, 3)).parameters.total == 12
    assert module.cached.device.type == "cpu"


def test_lazy_layers_are_refused_in_one_sentence() -> None:
    with pytest.raises(foretell.CaptureError, match="lazy"):
        foretell.capture(nn.LazyLinear(3), torch.empty(1, 3))


def test_a_sample_size_equal_to_the_probe_batch_does_not_scale() -> None:
    graph = capture(_pooled(1_000_003), CaptureOptions(mode="infer"))
    assert graph.at(2).kind_bytes_read.max() == 2 * 1_000_003 * 4


def _pooled(length: int) -> Subject:
    return Subject(
        module=nn.AdaptiveAvgPool1d(1),
        inputs=lambda batch: ((torch.empty(batch, 1, length),), {}),
    )


def test_an_assumed_value_is_told_with_its_line() -> None:
    def reads(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return layer(x) if x.sum() > 0 else layer(layer(x))

    graph = foretell.capture(Own(reads), torch.empty(1, 8), batch=4)
    line = reads.__code__.co_firstlineno + 1
    assert [n for n in graph.notes if f"test_own.py:{line}" in n and "False was assumed" in n]


def test_a_value_read_inside_a_package_names_the_package() -> None:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=9
    )
    with torch.device("meta"):
        module = BertForMaskedLM(config)
    ids = torch.zeros(1, 8, dtype=torch.int64)
    graph = foretell.capture(module, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    assert all("transformers" in note for note in graph.notes)


def test_what_a_model_prints_stays_out_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    def talks(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        print("hello")
        return layer(x)

    foretell.capture(Own(talks), torch.empty(1, 8))
    out, err = capsys.readouterr()
    assert out == ""
    assert "hello" in err


def hidden_constant(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x) + torch.ones(8, device="cpu")


def inferring(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        y = layer(x)
    return layer(y)


def without_gradients(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return layer(x)


def to_cuda(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x.cuda())


def leaving(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    raise SystemExit("enough\nof this")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (hidden_constant, "register_buffer"),
        (inferring, "without torch.inference_mode"),
        (without_gradients, "torch.no_grad"),
        pytest.param(to_cuda, r"remove \.cuda\(\)", marks=WITHOUT_GPU),
        (leaving, "SystemExit: enough"),
    ],
)
def test_usual_failures_come_with_advice(
    rule: Callable[[nn.Module, torch.Tensor], torch.Tensor], sentence: str
) -> None:
    with pytest.raises(foretell.CaptureError, match=sentence) as caught:
        foretell.capture(Own(rule), torch.empty(1, 8))
    assert "\n" not in str(caught.value)


def test_sparse_gradients_come_with_advice() -> None:
    module = nn.Sequential(nn.Embedding(10, 8, sparse=True), nn.Linear(8, 2))
    with pytest.raises(foretell.CaptureError, match="sparse=False"):
        foretell.capture(module, torch.zeros(2, 3, dtype=torch.int64))


@pytest.mark.parametrize(("loss", "sentence"), [(None, "NoneType"), ([2, 8], r"shape \[2, 8\]")])
def test_a_loss_that_is_no_number_is_explained(loss: list[int] | None, sentence: str) -> None:
    def made(out: torch.Tensor) -> torch.Tensor:
        return None if loss is None else out  # type: ignore[return-value]

    with pytest.raises(foretell.CaptureError, match=sentence):
        foretell.capture(Own(plain), torch.empty(1, 8), loss=made, batch=2)


def test_a_batch_too_small_for_the_model_is_told() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    with pytest.raises(foretell.CaptureError, match="batch 2 or more"):
        foretell.capture(module, torch.empty(1, 8), batch=1)
    with pytest.raises(foretell.InputError, match="batch=0"):
        foretell.capture(module, torch.empty(1, 8), batch=0)


def test_a_model_that_does_nothing_is_refused() -> None:
    with pytest.raises(foretell.CaptureError, match="no operators"):
        foretell.predict(nn.Identity(), inputs=torch.empty(1, 8), mode="infer")
