"""Measurements of one's own in a fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from foretell.cluster import device
from foretell.data import Record
from foretell.data.store import Store
from foretell.errors import InputError
from foretell.fit.corpora import corpus_of
from foretell.fit.own import described, own_records

LOCAL = device("local@1")


def record(model: str = "timm:resnet10t", **changes: object) -> Record:
    told = dataclasses.asdict(dataclasses.replace(LOCAL, name="Some CPU, 1 core"))
    told["peak_flops_per_s"] = dict(LOCAL.peak_flops_per_s)
    told["memory_bandwidth_bytes_per_s"] = 77e9
    plain = Record(
        kind="operator" if model.startswith("op:") else "step",
        model=model,
        cluster="1xlocal@1",
        device="local@1",
        batch=4,
        group=model,
        source="foretell",
        time_s=0.1,
        environment={"device": told, "torch": "2.9.1+cpu"},
    )
    return dataclasses.replace(plain, **changes)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    alone = [record(), record("op:linear,in=64,out=64")]
    pair = record(cluster="2xlocal@1", devices=2)
    Store(tmp_path / "mine").append([*alone, pair])
    return tmp_path / "mine"


def test_records_go_by_the_device_they_describe_not_by_the_one_that_reads_them(
    store: Path,
) -> None:
    found = own_records([store])
    assert {r.device for r in found} == {"some-cpu-1-core"}
    assert len(found) == 2  # what two processes share is no step of one device
    assert {r.options["torch_version"] for r in found} == {"2.9.1"}
    corpus, rejects = corpus_of(found, workers=1)
    assert not rejects
    assert {s.device for s in corpus.settings} == {"some-cpu-1-core"}
    assert all(s.spec[0] == pytest.approx(25.067, abs=1e-3) for s in corpus.settings)
    assert {s.is_alone for s in corpus.settings} == {True, False}
    assert set(corpus.keys) == {"resnet10t", "op:linear,in=64,out=64"}


def test_a_record_that_describes_nothing_stays_as_it_is() -> None:
    assert described(record(environment={})) is None
    assert described(record(device="t4")) is None


def test_a_description_of_something_else_is_named() -> None:
    odd = record(environment={"device": {"id": "local@1", "wheels": 4}})
    with pytest.raises(InputError, match="device 'local@1' is not described as one"):
        described(odd)
