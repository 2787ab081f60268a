"""Models of the measured jobs that no catalogue has, as plain PyTorch.

Functions return (module, inputs) or (module, inputs, loss), as package.module:function wants them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.graph.sources.transformer_shape import TransformerShape
from foretell.graph.sources.transformer_source import Block

_EXAMPLE_BATCH = 2
_BASE = TransformerShape(layers=12, hidden=768, heads=12, seq=512, vocab=30522, encoder=True)


def cifar_resnet18() -> tuple[nn.Module, torch.Tensor]:
    """ResNet-18 for 32-pixel images: a 3x3 stem and no pooling before the blocks."""
    return CifarResNet((2, 2, 2, 2)), torch.empty(_EXAMPLE_BATCH, 3, 32, 32)


def bert_base_squad() -> tuple[nn.Module, torch.Tensor]:
    """BERT-base that marks the span of an answer, at 384 tokens."""
    return _Tower(_BASE, every_token=2), _text(384)


def bert_base_cola() -> tuple[nn.Module, torch.Tensor]:
    """BERT-base that classifies sentences of 128 tokens."""
    return _Tower(_BASE, classes=2), _text(128)


def gpt2_reviews() -> tuple[nn.Module, torch.Tensor]:
    """GPT-2 that classifies texts of 60 tokens."""
    shape = TransformerShape(layers=12, hidden=768, heads=12, seq=1024, vocab=50257)
    return _Tower(shape, classes=2), _text(60)


def deepspeech2() -> tuple[nn.Module, torch.Tensor]:
    """DeepSpeech 2: two convolutions and five bidirectional GRUs of 800, on 4 s of speech."""
    return DeepSpeech2(hidden=800, layers=5, labels=29), torch.empty(_EXAMPLE_BATCH, 1, 161, 400)


def speech_resnet() -> tuple[nn.Module, torch.Tensor]:
    """A speech model of residual convolutions and five bidirectional GRUs of 512, on 16 s."""
    return SpeechResNet(width=512, layers=5, labels=29), torch.empty(_EXAMPLE_BATCH, 1, 128, 1300)


def ncf() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Neural collaborative filtering on MovieLens 1M."""
    ids = torch.empty(_EXAMPLE_BATCH, dtype=torch.int64)
    return NeuMF(users=6040, items=3706, width=32, layers=3), (ids, ids.clone())


def yolov3() -> tuple[nn.Module, torch.Tensor, Any]:
    """YOLOv3 for the 20 classes of VOC, at 448 pixels."""
    images = torch.empty(_EXAMPLE_BATCH, 3, 448, 448)
    return YoloV3(classes=20), images, lambda heads: sum(_box_loss(h) for h in heads)


def t5_1b() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor], Any]:
    """An encoder and decoder of 32 layers each, 1.24 billion parameters, at 512 tokens."""
    shape = TransformerShape(
        layers=32, hidden=1024, heads=16, seq=512, vocab=32128, gated=True, rmsnorm=True
    )
    return EncoderDecoder(shape), (_text(512), _text(512)), _token_loss


def _text(length: int) -> torch.Tensor:
    return torch.empty(_EXAMPLE_BATCH, length, dtype=torch.int64)


def _token_loss(logits: torch.Tensor) -> torch.Tensor:
    return -F.log_softmax(logits.float(), dim=-1).mean()


def _box_loss(head: torch.Tensor) -> torch.Tensor:
    """Sigmoids and logarithms over all boxes, as many as the real loss has in all."""
    boxes = head.float().sigmoid()
    return -(boxes.log() * (1 - boxes)).square().mean()


class _Tower(nn.Module):
    """Transformer blocks under a small head, for every token or for the whole text."""

    def __init__(self, shape: TransformerShape, *, every_token: int = 0, classes: int = 0) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = nn.Embedding(shape.seq, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.every_token = every_token > 0
        self.head = nn.Linear(shape.hidden, every_token or classes)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        x = F.dropout(self.norm(x), 0.1, self.training)
        for layer in self.layers:
            x = layer(x)
        result: torch.Tensor = self.head(x if self.every_token else x[:, 0])
        return result


class _CrossBlock(nn.Module):
    """A block that also looks at what the encoder made."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.own = Block(shape)
        self.heads = shape.heads
        self.norm = nn.RMSNorm(shape.hidden)
        self.q = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.kv = nn.Linear(shape.hidden, 2 * shape.hidden, bias=False)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        q = self.q(self.norm(x))
        k, v = self.kv(made).chunk(2, -1)
        split = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
        result: torch.Tensor = self.own(x + self.out(y))
        return result


class EncoderDecoder(nn.Module):
    """A T5-like model; positions are left out, they cost next to nothing."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        whole = dataclasses.replace(shape, encoder=True)
        self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.encoder = nn.ModuleList(Block(whole) for _ in range(shape.layers))
        self.decoder = nn.ModuleList(_CrossBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        made = self.embed(source)
        for layer in self.encoder:
            made = layer(made)
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, made)
        result: torch.Tensor = self.head(self.norm(x))
        return result


class _BasicBlock(nn.Module):
    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width_in, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = _shortcut(width_in, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def _shortcut(width_in: int, width: int, stride: int) -> nn.Module:
    if stride == 1 and width_in == width:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))


class CifarResNet(nn.Module):
    def __init__(self, counts: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 3, 1, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        ]
        width_in = 64
        for stage, count in enumerate(counts):
            width = 64 * 2**stage
            for i in range(count):
                layers.append(_BasicBlock(width_in, width, 2 if stage and not i else 1))
                width_in = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(width_in, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(F.avg_pool2d(self.features(x), 4).flatten(1))
        return result


class _BothWays(nn.Module):
    """A bidirectional GRU whose directions are added up."""

    def __init__(self, width_in: int, width: int, norm: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width_in) if norm else None
        self.rnn = nn.GRU(width_in, width, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm is not None:
            x = self.norm(x.flatten(0, 1)).view_as(x)
        result: torch.Tensor = self.rnn(x)[0].unflatten(-1, (2, -1)).sum(2)
        return result


class DeepSpeech2(nn.Module):
    """Spectrogram -> log-probabilities of letters at every step."""

    def __init__(self, hidden: int, layers: int, labels: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20, inplace=True),
        )
        widths = [32 * 41] + [hidden] * (layers - 1)
        self.rnns = nn.ModuleList(_BothWays(w, hidden, i > 0) for i, w in enumerate(widths))
        self.norm = nn.BatchNorm1d(hidden)
        self.head = nn.Linear(hidden, labels, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).flatten(1, 2).transpose(1, 2).contiguous()
        for rnn in self.rnns:
            x = rnn(x)
        x = self.head(self.norm(x.flatten(0, 1)).view_as(x))
        return F.log_softmax(x, dim=-1)


class _ResidualConv(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(32, 32, 3, 1, 1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = norm(x.transpose(2, 3).contiguous()).transpose(2, 3).contiguous()
            x = conv(F.dropout(F.gelu(x), 0.1, self.training))
        return x + kept


class SpeechResNet(nn.Module):
    """Convolutions with residuals, bidirectional GRUs, classifier."""

    def __init__(self, width: int, layers: int, labels: int) -> None:
        super().__init__()
        features = 64
        self.stem = nn.Conv2d(1, 32, 3, 2, 1)
        self.convs = nn.Sequential(*(_ResidualConv(features) for _ in range(3)))
        self.mix = nn.Linear(features * 32, width)
        widths = [width] + [2 * width] * (layers - 1)
        self.norms = nn.ModuleList(nn.LayerNorm(w) for w in widths)
        self.rnns = nn.ModuleList(
            nn.GRU(w, width, bidirectional=True, batch_first=True) for w in widths
        )
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, labels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.convs(self.stem(x)).flatten(1, 2).transpose(1, 2)
        x = self.mix(x)
        for norm, rnn in zip(self.norms, self.rnns, strict=True):
            x = F.dropout(rnn(F.gelu(norm(x)))[0], 0.1, self.training)
        return F.log_softmax(self.head(x), dim=-1)


class NeuMF(nn.Module):
    """Matrix factorisation beside a small network, both on embeddings of user and item."""

    def __init__(self, users: int, items: int, width: int, layers: int) -> None:
        super().__init__()
        wide = width * 2 ** (layers - 1)
        self.user, self.item = nn.Embedding(users, width), nn.Embedding(items, width)
        self.wide_user, self.wide_item = nn.Embedding(users, wide), nn.Embedding(items, wide)
        steps: list[nn.Module] = []
        for i in range(layers):
            size = width * 2 ** (layers - i)
            steps += [nn.Linear(size, size // 2), nn.ReLU()]
        self.network = nn.Sequential(*steps)
        self.head = nn.Linear(2 * width, 1)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        product = self.user(user) * self.item(item)
        mixed = self.network(torch.cat((self.wide_user(user), self.wide_item(item)), -1))
        result: torch.Tensor = self.head(torch.cat((product, mixed), -1)).view(-1)
        return result


class _Conv(nn.Sequential):
    def __init__(self, width_in: int, width: int, kernel: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(width_in, width, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.1),
        )


class _Dark(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_Conv(width, width // 2, 1), _Conv(width // 2, width, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.body(x)
        return result


class YoloV3(nn.Module):
    """Darknet-53 and three heads."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        out = 3 * (5 + classes)
        self.stem = _Conv(3, 32, 3)
        width = 32
        stages = []
        for count in (1, 2, 8, 8, 4):
            blocks = [_Dark(2 * width) for _ in range(count)]
            stages.append(nn.Sequential(_Conv(width, 2 * width, 3, 2), *blocks))
            width *= 2
        self.stages = nn.ModuleList(stages)
        self.necks = nn.ModuleList(
            self._neck(w_in, w) for w_in, w in ((1024, 512), (768, 256), (384, 128))
        )
        self.ups = nn.ModuleList((_Conv(512, 256, 1), _Conv(256, 128, 1)))
        self.heads = nn.ModuleList(
            nn.Sequential(_Conv(w, 2 * w, 3), nn.Conv2d(2 * w, out, 1)) for w in (512, 256, 128)
        )

    @staticmethod
    def _neck(width_in: int, width: int) -> nn.Module:
        return nn.Sequential(
            _Conv(width_in, width, 1),
            _Conv(width, 2 * width, 3),
            _Conv(2 * width, width, 1),
            _Conv(width, 2 * width, 3),
            _Conv(2 * width, width, 1),
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.stem(x)
        seen = []
        for stage in self.stages:
            x = stage(x)
            seen.append(x)
        found = []
        for level, (neck, head) in enumerate(zip(self.necks, self.heads, strict=True)):
            if level:
                larger = F.interpolate(self.ups[level - 1](x), scale_factor=2)
                x = torch.cat((larger, seen[-1 - level]), 1)
            x = neck(x)
            found.append(head(x))
        return found
