"""The layer model: physics whatever is learned, and one answer with and without torch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.api import Case, workload_of
from foretell.cluster import device
from foretell.fit.members import member_of
from foretell.predictors.scaledl.corpus import Corpus, CorpusBuilder
from foretell.predictors.scaledl.cross import ContextBatch, CrossLayer, RoundBatch
from foretell.predictors.scaledl.form import OUTPUTS
from foretell.predictors.scaledl.known import ON_DEVICE, keys_of, keys_of_corpus, shared_keys
from foretell.predictors.scaledl.layers import LayerModel, Sizes
from foretell.predictors.scaledl.numbers import Ensemble
from foretell.predictors.scaledl.setting import SETTING_NAMES, Setting, make_setting
from foretell.predictors.scaledl.table import table_of
from foretell.predictors.scaledl.train import (
    NOTHING,
    Block,
    Effort,
    Trained,
    references,
    train_layers,
)

MODELS = (
    "timm:resnet10t",
    "timm:mobilenetv3_small_050",
    "timm:vit_tiny_patch16_224",
    "transformer:layers=2,hidden=128,heads=4,seq=64,vocab=1000",
)
PLACES = {"rtx3090": 1, "rtx4090": 2}


def anything_learned(seed: int, known: int = 0) -> LayerModel:
    """A model with random weights, as wild as training could leave them."""
    torch.manual_seed(seed)
    model = LayerModel(Sizes(names=5, devices=2, known=known))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return model


NAMES = {"convolution": 1, "mm": 2, "addmm": 3, "relu": 4, "add": 5}


def ensemble_of(
    model: LayerModel, cross: CrossLayer | None = None, known: np.ndarray = NOTHING
) -> Ensemble:
    """Twice the same member: the members must not disturb each other."""
    member = member_of(Trained(model, cross, PLACES, NAMES, known))
    return Ensemble([member, member], references())


def seconds(model: LayerModel, case: Case, setting: Setting | None = None) -> np.ndarray:
    """Of every operator of the step, in order."""
    workload, cluster = workload_of(case)
    recipe = workload.recipe
    table = table_of(workload.step, recipe.precision, compiled=recipe.compile)
    where = setting or make_setting(cluster.devices[0], mode=recipe.mode)
    return table.by_op(
        ensemble_of(model).row_seconds(table, where)[1][table.row], len(workload.step)
    )


def small_corpus(measured_s: float) -> Corpus:
    """One step of a small network on a GPU."""
    workload, cluster = workload_of(Case(model=MODELS[1], batch=8, cluster="rtx4090"))
    table = table_of(workload.step, "fp32", compiled=False)
    builder = CorpusBuilder()
    setting = make_setting(cluster.devices[0], mode="train")
    builder.add(table, np.ones(len(workload.step)), setting, measured_s, key="a", label="a")
    return builder.build()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    model=st.sampled_from(MODELS),
    batch=st.integers(1, 300),
    more=st.integers(1, 300),
)
def test_more_work_never_takes_less_time(seed: int, model: str, batch: int, more: int) -> None:
    learned = anything_learned(seed)
    few, many = (
        seconds(learned, Case(model=model, batch=b, cluster="rtx3090", precision="amp-fp16"))
        for b in (batch, batch + more)
    )
    assert (many >= few * (1 - 1e-9)).all()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    model=st.sampled_from(MODELS),
    what=st.sampled_from(
        ["memory_bandwidth_bytes_per_s", "peak_flops_per_s", "matrix units", "l2_bytes", "tdp_w"]
    ),
    factor=st.floats(1.01, 8.0),
)
def test_a_faster_device_is_never_slower(seed: int, model: str, what: str, factor: float) -> None:
    learned, slow = anything_learned(seed), device("rtx3090")
    if what in ("peak_flops_per_s", "matrix units"):
        peaks = {name: rate * factor for name, rate in slow.peak_flops_per_s.items()}
        vector = slow.vector_flops_per_s * (1 if what == "matrix units" else factor)
        fast = dataclasses.replace(slow, peak_flops_per_s=peaks, vector_flops_per_s=vector)
    else:
        fast = dataclasses.replace(slow, **{what: int(getattr(slow, what) * factor)})
    case = Case(model=model, batch=16, cluster="rtx3090")
    before, after = (seconds(learned, case, make_setting(d, mode="train")) for d in (slow, fast))
    assert (after <= before * (1 + 1e-9)).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_agree_with_torch(compiled: bool) -> None:
    case = Case(model=MODELS[1], batch=8, cluster="rtx4090", compile=compiled, precision="amp-fp16")
    workload, cluster = workload_of(case)
    step = workload.step
    table = table_of(step, "amp-fp16", compiled=compiled)
    setting = make_setting(cluster.devices[0], mode="train", compiled=compiled)
    builder = CorpusBuilder()
    builder.add(table, np.ones(len(step)), setting, 1.0, key="a", label="a")
    corpus = builder.build()
    known = np.unique(keys_of_corpus(corpus))[::2]
    learned = anything_learned(3, known=len(known))
    ensemble = ensemble_of(learned, known=known)
    block = Block.of(corpus, PLACES, NAMES, known)
    with torch.no_grad():
        log_s, _ = block.predict(learned, np.array([0]))
    op_s = ensemble.row_seconds(table, setting)[1][table.row].sum()
    host_s = table.launches[table.row].sum() * ensemble.dispatch_s(setting)[1]
    ours = (op_s**4 + host_s**4) ** 0.25
    assert float(log_s.exp()) == pytest.approx(ours, rel=1e-3)


def test_operators_that_memory_hardly_bounds_leave_gradients_finite() -> None:
    corpus = small_corpus(measured_s=0.01)
    model = anything_learned(3)
    with torch.no_grad():
        model.last.bias[OUTPUTS.index("cache")] = 200.0
    log_s, _ = Block.of(corpus, PLACES, NAMES).predict(model, np.array([0]))
    log_s.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_a_fit_that_diverges_says_so() -> None:
    with pytest.raises(ArithmeticError, match="diverged in epoch 1 of 3"):
        train_layers(small_corpus(measured_s=np.nan), np.array([0]), Effort(epochs=3))


def test_training_finds_what_made_the_times() -> None:
    """Steps made by another model with unknown efficiencies are learned to a few per cent."""
    truth, builder = anything_learned(1), CorpusBuilder()
    with torch.no_grad():
        truth.last.weight.mul_(0.1)
        truth.host.weight.zero_()
    steps = [
        (model, batch, place)
        for model in MODELS
        for batch in (4, 16, 64)
        for place in ("rtx3090", "rtx4090")
    ]
    for model, batch, place in steps:
        workload, cluster = workload_of(Case(model=model, batch=batch, cluster=place))
        setting = make_setting(cluster.devices[0], mode="train")
        table = table_of(workload.step, "fp32", compiled=False)
        op_s = ensemble_of(truth).row_seconds(table, setting)[0][table.row].sum()
        count = np.ones(len(workload.step))
        builder.add(table, count, setting, op_s, key=model, label=model)
    corpus = builder.build()
    rows = np.arange(len(corpus))
    trained = train_layers(corpus, rows, Effort(epochs=150, steps_per_batch=8))
    ratio = trained.predict(corpus, rows) / corpus.measured_s
    assert np.median(np.abs(ratio - 1)) < 0.1


def test_surroundings_agree_with_torch_operator_by_operator() -> None:
    """Kept once or not, by PyTorch Geometric or by hand: the same corrections."""
    learned = anything_learned(4)
    torch.manual_seed(4)
    cross = CrossLayer(96)
    with torch.no_grad():
        for parameter in cross.parameters():
            parameter.normal_(std=0.2)
    workload, cluster = workload_of(Case(model=MODELS[1], batch=4, cluster="rtx3090"))
    step, setting = workload.step, make_setting(cluster.devices[0], mode="train")
    table = table_of(step, "fp32", compiled=False)
    kernels = len(table.row)
    context = table.context
    assert context.count.sum() == kernels > len(step)
    ours = ensemble_of(learned, cross).changes(table, setting, context)[1][context.place]

    def whole(part: str) -> torch.Tensor:
        src, dst = (table.wiring.edge_src, table.wiring.edge_dst)
        ends = (src, dst) if part == "before" else (dst, src)
        return torch.from_numpy(np.stack(ends))

    everything = RoundBatch(torch.arange(kernels), whole("before"), whole("after"))
    batch = ContextBatch(
        everything, everything, torch.arange(kernels), torch.ones(kernels), torch.zeros(1)
    )
    builder = CorpusBuilder()
    builder.add(table, np.ones(len(step)), setting, 1.0, key="a", label="a")
    block = Block.of(builder.build(), PLACES, NAMES)
    with torch.no_grad():
        hidden = learned.hidden(block.operators(table.row, torch.zeros(kernels, dtype=torch.long)))
        theirs = cross(hidden, batch)
    assert ours == pytest.approx(theirs.double().numpy(), abs=1e-4)


def test_untrained_surroundings_change_nothing() -> None:
    learned, builder = anything_learned(2), CorpusBuilder()
    workload, cluster = workload_of(Case(model=MODELS[0], batch=4, cluster="rtx3090"))
    setting = make_setting(cluster.devices[0], mode="train")
    table = table_of(workload.step, "fp32", compiled=False)
    count = np.ones(len(workload.step))
    builder.add(table, count, setting, 1.0, key="a", label="a")
    block = Block.of(builder.build(), PLACES, {})
    with torch.no_grad():
        without, _ = block.predict(learned, np.array([0]))
        within, change = block.predict(learned, np.array([0]), cross=CrossLayer(96))
    assert float(change) == 0.0
    assert float(within) == pytest.approx(float(without), rel=1e-5)


def test_a_kernel_is_told_apart_when_three_models_have_it() -> None:
    builder = CorpusBuilder()
    workload, cluster = workload_of(Case(model=MODELS[0], batch=4, cluster="rtx3090"))
    table = table_of(workload.step, "fp32", compiled=False)
    here, elsewhere = (
        make_setting(cluster.devices[0], mode="train", channels_last=last) for last in (False, True)
    )
    for number in range(3):
        count = np.ones(len(workload.step))
        builder.add(table, count, here, 1.0, key=f"model {number}", label="")
    corpus = builder.build()
    keys = keys_of_corpus(corpus)
    mine = keys_of(table, here)
    assert set(shared_keys(corpus, np.arange(3), keys)) == set(mine.ravel())
    assert not len(shared_keys(corpus, np.arange(2), keys))
    assert not set(mine.ravel()) & set(keys_of(table, elsewhere).ravel())
    assert len(np.unique(mine[:, 0])) > len(np.unique(mine[:, 1]))


def test_what_is_told_apart_on_one_device_says_nothing_of_another() -> None:
    workload, _ = workload_of(Case(model=MODELS[0], batch=4, cluster="rtx3090"))
    table = table_of(workload.step, "fp32", compiled=False)
    mine, other = (
        keys_of(table, make_setting(device(name), mode="train")) for name in ("rtx3090", "rtx4090")
    )
    same = (mine == other).all(0)
    assert same[:ON_DEVICE].all()
    assert not (mine[:, ON_DEVICE] == other[:, ON_DEVICE]).any()


def test_a_version_between_two_measured_ones_is_some_of_each() -> None:
    features = make_setting(device("rtx3090"), mode="train", torch_version="2.6").features
    last = dict(zip(SETTING_NAMES, features, strict=True))
    assert last["torch_2_4"] == pytest.approx(0.6)
    assert last["torch_2_9"] == pytest.approx(0.4)
    newer = make_setting(device("rtx3090"), mode="train", torch_version="2.13").features
    assert dict(zip(SETTING_NAMES, newer, strict=True))["torch_2_9"] == 1.0
