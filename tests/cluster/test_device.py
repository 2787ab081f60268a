"""A Device answers for its rates and refuses nonsense."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from foretell.cluster import DTYPES, Device, Link, device
from foretell.errors import InputError, UnknownNameError


def made(**changes: Any) -> Device:
    return dataclasses.replace(device("t4"), id="mine", **changes)


def test_peak_is_given_for_what_is_supported() -> None:
    assert device("a100").peak("bf16") == 312e12
    assert device("a100").supports("tf32")


def test_unsupported_dtype_is_refused_with_what_there_is() -> None:
    assert not device("t4").supports("bf16")
    with pytest.raises(InputError) as caught:
        device("t4").peak("bf16")
    assert str(caught.value) == ("device 't4' does not support bf16: use one of fp64, fp32, fp16")


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown dtype 'float16'"):
        device("a100").peak("float16")


@pytest.mark.parametrize(
    "field",
    [
        "vector_flops_per_s",
        "memory_bytes",
        "memory_bandwidth_bytes_per_s",
        "l2_bytes",
        "sm_count",
        "clock_hz",
        "tdp_w",
        "gpus_per_node",
        "gpus_per_nic",
        "year",
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "80", True])
def test_figures_must_be_positive_numbers(field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"device 'mine': {field}=.* must be a positive number"):
        made(**{field: value})


def test_rates_must_be_positive_and_include_fp32() -> None:
    with pytest.raises(InputError, match="device 'mine' has no fp32 rate"):
        made(peak_flops_per_s={"fp16": 1e12})
    with pytest.raises(InputError, match=r"peak_flops_per_s\[fp16\]=-1 must be"):
        made(peak_flops_per_s={"fp32": 1e12, "fp16": -1})
    with pytest.raises(UnknownNameError, match="dtype of device 'mine': 'fp17'"):
        made(peak_flops_per_s={"fp32": 1e12, "fp17": 1e12})


def test_vendor_must_be_known() -> None:
    with pytest.raises(UnknownNameError, match=r"vendor of device 'mine': 'nvidai'.*nvidia"):
        made(vendor="nvidai")


def test_price_needs_both_ends_in_order() -> None:
    with pytest.raises(InputError, match="both ends"):
        made(price_usd_per_hour_low=None)
    with pytest.raises(InputError, match="price 3 to 2 must be"):
        made(price_usd_per_hour_low=3, price_usd_per_hour_high=2)


def test_id_is_needed() -> None:
    with pytest.raises(InputError, match="needs an id"):
        dataclasses.replace(device("t4"), id="")


def test_launch_overhead_defaults_to_the_vendors() -> None:
    assert device("t4").launch_overhead_s == 4.5e-6
    assert device("mi300x").launch_overhead_s == 7e-6
    assert made(launch_overhead_s=1e-6).launch_overhead_s == 1e-6


def test_device_is_a_value() -> None:
    d = device("a100")
    assert hash(d) == hash(copy.deepcopy(d))
    assert pickle.loads(pickle.dumps(d)) == d
    assert dataclasses.asdict(d)["peak_flops_per_s"]["bf16"] == 312e12
    with pytest.raises(dataclasses.FrozenInstanceError):
        d.sm_count = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        d.peak_flops_per_s["bf16"] = 1.0  # type: ignore[index]


def test_rates_come_in_the_order_of_the_dtypes() -> None:
    shuffled = made(peak_flops_per_s={"fp16": 2e12, "fp32": 1e12})
    assert list(shuffled.peak_flops_per_s) == [t for t in DTYPES if t in ("fp32", "fp16")]


def test_ports_are_shared_as_usual() -> None:
    assert device("a100").usual_nics(8) == 8
    assert device("p100-sxm").usual_nics(8) == 4
    assert device("t4").usual_nics(1) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "nvlnk"}, "kind of link 'mine': 'nvlnk'.*nvlink"),
        ({"bandwidth_bytes_per_s": 0}, "link 'mine': bandwidth_bytes_per_s=0 must be"),
        ({"latency_s": -1.0}, "link 'mine': latency_s=-1.0 must be"),
    ],
)
def test_link_refuses_nonsense(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"kind": "pcie", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6}
    with pytest.raises(InputError, match=message):
        Link(id="mine", name="mine", **(good | changes))
