"""The catalogue holds what it promises, and its figures are plausible."""

import re
import subprocess
import sys

import pytest

from foretell.cluster import Device, aliases, device, devices, link, links, search
from foretell.cluster.catalogue import driver_names, link_aliases
from foretell.cluster.link import KINDS
from foretell.errors import UnknownNameError

PROMISED_DEVICES = """
k80 p4 p100 p100-sxm v100-16gb v100-32gb v100-16gb-pcie v100-32gb-pcie t4 rtx2080ti titan-rtx
rtx3080 rtx3090 rtx4080 rtx4090 rtx5090 gtx1080ti rtx-a4000 rtx-a5000 rtx-a6000 quadro-rtx6000
quadro-rtx8000 rtx-6000-ada rtx-pro-6000 rtx-pro-6000-maxq a10 a10g a30 a40 a100-40gb a100-80gb
a100-40gb-pcie a100-80gb-pcie a800-80gb l4 l40 l40s h100-sxm h100-pcie h100-nvl h800 h200 gh200
b200 gb200 b300 gb300 mi50 mi100 mi210 mi250 mi250x mi300x mi325x mi350x mi355x cpu i9-10940x
i7-12700h xeon-8380 xeon-8480 epyc-7763 epyc-9654
"""
PROMISED_LINKS = """
nvlink1 nvlink2 nvlink3 nvlink4 nvlink5 pcie3 pcie4 pcie5 pcie6 xgmi2 xgmi3 xgmi4 ib-fdr ib-edr
ib-hdr100 ib-hdr ib-ndr ib-xdr roce-25 roce-100 roce-200 roce-400 efa-100 efa-400 efa-v2 efa-v3
eth-1g eth-10g eth-25g eth-40g eth-100g loopback
"""
# Dense, accumulating in fp32: the figures a halved GeForce or a sparse marketing figure gets wrong.
HALF_PRECISION_TFLOPS = {
    "v100-16gb": 125,
    "t4": 65,
    "rtx3090": 71,
    "rtx4090": 165.2,
    "rtx5090": 209.5,
    "a100-80gb": 312,
    "l40s": 362,
    "h100-sxm": 989.4,
    "b200": 2250,
    "mi300x": 1307.4,
}

every_device = pytest.mark.parametrize("d", devices().values(), ids=devices())
gpus = [d for d in devices().values() if d.vendor != "cpu"]
tensor_gpus = [
    d for d in gpus if d.vendor == "nvidia" and d.architecture not in ("kepler", "pascal")
]
every_gpu = pytest.mark.parametrize("d", gpus, ids=[d.id for d in gpus])


@pytest.mark.parametrize("name", PROMISED_DEVICES.split())
def test_promised_device_is_there(name: str) -> None:
    assert device(name).id == name


@pytest.mark.parametrize("name", PROMISED_LINKS.split())
def test_promised_link_is_there(name: str) -> None:
    assert link(name).id == name


@every_device
def test_device_names_links_that_exist_and_fit(d: Device) -> None:
    assert link(d.network).is_network
    assert not link(d.gpu_link).is_network or link(d.gpu_link).kind == "loopback"
    assert d.host_link in links()


@every_device
def test_device_is_documented(d: Device) -> None:
    assert d.id == d.id.lower()
    assert d.name
    assert d.sources
    assert d.year
    assert d.tdp_w


@every_device
def test_price_is_a_dated_range_an_estimate_or_absent(d: Device) -> None:
    if d.price_usd_per_hour is None:
        assert d.price_as_of == ""
    else:
        low, high = d.price_usd_per_hour
        assert 0.01 <= low <= high <= 25
        assert re.fullmatch(r"estimate|20\d\d(-\d\d)?", d.price_as_of)


@every_gpu
def test_gpu_figures_lie_within_plausible_limits(d: Device) -> None:
    assert d.year is not None
    assert d.tdp_w is not None
    assert 4e12 < d.peak("fp32") < 200e12
    assert 7 * 2**30 < d.memory_bytes <= 288 * 2**30
    assert 150e9 < d.memory_bandwidth_bytes_per_s <= 8e12
    assert 2**20 <= d.l2_bytes <= 128 * 2**20
    assert 10 <= d.sm_count <= 320
    assert 0.8e9 < d.clock_hz < 2.7e9
    assert 70 <= d.tdp_w <= 1400
    assert 2014 <= d.year <= 2026
    assert 3e-6 < d.launch_overhead_s < 1e-5


@every_gpu
def test_vector_rate_follows_from_lanes_and_clock(d: Device) -> None:
    lanes = {"kepler": 192, "pascal-dc": 64, "pascal-consumer": 128, "volta": 64, "turing": 64}
    lanes |= {"ampere-dc": 64, "gcn5": 64, "cdna1": 64, "cdna2": 64}
    from_clock = 2 * lanes.get(d.family, 128) * d.sm_count * d.clock_hz
    # CDNA 3 and 4 issue two fp32 instructions at once: 128 lanes. Sheets round, and rate some
    # chips at another clock than the driver's highest.
    assert d.vector_flops_per_s == pytest.approx(from_clock, rel=0.05)


@every_device
def test_narrower_types_are_never_slower(d: Device) -> None:
    order = [t for t in ("fp32", "tf32", "fp16", "fp8") if d.supports(t)]
    rates = [d.peak(t) for t in order]
    assert rates == sorted(rates)


@pytest.mark.parametrize("d", tensor_gpus, ids=[d.id for d in tensor_gpus])
def test_matrix_rate_per_clock_is_a_power_of_two_per_unit(d: Device) -> None:
    # 1024 FLOP a clock and SM, and the like: catches a sparse figure or a typing error.
    per_clock = d.peak("fp16") / (d.sm_count * d.clock_hz)
    nearest = min((2**n for n in range(6, 15)), key=lambda power: abs(per_clock / power - 1))
    # H100's tensor cores are rated at a lower clock than its vector units.
    assert per_clock == pytest.approx(nearest, rel=0.15)


def test_generations_are_in_order() -> None:
    order = [device(name) for name in ("v100-16gb", "a100-80gb", "h100-sxm", "b200")]
    assert [d.peak("fp16") for d in order] == sorted(d.peak("fp16") for d in order)
    bandwidths = [d.memory_bandwidth_bytes_per_s for d in order]
    assert bandwidths == sorted(bandwidths)
    memories = [d.memory_bytes for d in order]
    assert memories == sorted(memories)


@pytest.mark.parametrize(("name", "tflops"), HALF_PRECISION_TFLOPS.items())
def test_half_precision_rate_is_dense_with_fp32_accumulation(name: str, tflops: float) -> None:
    assert device(name).peak("fp16") == pytest.approx(tflops * 1e12)


def test_one_mi250_is_half_a_package() -> None:
    assert "one GCD" in device("mi250").name
    assert device("mi250").memory_bytes < 64 * 2**30


def test_export_variants_have_the_slower_link() -> None:
    for cut, full in (("a800", "a100"), ("h800", "h100")):
        slow, fast = link(device(cut).gpu_link), link(device(full).gpu_link)
        assert slow.bandwidth_bytes_per_s < fast.bandwidth_bytes_per_s
        assert device(cut).peak("bf16") == device(full).peak("bf16")


@pytest.mark.parametrize(("alias", "target"), aliases().items())
def test_alias_leads_to_a_device_and_hides_none(alias: str, target: str) -> None:
    assert device(alias) is devices()[target]
    assert alias not in devices()


@pytest.mark.parametrize(("alias", "target"), link_aliases().items())
def test_link_alias_leads_to_a_link(alias: str, target: str) -> None:
    assert link(alias) is links()[target]


def test_driver_names_lead_to_devices() -> None:
    assert set(driver_names().values()) <= set(devices())


@pytest.mark.parametrize(
    ("alias", "target"),
    [
        ("a100", "a100-80gb"),
        ("V100", "v100-16gb"),
        ("H100", "h100-sxm"),
        ("a6000", "rtx-a6000"),
        ("pro6000", "rtx-pro-6000"),
        ("4090", "rtx4090"),
        (" A100-80GB ", "a100-80gb"),
    ],
)
def test_names_are_found_in_any_case_and_by_alias(alias: str, target: str) -> None:
    assert device(alias).id == target


def test_unknown_device_offers_near_matches() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown device 'h100-smx'.*h100-sxm") as caught:
        device("h100-smx")
    assert "h100-sxm" in caught.value.near


def test_unknown_link_offers_near_matches() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown link 'ib-ndrr'.*ib-ndr"):
        link("ib-ndrr")


def test_search_wants_every_word() -> None:
    assert {d.id for d in search("ampere 40GB")} == {"a100-40gb", "a100-40gb-pcie"}
    assert device("rtx4090") in search("4090")
    assert search("no such thing") == ()
    assert len(search("")) == len(devices())


def test_links_of_one_kind_grow_with_their_generation() -> None:
    for chain in ("nvlink1 nvlink2 nvlink3 nvlink4 nvlink5", "pcie3 pcie4 pcie5 pcie6"):
        rates = [link(name).bandwidth_bytes_per_s for name in chain.split()]
        assert rates == sorted(rates)
    assert {known.kind for known in links().values()} == set(KINDS)


def test_mappings_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        devices()["mine"] = device("a100")  # type: ignore[index]


def test_importing_reads_no_file_and_nothing_heavy() -> None:
    code = "import sys, foretell.cluster; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "tomllib", "subprocess", "pydantic"} & set(done.stdout.split())
