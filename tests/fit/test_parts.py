"""The pieces of a fit: splits, corpora on disk, intervals, what jobs teach."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.api import Case, workload_of
from foretell.fit.corpus_file import load_corpus, save_corpus
from foretell.fit.members import devices_to_leave_out, with_seen_releases
from foretell.fit.sources import single_steps
from foretell.fit.splits import by_model, family_of, folds, twins
from foretell.fit.spreads import Ledger, covered, interval, spreads_of
from foretell.predictors.scaledl.corpus import Corpus, CorpusBuilder, joined, taken
from foretell.predictors.scaledl.domain import factors_at
from foretell.predictors.scaledl.kernels import kernels_of
from foretell.predictors.scaledl.setting import RELEASES, make_setting
from foretell.predictors.scaledl.table import table_of
from foretell.predictors.scaledl.together import JOB_NAMES, learn
from foretell.predictors.scaledl.train import Effort, train_layers


def corpus_with(
    *steps: tuple[str, str, int], torch_version: str | None = None, cluster: str = "rtx3090"
) -> Corpus:
    """(name, model, batch) each."""
    builder = CorpusBuilder()
    for name, model, batch in steps:
        workload, where = workload_of(Case(model=model, batch=batch, cluster=cluster))
        setting = make_setting(where.devices[0], mode="train", torch_version=torch_version)
        table = table_of(workload.step, "fp32", compiled=False)
        count = np.ones(len(workload.step))
        builder.add(table, count, setting, 0.1 * batch, key=name, label=name)
    return builder.build()


def test_the_same_network_under_two_names_stays_together() -> None:
    corpus = corpus_with(
        ("a", "timm:resnet10t", 8), ("b", "timm:resnet10t", 8), ("c", "timm:resnet14t", 8)
    )
    same = twins(corpus)
    assert same["a"] == same["b"] != same["c"]
    fold = folds(by_model(corpus), 5)
    assert fold[0] == fold[1]


def test_a_release_that_no_fitted_step_ran_under_is_asked_about_as_the_nearest() -> None:
    model = ("a", "timm:lcnet_035", 4)
    versions = ("1.12", "2.4", "2.9")
    corpus = joined([corpus_with(*[model] * 60, torch_version=v) for v in versions])
    at = [RELEASES.index(r) for r in ((1, 12), (2, 4), (2, 9))]

    def releases(rows: np.ndarray) -> list[int]:
        asked = with_seen_releases(corpus, rows)
        return [asked.settings[s].release for s in asked.setting[::60]]

    assert releases(np.arange(180)) == at
    assert releases(np.arange(60, 180)) == [at[1], at[1], at[2]]
    assert releases(np.arange(10)) == at  # too few steps to tell releases apart


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("resnet50d", "resnet"),
        ("vit_base_patch16", "vit"),
        ("timm:dla60x", "dla"),
        ("tf_efficientnet_b0", "efficientnet"),
        ("ens_adv_inception_v3", "inception"),
        ("transformer:layers=2,hidden=64", "layers="),
    ],
)
def test_families(model: str, family: str) -> None:
    assert family_of(model) == family


def test_of_steps_under_power_limits_those_under_the_highest_are_fitted_to(tmp_path: Path) -> None:
    zeus = tmp_path / "zeus"
    zeus.mkdir()
    header = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
    rows = [
        f"imagenet,resnet50,64,adadelta,{watts},{s},90\n" for watts, s in ((100, 9000), (250, 5000))
    ]
    (zeus / "summary_power_v100.csv").write_text(header + "".join(rows))
    (record,) = single_steps(["zeus"], tmp_path)
    assert record.environment["power_limit_w"] == 250
    assert record.group == "resnet50"  # as timm's own measurements name it


def test_unfolding_is_launched_for_every_sample_unless_compiled() -> None:
    workload, _ = workload_of(Case(model="timm:tnt_s_patch16_224", batch=8, mode="infer"))
    for compiled, launches in ((False, 8), (True, 1)):
        table = table_of(workload.step, "fp32", compiled=compiled)
        unfolded = [n for n, name in enumerate(table.name) if name == "im2col"]
        assert unfolded
        assert (table.launches[unfolded] == launches).all()


def test_a_corpus_is_the_same_after_the_disk(tmp_path: Path) -> None:
    corpus = corpus_with(("a", "timm:resnet10t", 8), ("b", "timm:lcnet_035", 4))
    save_corpus(corpus, tmp_path / "kept" / "corpus.npz")
    again = load_corpus(tmp_path / "kept" / "corpus.npz")
    for name in ("shape", "flops", "op", "count", "start", "measured_s", "context"):
        assert (getattr(again, name) == getattr(corpus, name)).all()
    assert again.keys == corpus.keys
    for one, other in zip(again.contexts, corpus.contexts, strict=True):
        assert (one.second.own == other.second.own).all()
        assert (one.second.before_src == other.second.before_src).all()


def test_joining_keeps_every_step() -> None:
    one = corpus_with(("a", "timm:resnet10t", 8))
    other = corpus_with(("b", "timm:lcnet_035", 4), ("c", "timm:resnet10t", 2))
    whole = joined([one, other])
    assert whole.keys == ("a", "b", "c")
    assert len(whole.settings) == 1
    first, last = whole.start[1], whole.start[2]
    names = {whole.names[n] for n in whole.name[whole.op[first:last]]}
    assert names == {other.names[n] for n in other.name[other.op[: other.start[1]]]}
    assert whole.flops[whole.op[first:last]].sum() == pytest.approx(
        other.flops[other.op[: other.start[1]]].sum()
    )


def test_some_steps_of_a_corpus_are_what_they_were() -> None:
    models = (("a", "timm:resnet10t", 8), ("b", "timm:lcnet_035", 4), ("c", "timm:resnet14t", 2))
    whole = corpus_with(*models)
    some = taken(whole, np.array([2, 0]))
    assert some.keys == ("c", "a")
    assert len(some.group) < len(whole.group)
    trained = train_layers(whole, np.arange(3), Effort(epochs=1, hidden=16, cross=True))
    assert trained.predict(some, np.arange(2)) == pytest.approx(
        trained.predict(whole, np.array([2, 0])), rel=1e-5
    )


def test_the_backward_pass_of_a_convolution_is_two_kernels() -> None:
    """FLOPs add up; the first layer has no gradient of its input, a fixed blur none of weights."""
    workload, _ = workload_of(Case(model="timm:resnetblur18", batch=2, cluster="rtx3090"))
    step = workload.step
    kernels = kernels_of(step.kinds)
    power = float(step.batch) ** np.arange(3)
    by_kind = np.bincount(kernels.kind, kernels.flops @ power, len(step.kinds))
    assert by_kind == pytest.approx(step.kind_flops)
    names: dict[int, set[str]] = {}
    for kernel in kernels.each:
        if kernel.name.startswith("convolution_backward"):
            names.setdefault(kernel.kind, set()).add(kernel.name.rpartition("_")[2])
    found = set(map(frozenset, names.values()))
    assert found == {frozenset({"source", "weight"}), frozenset({"weight"}), frozenset({"source"})}


def test_intervals_hold_what_they_promise() -> None:
    rng = np.random.default_rng(0)
    off = rng.normal(0.1, 0.2, 4000)
    low, high = interval(off)
    fresh = rng.normal(0.1, 0.2, 20000)
    inside = np.mean((np.log(low) <= fresh) & (fresh <= np.log(high)))
    assert 0.88 < inside < 0.92
    assert interval(np.array([0.1, -0.2])) == pytest.approx((np.exp(-0.2), np.exp(0.1)))


def test_jobs_teach_their_neighbours_and_nobody_else() -> None:
    rng = np.random.default_rng(1)
    at = rng.uniform(-1, 1, (80, len(JOB_NAMES))) * np.where(np.arange(len(JOB_NAMES)) < 3, 1, 0.01)
    off = 0.5 + 0.3 * at[:, 0]
    jobs = learn(at, off)
    inside = np.zeros(len(JOB_NAMES))
    near = jobs.about(inside)
    assert near.added == pytest.approx(0.5, abs=0.1)
    assert near.evidence > 0.5
    far = jobs.about(inside + 100.0)
    assert far.added == pytest.approx(0.0, abs=1e-3)
    assert far.evidence < 0.01


def test_doubt_is_larger_where_jobs_are_harder_to_tell() -> None:
    rng = np.random.default_rng(2)
    at = rng.uniform(-1, 1, (200, len(JOB_NAMES))) * np.where(np.arange(len(JOB_NAMES)) < 2, 4, 0)
    off = np.where(at[:, 0] > 0, rng.normal(0, 0.3, 200), 0.2)
    jobs = learn(at, off)
    easy, hard = np.zeros(len(JOB_NAMES)), np.zeros(len(JOB_NAMES))
    easy[0], hard[0] = -2.5, 2.5
    assert jobs.about(hard).doubt > 3 * jobs.about(easy).doubt


def test_fewer_steps_make_leaving_a_processor_out_worth_it_than_an_accelerator() -> None:
    model = ("a", "timm:lcnet_035", 4)
    corpus = joined([corpus_with(*[model] * 100, cluster=name) for name in ("rtx3090", "cpu")])
    assert devices_to_leave_out(corpus) == ["cpu"]


def judged_steps(off: dict[str, list[float]], *, level: str, on_cpu: bool) -> Ledger:
    """A ledger of steps that are off by such logarithms, per device, each left out with its own."""
    place = [name for name, values in off.items() for _ in values]
    steps = np.concatenate([np.array(values) for values in off.values()])
    return Ledger(
        row=np.arange(len(steps)),
        place=place,
        predicted_s=np.ones(len(steps)),
        measured_s=np.exp(steps),
        novelty=np.zeros(len(steps)),
        level=[level] * len(steps),
        labels=place,
        fold=place if level == "new-device" else [str(i % 5) for i in range(len(steps))],
        on_cpu=np.full(len(steps), on_cpu),
    )


def joined_ledgers(*parts: Ledger) -> Ledger:
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])
    }
    return Ledger(**columns)


def test_a_processor_never_seen_has_the_interval_of_processors_left_out() -> None:
    draw = np.random.default_rng(0)
    gpus = {name: draw.normal(0, 0.05, 200).tolist() for name in ("a", "b", "c")}
    cpus = {name: draw.normal(0, 0.5, 200).tolist() for name in ("d", "e")}
    ledger = joined_ledgers(
        judged_steps({"a": [0.0] * 50}, level="model", on_cpu=False),
        judged_steps(gpus, level="new-device", on_cpu=False),
        judged_steps(cpus, level="new-device", on_cpu=True),
    )
    known = spreads_of(ledger)["new-device"]
    low, high = factors_at(known, "another", on_cpu=True)
    assert low < 0.55
    assert high > 1.8
    low, high = factors_at(known, "another", on_cpu=False)
    assert 0.85 < low < high < 1.15
    inside = covered(ledger)
    assert 0.8 < inside[ledger.on_cpu].mean() < 0.98
    strangers = np.array(ledger.level) == "new-device"
    assert 0.8 < inside[~ledger.on_cpu & strangers].mean() < 0.98


def test_a_processor_with_few_steps_has_the_interval_of_other_processors() -> None:
    draw = np.random.default_rng(0)
    gpus = {"a": draw.normal(0, 0.02, 500).tolist()}
    cpus = {"d": draw.normal(0, 0.3, 200).tolist(), "e": draw.normal(0, 0.3, 10).tolist()}
    ledger = joined_ledgers(
        judged_steps(gpus, level="model", on_cpu=False),
        judged_steps(cpus, level="model", on_cpu=True),
    )
    known = spreads_of(ledger)["near"]
    assert "e" not in known
    assert factors_at(known, "e", on_cpu=True) == known["cpu"]
    assert known["cpu"][1] > 1.3
    assert known["a"][1] < 1.1
