"""Small models that two processes on CPUs train, and how each may be spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from foretell.workload import Recipe

STRATEGIES = ("ddp", "fsdp", "gpipe", "1f1b", "tp")
PIPELINES = ("gpipe", "1f1b")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model, its batch per process (per microbatch in a pipeline), and its strategies."""

    name: str
    reference: str
    batch: int
    strategies: tuple[str, ...]
    image_size: int | None = None
    seq: int | None = None
    microbatches: int = 4


MODELS = (
    Model(
        name="resnet10",
        reference="timm:resnet10t",
        batch=8,
        image_size=96,
        strategies=("ddp", "fsdp", "gpipe"),
    ),
    Model(
        name="mobilenet",
        reference="timm:mobilenetv3_small_100",
        batch=16,
        image_size=96,
        strategies=("ddp", "fsdp"),
    ),
    Model(
        name="vit",
        reference="timm:vit_tiny_patch16_224",
        batch=8,
        image_size=96,
        strategies=("ddp", "fsdp", "1f1b"),
    ),
    Model(
        name="gpt",
        reference="transformer:layers=4,hidden=256,heads=4,seq=128,vocab=4096",
        batch=4,
        strategies=STRATEGIES,
    ),
    Model(
        name="bert",
        reference="transformer:layers=6,hidden=192,heads=4,seq=64,vocab=2000,encoder",
        batch=8,
        strategies=STRATEGIES,
    ),
    Model(
        name="llama",
        reference="transformer:layers=4,hidden=192,heads=6,kv_heads=2,seq=128,vocab=2000,ffn=512,"
        "gated,rmsnorm,rope",
        batch=4,
        strategies=STRATEGIES,
    ),
    Model(name="t5", reference="benchmarks.gloo_models:t5", batch=4, strategies=("ddp", "fsdp")),
    Model(name="mlp", reference="benchmarks.gloo_models:mlp", batch=256, strategies=("ddp", "tp")),
    Model(name="lstm", reference="benchmarks.gloo_models:lstm", batch=16, strategies=("ddp",)),
    Model(name="dlrm", reference="benchmarks.gloo_models:dlrm", batch=512, strategies=("ddp",)),
)


def recipe_of(model: Model, strategy: str) -> Recipe:
    """How a model is trained by a strategy on two processes."""
    piped = {"pp": 2, "global_batch": model.batch * model.microbatches}
    options: dict[str, dict[str, Any]] = {
        "ddp": {},
        "fsdp": {"zero": 3},
        "gpipe": {**piped, "schedule": "gpipe"},
        "1f1b": {**piped, "schedule": "1f1b"},
        "tp": {"tp": 2, "tp_joint": False},
    }
    return Recipe(batch=model.batch, optimizer="adamw", **options[strategy])


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(torch.relu(self.up(x)))
        return result


def mlp() -> tuple[nn.Module, torch.Tensor]:
    """Four residual layers of 512 and a classifier."""
    layers = nn.Sequential(*(_Layer(512) for _ in range(4)))
    return nn.Sequential(layers, nn.Linear(512, 10)), torch.empty(1, 512)


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4000, 128)
        self.lstm = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 4000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.lstm(self.embed(ids))[0][:, -1])
        return result


def lstm() -> tuple[nn.Module, torch.Tensor]:
    """Two recurrent layers over 32 tokens."""
    return _Lstm(), torch.empty(1, 32, dtype=torch.int64)


class _Dlrm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(4000, 64) for _ in range(8))
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 64))
        self.top = nn.Sequential(nn.Linear(100, 512), nn.ReLU(), nn.Linear(512, 2))

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        low = self.bottom(dense)
        parts = [low, *(table(ids[:, i]) for i, table in enumerate(self.tables))]
        stacked = torch.stack(parts, 1)
        pairs = torch.bmm(stacked, stacked.transpose(1, 2)).flatten(1)[:, :36]
        result: torch.Tensor = self.top(torch.cat((low, pairs), 1))
        return result


def dlrm() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Eight embedding tables, their products, two small networks."""
    return _Dlrm(), (torch.empty(1, 13), torch.empty(1, 8, dtype=torch.int64))


class _T5(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import T5Config, T5ForConditionalGeneration

        config = T5Config(
            d_model=192, d_kv=48, num_heads=4, d_ff=512, num_layers=3, vocab_size=4000,
            dropout_rate=0.0, use_cache=False, tie_word_embeddings=True,
        )  # fmt: skip
        self.model = T5ForConditionalGeneration(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(input_ids=ids, decoder_input_ids=ids).logits
        return result


def t5() -> tuple[nn.Module, torch.Tensor]:
    """Three encoder and three decoder layers over 64 tokens."""
    from foretell.graph.sources.torchvision_repair import repair_torchvision

    repair_torchvision()
    return _T5(), torch.empty(1, 64, dtype=torch.int64)
