"""This machine is found, and whatever the system says or withholds, detection gives an answer."""

import os
from pathlib import Path

import pytest

from foretell.cluster import detect as detection
from foretell.cluster import (
    detect_gpus,
    detect_local,
    device,
    device_for_driver_name,
    parse_cluster,
)

LAPTOP = """processor	: {n}
vendor_id	: {vendor}
cpu family	: {family}
model name	: {name}
cpu MHz		: {mhz}
cache size	: 24576 KB
physical id	: 0
core id		: {core}
flags		: fpu {flags}
"""


def pretend(
    monkeypatch: pytest.MonkeyPatch,
    *,
    threads: int = 4,
    cores: int = 2,
    name: str = "Some CPU",
    flags: str = "avx avx2 fma",
    vendor: str = "GenuineIntel",
    family: str = "6",
    mhz: str = "2000.000",
    files: dict[str, str] | None = None,
) -> None:
    blocks = [
        LAPTOP.format(
            n=n, vendor=vendor, family=family, name=name, core=n % cores, flags=flags, mhz=mhz
        )
        for n in range(threads)
    ]
    known = {"/proc/cpuinfo": "\n".join(blocks)} | (files or {})
    monkeypatch.setattr(detection, "_read", lambda path: known.get(path, ""))
    monkeypatch.setattr(detection, "_affinity", lambda: set(range(threads)))
    detect_local.cache_clear()


@pytest.fixture(autouse=True)
def forget_pretences() -> object:
    yield
    detect_local.cache_clear()


def test_this_machine_is_found() -> None:
    local = detect_local()
    assert (local.id, local.vendor) == ("local", "cpu")
    assert 1 <= local.sm_count <= (os.cpu_count() or 1)
    assert 2**28 < local.memory_bytes < 2**45
    assert 1e9 < local.peak("fp32") < 1e15
    assert device("LOCAL") is local
    assert parse_cluster("local").devices == (local,)


def test_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, threads=4, cores=2)
    assert detect_local().sm_count == 2
    assert detect_local().peak("fp32") == 2 * 2e9 * 32


def test_cores_the_process_may_not_use_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, threads=4, cores=4)
    monkeypatch.setattr(detection, "_affinity", lambda: {1, 2})
    assert detect_local().sm_count == 2


@pytest.mark.parametrize(
    ("flags", "vendor", "family", "fp32", "bf16", "kind"),
    [
        ("sse2", "GenuineIntel", "6", 8, 0, "cpu-sse"),
        ("avx", "GenuineIntel", "6", 16, 0, "cpu-avx"),
        ("avx avx2 fma", "GenuineIntel", "6", 32, 0, "cpu-avx2"),
        ("avx2 fma avx512f", "GenuineIntel", "6", 64, 0, "cpu-avx512"),
        ("avx2 avx512f avx512_bf16", "AuthenticAMD", "25", 32, 64, "cpu-avx512"),
        ("avx2 avx512f avx512_bf16", "AuthenticAMD", "26", 64, 128, "cpu-avx512"),
        ("avx2 avx512f avx512_bf16 amx_bf16", "GenuineIntel", "6", 64, 1024, "cpu-amx"),
        ("asimd", "ARM", "8", 16, 0, "cpu-neon"),
    ],
)
def test_rates_follow_the_vector_instructions(
    monkeypatch: pytest.MonkeyPatch,
    flags: str,
    vendor: str,
    family: str,
    fp32: int,
    bf16: int,
    kind: str,
) -> None:
    monkeypatch.setattr(detection, "_machine", lambda: "x86_64")
    pretend(monkeypatch, cores=2, flags=flags, vendor=vendor, family=family)
    local = detect_local()
    assert local.family == kind
    assert local.peak("fp32") == 2 * 2e9 * fp32
    assert local.supports("bf16") == bool(bf16)
    if bf16:
        assert local.peak("bf16") == 2 * 2e9 * bf16


@pytest.mark.parametrize(
    ("name", "mhz", "files", "clock_hz"),
    [
        ("Xeon @ 2.30GHz", "3000", {}, 2.3e9),
        ("Core", "800", {"base_frequency": "2600000\n"}, 2.6e9),
        ("Core", "800", {"cpuinfo_max_freq": "4000000"}, 4e9),
        ("Core", "3100.5", {}, 3100.5e6),
        ("Core", "unknown", {}, 2.5e9),
    ],
)
def test_clock_is_the_base_clock_where_told(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    mhz: str,
    files: dict[str, str],
    clock_hz: float,
) -> None:
    frequencies = {f"/sys/devices/system/cpu/cpu0/cpufreq/{f}": text for f, text in files.items()}
    pretend(monkeypatch, name=name, mhz=mhz, files=frequencies)
    assert detect_local().clock_hz == pytest.approx(clock_hz)


def test_a_server_is_given_more_memory_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, threads=32, cores=32, name="Desktop")
    desktop = detect_local().memory_bandwidth_bytes_per_s
    pretend(monkeypatch, threads=32, cores=32, name="AMD EPYC 7763")
    assert detect_local().memory_bandwidth_bytes_per_s > desktop


def test_a_system_that_tells_nothing_still_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "_read", lambda path: "")
    monkeypatch.setattr(os, "sysconf", lambda name: -1)
    detect_local.cache_clear()
    local = detect_local()
    assert local.memory_bytes == 16 * 2**30
    assert local.clock_hz == 2.5e9


@pytest.mark.parametrize(
    ("printed", "device_id"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA Tesla T4", "t4"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("GeForce RTX 3090", "rtx3090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-maxq"),
    ],
)
def test_driver_names_are_understood(printed: str, device_id: str) -> None:
    assert device_for_driver_name(printed) is device(device_id)


def test_an_unknown_driver_name_is_nobody() -> None:
    assert device_for_driver_name("NVIDIA GeForce 256") is None


def script(folder: Path, body: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def test_gpus_are_asked_of_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(tmp_path, "echo NVIDIA H200; echo NVIDIA H200; echo NVIDIA Unheard-of")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [gpu.id for gpu in detect_gpus()] == ["h200", "h200"]


def test_no_gpus_without_a_working_nvidia_smi(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert detect_gpus() == ()
    script(tmp_path, "echo driver not loaded; exit 9")
    assert detect_gpus() == ()
