"""A few measurements on a device: its embedding and its paces, everything else as it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.fit.members import member_of, seen_cells
from foretell.fit.splits import is_model
from foretell.fit.spreads import interval
from foretell.graph.graph import Floats, Ints
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.scaledl.corpus import Corpus
from foretell.predictors.scaledl.cross import CrossLayer
from foretell.predictors.scaledl.layers import LayerModel, Sizes
from foretell.predictors.scaledl.numbers import Ensemble, Member
from foretell.predictors.scaledl.setting import place_of
from foretell.predictors.scaledl.train import Block, Trained
from foretell.predictors.scaledl.weights import Weights

_NOISE = 0.12
"""Deviation of what even the right embedding leaves, as a logarithm."""
_PACE, _GROUP_PACE = 0.3, 0.1
_EMBEDDING = 0.15
"""How far a device's pace, that of one group of operators, and its embedding may be from what its
specification says."""
_STEP_WEIGHT = 4.0
"""Operators timed alone that one whole step counts for: forecasts are of steps."""
_LIKE = 2.0
"""How much better the embedding of a known device must do than that of unseen ones."""
_ROUNDS = 40
_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Adapted:
    """Weights that know a device, and how they fared on it."""

    weights: Weights
    before: Floats
    """Predicted over measured, of every measurement."""
    after: Floats
    """The same, of measurements that the adaptation did not see."""


def adapt(weights: Weights, corpus: Corpus, device: str) -> Adapted:
    """Weights fitted to a corpus of steps on one device."""
    rows = np.arange(len(corpus))
    made = _made(weights, corpus, device, rows)
    before = _said(weights, corpus, rows) / corpus.measured_s
    models = {key: i for i, key in enumerate(dict.fromkeys(corpus.keys))}
    fold = np.array([models[key] for key in corpus.keys]) % _FOLDS
    after = before.copy()
    if len(models) > 1:
        for number in np.unique(fold):
            others = _made(weights, corpus, device, rows[fold != number])
            mine = rows[fold == number]
            after[mine] = _said(others, corpus, mine) / corpus.measured_s[mine]
    return Adapted(_with_spread(made, corpus, device, after), before, after)


def _made(weights: Weights, corpus: Corpus, device: str, rows: Ints) -> Weights:
    found = [adapt_member(m, corpus, device, rows) for m in weights.ensemble.members]
    paces = [trained.paces.numpy() for trained in found if trained.paces is not None]
    own = {device: np.mean(paces, axis=0)} if paces else {}
    return dataclasses.replace(
        weights,
        ensemble=Ensemble([member_of(trained) for trained in found], weights.ensemble.reference),
        paces={**weights.paces, **own},
    )


def adapt_member(member: Member, corpus: Corpus, device: str, rows: Ints) -> Trained:
    """One member that knows the device."""
    if not len(rows):
        return trained_of(_knowing(member, device, 0))
    trained = trained_of(_knowing(member, device, _most_alike(member, corpus, device, rows)))
    block = Block.of(corpus, trained.devices, trained.names, trained.known)
    # All steps are on this device: no other row of the embedding has a gradient.
    embedding, place = trained.model.device.weight, trained.devices[device]
    start = embedding.detach()[place].clone()
    pace = torch.zeros(1, requires_grad=True)
    groups = torch.zeros(len(GROUPS), requires_grad=True)
    measured = block.log_measured[torch.from_numpy(rows)]
    weight = torch.from_numpy(np.where(is_model(corpus)[rows], _STEP_WEIGHT, 1.0))
    weight = weight / weight.max()
    for parameter in trained.model.parameters():
        parameter.requires_grad_(parameter is embedding)
    optimizer = torch.optim.LBFGS(
        [embedding, pace, groups], max_iter=_ROUNDS, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        paces = torch.cat([pace + groups, pace])
        said, _ = block.predict(trained.model, rows, cross=trained.cross, paces=paces)
        off = (weight * ((said - measured) / _NOISE).square()).sum()
        moved = ((embedding[place] - start) / _EMBEDDING).square().sum()
        paced = (pace / _PACE).square().sum() + (groups / _GROUP_PACE).square().sum()
        cost: Tensor = off + moved + paced
        cost.backward()
        return cost

    optimizer.step(loss)
    return dataclasses.replace(trained, paces=torch.cat([pace + groups, pace]).detach())


def _most_alike(member: Member, corpus: Corpus, device: str, rows: Ints) -> int:
    """The embedding to start from: that of unseen devices, unless a known one does far better."""
    if device in member.devices:
        return member.devices[device]
    measured = np.log(corpus.measured_s[rows])
    left = []
    for place in range(len(member.layers["device.weight"])):
        said = trained_of(_knowing(member, device, place)).predict(corpus, rows)
        off = np.log(said) - measured
        left.append(float(np.std(off)) if len(rows) > 1 else abs(float(off[0])))
    best = int(np.argmin(left))
    return best if _LIKE * left[best] < left[0] else 0


def _knowing(member: Member, device: str, like: int) -> Member:
    """The member with an embedding for the device, at first one that it has."""
    if device in member.devices:
        return member
    known = member.layers["device.weight"]
    layers = {**member.layers, "device.weight": np.concatenate([known, known[like : like + 1]])}
    return dataclasses.replace(
        member, layers=layers, devices={**member.devices, device: len(known)}
    )


def trained_of(member: Member) -> Trained:
    """The reverse of member_of."""
    w = member.layers
    model = LayerModel(
        Sizes(
            names=len(w["name.weight"]) - 1,
            devices=len(w["device.weight"]) - 1,
            known=len(member.known.keys),
            hidden=len(w["first.bias"]),
            group_width=w["group.weight"].shape[1],
            name_width=w["name.weight"].shape[1],
            device_width=w["device.weight"].shape[1],
        )
    )
    apart = np.concatenate([[0.0], member.known.values])[:, None]
    model.load_state_dict(_tensors({**w, "known.weight": apart}))
    cross = None
    if member.cross is not None:
        cross = CrossLayer(len(w["first.bias"]), len(member.cross["enter.bias"]))
        messages = {
            f"{n}.lin_l.weight" if n.startswith(("before", "after")) else n: v
            for n, v in member.cross.items()
        }
        cross.load_state_dict(_tensors(messages))
        cross.requires_grad_(False)
    return Trained(model.eval(), cross, dict(member.devices), dict(member.names), member.known.keys)


def _tensors(weights: Mapping[str, Floats]) -> dict[str, Tensor]:
    return {n: torch.tensor(v, dtype=torch.float32) for n, v in weights.items()}


def _said(weights: Weights, corpus: Corpus, rows: Ints) -> Floats:
    """Seconds of steps, all on one device, by the mean of all members."""
    own = weights.paces.get(corpus.settings[0].device)
    paces = None if own is None else torch.tensor(own, dtype=torch.float32)
    logs = [
        np.log(dataclasses.replace(trained_of(m), paces=paces).predict(corpus, rows))
        for m in weights.ensemble.members
    ]
    seconds: Floats = np.exp(np.mean(logs, axis=0))
    return seconds


def _with_spread(weights: Weights, corpus: Corpus, device: str, after: Floats) -> Weights:
    """The interval of the device: that of known ones, or what was left here if that is wider."""
    card = weights.card
    low, high = card["spreads"]["near"]["*"]
    own_low, own_high = interval(-np.log(after))
    places = {place_of(s) for s in corpus.settings}
    near = {**card["spreads"]["near"]}
    near |= {place: (min(low, own_low), max(high, own_high)) for place in places}
    modes = {place.split("/")[1] for place in places}
    groups = {**card["groups"], device: {mode: [] for mode in modes}}
    return dataclasses.replace(
        weights,
        seen=np.union1d(weights.seen, seen_cells(corpus, np.arange(len(corpus)))),
        card={**card, "spreads": {**card["spreads"], "near": near}, "groups": groups},
    )
