"""Fit the layer model to a corpus."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.cluster import device as device_of
from foretell.graph.graph import Floats, Ints
from foretell.predictors.scaledl.corpus import Corpus, entries, slices
from foretell.predictors.scaledl.cross import CrossLayer, batch_of
from foretell.predictors.scaledl.known import LEVELS, Keys, keys_of_corpus, places, shared_keys
from foretell.predictors.scaledl.layers import LayerModel, Operators, Sizes, step_seconds
from foretell.predictors.scaledl.muon import Muon
from foretell.predictors.scaledl.setting import make_setting

_REFERENCES = {"gpu": "rtx3090", "cpu": "cpu"}
_HUBER = 0.03
_EMBEDDING_PULL = 1e-3
_CHANGE_PULL = 1e-2
_CHUNK = 100_000
_RISE, _LEAST_RATE = 0.15, 0.04
"""Share of the steps in which rates rise, and where they start."""
NOTHING: Keys = np.zeros(0, dtype=np.uint64)
"""No kernel is told apart."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long and how carefully to fit."""

    epochs: int = 24
    steps_per_batch: int = 16
    """Beside them a batch has its part of the single operators."""
    rate: float = 4e-3
    matrix_rate: float = 0.03
    """Of the matrices between layers, which all singular values of a gradient move alike (Muon)."""
    decay: float = 1e-4
    forget_device: float = 0.3
    """Share of batches in which devices are taken as unseen, so that the unseen one is fitted."""
    forget_names: float = 0.02
    """Share of operators whose name is taken as unknown."""
    forget_known: float = 0.3
    """Share of batches in which no kernel is told apart from its like."""
    decay_known: float = 0.1
    """How strongly what is told apart is drawn to nothing."""
    seed: int = 0
    hidden: int = 160
    cross: bool = False
    """Whether surroundings count."""


def references() -> dict[str, Floats]:
    """Specifications that devices are compared with, for "gpu" and "cpu"."""
    return {
        kind: make_setting(device_of(name), mode="train").spec for kind, name in _REFERENCES.items()
    }


@dataclass(frozen=True, eq=False)
class Block:
    """A corpus as tensors, with the settings spread out."""

    corpus: Corpus
    shape: Tensor
    group: Tensor
    name: Tensor
    unit: Tensor
    log_flops: Tensor
    log_bytes: Tensor
    log_tiles: Tensor
    launches: Tensor
    waits_s: Tensor
    setting: Tensor
    device: Tensor
    spec: Tensor
    reference: Tensor
    log_measured: Tensor
    known: Tensor
    """Of every entry of the corpus."""

    @classmethod
    def of(
        cls, corpus: Corpus, devices: dict[str, int], names: dict[str, int], known: Keys = NOTHING
    ) -> Block:
        """Tensors of a corpus; devices, names and kernels that are not listed count as unseen."""

        def logs(values: Floats) -> Tensor:
            return torch.tensor(np.log(np.maximum(values, 1e-9)), dtype=torch.float32)

        usual = references()
        on_cpu = [s.is_cpu for s in corpus.settings]
        name = np.array([names.get(n, 0) for n in corpus.names])
        return cls(
            corpus=corpus,
            shape=torch.tensor(corpus.shape),
            group=torch.tensor(corpus.group),
            name=torch.tensor(name[corpus.name]),
            unit=torch.tensor(corpus.unit),
            log_flops=logs(corpus.flops),
            log_bytes=logs(corpus.nbytes),
            log_tiles=logs(np.where(corpus.tiles > 0, corpus.tiles, 1e9)),
            launches=torch.tensor(corpus.launches, dtype=torch.float32),
            waits_s=torch.tensor(corpus.waits_s, dtype=torch.float32),
            setting=torch.tensor(
                np.array([s.features for s in corpus.settings]), dtype=torch.float32
            ),
            device=torch.tensor([devices.get(s.device, 0) for s in corpus.settings]),
            spec=torch.tensor(np.array([s.spec for s in corpus.settings]), dtype=torch.float32),
            reference=torch.tensor(
                np.array([usual["cpu" if c else "gpu"] for c in on_cpu]),
                dtype=torch.float32,
            ),
            log_measured=torch.tensor(np.log(corpus.measured_s), dtype=torch.float32),
            known=torch.tensor(
                places(keys_of_corpus(corpus), known)
                if len(known)
                else np.zeros((len(corpus.op), LEVELS), dtype=np.int64)
            ),
        )

    def operators(self, at: Ints, settings: Tensor) -> Operators:
        """The operators of some entries of the corpus, each in its setting."""
        ops = torch.from_numpy(self.corpus.op[at])
        return Operators(
            shape=self.shape[ops],
            group=self.group[ops],
            name=self.name[ops],
            unit=self.unit[ops],
            log_flops=self.log_flops[ops],
            log_bytes=self.log_bytes[ops],
            log_tiles=self.log_tiles[ops],
            launches=self.launches[ops],
            waits_s=self.waits_s[ops],
            setting=self.setting[settings],
            device=self.device[settings],
            spec=self.spec[settings],
            reference=self.reference[settings],
            known=self.known[torch.from_numpy(at)],
        )

    def predict(
        self,
        model: LayerModel,
        rows: Ints,
        *,
        cross: CrossLayer | None = None,
        unseen: bool = False,
        forget_known: bool = False,
        forget_names: float = 0.0,
        paces: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logarithms of the times of steps, and the mean square of what surroundings changed.

        `paces` are logarithms by which operators of each group take longer, and last the host.
        """
        at, whose = entries(self.corpus, rows)
        count, owner = torch.from_numpy(self.corpus.count[at]), torch.from_numpy(whose)
        setting = torch.from_numpy(self.corpus.setting[rows])
        batch = self.operators(at, setting[owner])
        device = self.device[setting]
        if forget_names:
            unknown = torch.rand(len(batch.name)) < forget_names
            batch = dataclasses.replace(batch, name=batch.name.masked_fill(unknown, 0))
        if forget_known:
            batch = dataclasses.replace(batch, known=torch.zeros_like(batch.known))
        if unseen:
            batch = batch.on_unseen()
            device = torch.zeros_like(device)
        dispatch_s = model.dispatch_s(self.setting[setting], device)
        hidden = model.hidden(batch)
        op_s = model.seconds(batch, hidden)
        if paces is not None:
            op_s = op_s * torch.exp(paces[batch.group])
            dispatch_s = dispatch_s * torch.exp(paces[-1])
        launches, amount, size = batch.launches, count.float(), torch.zeros(())
        if cross is not None:
            corpus = self.corpus
            tables = (corpus.start[rows + 1] - corpus.start[rows]).tolist()
            around = batch_of([corpus.contexts[c] for c in corpus.context[rows]], tables)
            change = cross(hidden, around)
            waits_s = batch.waits_s[around.row]
            op_s = (op_s[around.row] - waits_s) * torch.exp(change) + waits_s
            launches, amount, owner = launches[around.row], around.count, around.owner
            size = change.square().mean()
        return step_seconds(op_s, amount, owner, launches, dispatch_s).log(), size


@dataclass(frozen=True, eq=False)
class Trained:
    """A fitted layer model and what its embeddings stand for."""

    model: LayerModel
    cross: CrossLayer | None
    devices: dict[str, int]
    names: dict[str, int]
    known: Keys
    paces: Tensor | None = None
    """Of every group and of the host, where it was adapted to a device."""

    def predict(self, corpus: Corpus, rows: Ints, *, unseen: bool = False) -> Floats:
        """Seconds of steps."""
        block = Block.of(corpus, self.devices, self.names, self.known)
        with torch.no_grad():
            parts = [
                block.predict(self.model, chunk, cross=self.cross, unseen=unseen, paces=self.paces)[
                    0
                ]
                for chunk in np.array_split(rows, max(1, len(rows) // 256))
            ]
        return np.asarray(torch.cat(parts).exp().double())

    def kernel_seconds(self, corpus: Corpus, rows: Ints) -> Floats:
        """Seconds of all runs of each kernel of steps by the layer model alone, as in `slices`."""
        block = Block.of(corpus, self.devices, self.names, self.known)
        at, owner = entries(corpus, rows)
        setting = torch.from_numpy(corpus.setting[rows][owner])
        with torch.no_grad():
            parts = [
                self.model.seconds(block.operators(at[part], setting[part]))
                for part in _chunks(len(at))
            ]
        return np.asarray(torch.cat(parts).double()) * corpus.count[at]


def _chunks(count: int) -> Iterator[slice]:
    for first in range(0, count, _CHUNK):
        yield slice(first, first + _CHUNK)


def train_layers(
    corpus: Corpus,
    rows: Ints,
    effort: Effort,
    tell: Callable[[int, float], None] = lambda epoch, error: None,
) -> Trained:
    """A layer model fitted to some steps of a corpus."""
    torch.manual_seed(effort.seed)
    rng = np.random.default_rng(effort.seed)
    used = sorted({corpus.settings[s].device for s in corpus.setting[rows]})
    devices = {name: i + 1 for i, name in enumerate(used)}
    seen = np.unique(corpus.name[slices(corpus, rows)[0]])
    names = {corpus.names[n]: i + 1 for i, n in enumerate(seen)}
    known = shared_keys(corpus, rows, keys_of_corpus(corpus))
    block = Block.of(corpus, devices, names, known)
    sizes = Sizes(names=len(names), devices=len(devices), known=len(known), hidden=effort.hidden)
    model = LayerModel(sizes)
    _standardise(model, block.shape[torch.from_numpy(np.unique(slices(corpus, rows)[0]))])
    cross = CrossLayer(effort.hidden) if effort.cross else None
    optimizer = _Optimizer.of(model, cross, effort)
    per_epoch = corpus.share[rows].sum() if len(rows) else 0
    steps = float(corpus.share[rows] @ (np.diff(corpus.start)[rows] > 1))
    batches = max(1, int((steps or per_epoch) // effort.steps_per_batch))
    optimizer.plan(effort.epochs * batches)
    weight = torch.tensor(corpus.weight, dtype=torch.float32)
    for epoch in range(effort.epochs):
        total, off_total = 0.0, 0.0
        drawn = rows[rng.random(len(rows)) < corpus.share[rows]]
        for chosen in np.array_split(rng.permutation(drawn), batches):
            said, change = block.predict(
                model,
                chosen,
                cross=cross,
                unseen=bool(rng.random() < effort.forget_device),
                forget_known=bool(rng.random() < effort.forget_known),
                forget_names=effort.forget_names,
            )
            off = said - block.log_measured[chosen]
            loss = (weight[chosen] * _huber(off)).mean() + _CHANGE_PULL * change
            loss = loss + _EMBEDDING_PULL * model.device.weight.square().mean()
            optimizer.step(loss)
            total += len(chosen)
            off_total += float(off.detach().abs().sum())
        if not math.isfinite(off_total):
            raise ArithmeticError(f"the fit diverged in epoch {epoch + 1} of {effort.epochs}")
        tell(epoch, off_total / total)
    model.eval()
    return Trained(model, cross, devices, names, known)


class _Optimizer:
    """Muon for the matrices between layers, AdamW for everything else, one schedule for both."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer], clipped: Sequence[Tensor]) -> None:
        self._parts, self._clipped = parts, clipped
        self._schedules: list[torch.optim.lr_scheduler.LambdaLR] = []

    @classmethod
    def of(cls, model: LayerModel, cross: CrossLayer | None, effort: Effort) -> _Optimizer:
        """For all parameters of both."""
        matrices = [model.first.weight, model.second.weight]
        apart = model.known.weight
        fitted = [p for p in model.parameters() if p is not apart]
        if cross is not None:
            fitted += cross.parameters()
            matrices += cross.matrices()
        named = {id(p) for p in matrices}
        rest = [
            {"params": [p for p in fitted if id(p) not in named], "weight_decay": effort.decay},
            {"params": [apart], "weight_decay": effort.decay_known},
        ]
        adam = torch.optim.AdamW(rest, lr=effort.rate, fused=True)
        return cls([adam, Muon(matrices, effort.matrix_rate)], fitted)

    def plan(self, steps: int) -> None:
        """So many steps will follow: rates rise first, then fall to nothing."""

        def share(step: int) -> float:
            done = step / (steps + 1)
            if done < _RISE:
                return _LEAST_RATE + (1 - _LEAST_RATE) * (1 - math.cos(math.pi * done / _RISE)) / 2
            return (1 + math.cos(math.pi * (done - _RISE) / (1 - _RISE))) / 2

        self._schedules = [torch.optim.lr_scheduler.LambdaLR(p, share) for p in self._parts]

    def step(self, loss: Tensor) -> None:
        """Move against the gradient of the loss."""
        for part in self._parts:
            part.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._clipped, 1.0)
        for part, schedule in zip(self._parts, self._schedules, strict=True):
            part.step()
            schedule.step()


def _standardise(model: LayerModel, shape: Tensor) -> None:
    """Shapes with mean zero and deviation one over the distinct operators."""
    model.shape_mean.copy_(shape.mean(0))
    model.shape_scale.copy_(1 / shape.std(0).clamp_min(0.05))


def _huber(off: Tensor) -> Tensor:
    """Squares near zero, absolute values beyond."""
    return torch.where(off.abs() < _HUBER, off.square() / (2 * _HUBER), off.abs() - _HUBER / 2)
