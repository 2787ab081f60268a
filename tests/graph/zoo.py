"""Small models of many kinds, each buildable for real on CPU and on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 2


@dataclass(frozen=True)
class Specimen:
    """A model and its inputs; `build` runs under whatever default device is set."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Any]
    loss: Callable[[Any], torch.Tensor] | None = None
    layout_copies: bool = True
    """False where CPU attention writes gradients in another layout than GPUs do."""

    def __str__(self) -> str:
        return self.name


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.middle = nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.up = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        self.out = nn.Conv2d(11, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down(x)
        b = torch.cat([a, self.middle(a)], 1)
        y = torch.cat([self.up(b), x], 1)
        return self.out(F.interpolate(y, scale_factor=2, mode="bilinear"))


class GanPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(16, 128),
            nn.ReLU(),
            nn.Unflatten(1, (8, 4, 4)),
            nn.ConvTranspose2d(8, 3, 4, 2, 1),
        )
        self.critic = nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1)
        )

    def forward(self, noise: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        fake = self.critic(self.generator(noise))
        real = self.critic(images)
        return F.softplus(fake).mean() + F.softplus(-real).mean()


class Dlrm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50 + i, 8) for i in range(3))
        self.bottom = nn.Linear(13, 8)
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = [x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))]
        stacked = torch.stack(rows, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        upper = torch.triu_indices(4, 4, 1)
        crossed = products[:, upper[0], upper[1]]
        return self.top(torch.cat([x, crossed], 1)).sigmoid().mean()


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * 2 * x


class CustomFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(_Square.apply(self.a(x)))


class TinyMoe(nn.Module):
    """Experts as dense products over all tokens, masked by the router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.router(x).softmax(-1)
        return sum(e(x) * weights[..., i : i + 1] for i, e in enumerate(self.experts)).mean()


class WeightSharing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        self.cell = nn.GRUCell(8, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        state = self.embed(ids[:, 0])
        for t in range(1, 4):
            state = self.cell(self.embed(ids[:, t]), state)
        return F.linear(state, self.embed.weight)


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(inplace=True))
        self.head = nn.Linear(16, 4)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(points).max(2)[0])


def _image(channels: int, size: int) -> Callable[[int], Any]:
    return lambda batch: torch.rand(batch, channels, size, size)


def cross_entropy(out: torch.Tensor) -> torch.Tensor:
    target = torch.empty(out.shape[0], dtype=torch.int64, device=out.device)
    if not out.is_meta:
        target.numpy()[:] = 0  # without an operator that the other side does not have
    return F.cross_entropy(out, target)


OWN = [
    Specimen("unet", UNet, _image(3, 16)),
    Specimen("gan", GanPair, lambda b: (torch.rand(b, 16), torch.rand(b, 3, 8, 8))),
    Specimen("dlrm", Dlrm, lambda b: (torch.rand(b, 13), torch.zeros(b, 3, dtype=torch.int64))),
    Specimen("autograd-function", CustomFunction, lambda b: torch.rand(b, 12), cross_entropy),
    Specimen("moe", TinyMoe, lambda b: torch.rand(b, 6, 8)),
    Specimen(
        "gru-cell", WeightSharing, lambda b: torch.zeros(b, 4, dtype=torch.int64), cross_entropy
    ),
    Specimen("pointnet", PointNet, lambda b: torch.rand(b, 3, 32), cross_entropy),
    Specimen(
        "transformer-encoder",
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2
        ),
        lambda b: torch.rand(b, 7, 16),
        layout_copies=False,
    ),
    Specimen(
        "mlp",
        lambda: nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 3)),
        lambda b: torch.rand(b, 10),
        cross_entropy,
    ),
]
TIMM = {
    "resnet18": 64,
    "vit_tiny_patch16_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "efficientnet_b0": 64,
    "convnext_atto": 64,
    "mobilenetv3_small_050": 64,
    "densenet121": 64,
    "mixer_s32_224": 224,
    "regnety_002": 64,
    "xcit_nano_12_p16_224": 224,
}
HF = {
    "bert": ("masked-lm", {"vocab_size": 60, "num_attention_heads": 2, "intermediate_size": 32}),
    "gpt2": ("causal-lm", {"vocab_size": 60, "n_embd": 16, "n_head": 2, "n_layer": 2}),
    "opt": (
        "causal-lm",
        {"vocab_size": 60, "ffn_dim": 32, "num_attention_heads": 2, "word_embed_proj_dim": 16},
    ),
    "t5": (
        "seq2seq-lm",
        {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2, "num_layers": 2},
    ),
    "llama": (
        "causal-lm",
        {
            "vocab_size": 60,
            "intermediate_size": 32,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
        },
    ),
    "distilbert": ("masked-lm", {"vocab_size": 60, "dim": 16, "hidden_dim": 32, "n_heads": 2}),
}
