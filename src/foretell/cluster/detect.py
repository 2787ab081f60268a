"""Finds out what this machine is, without importing torch."""

from __future__ import annotations

import os
import re
from functools import cache

from foretell.cluster.catalogue import LOCAL, driver_names
from foretell.cluster.catalogue import devices as catalogued
from foretell.cluster.device import Device
from foretell.errors import InputError

_DEFAULT_CLOCK_HZ = 2.5e9
_DEFAULT_MEMORY_BYTES = 16 * 2**30
_DEFAULT_CACHE_BYTES = 16 * 2**20
# What one core draws from memory, and what a socket's channels give at most: honest middles of
# dual channel desktops and six to eight channel servers, as nothing reports the real figure.
_BANDWIDTH_PER_CORE_BYTES_PER_S = 12e9
_DESKTOP_BANDWIDTH_BYTES_PER_S = 45e9
_SERVER_BANDWIDTH_BYTES_PER_S = 150e9
_NVIDIA_SMI = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]


@cache
def detect_local(at_most: int | None = None) -> Device:
    """This machine's CPU, limited to the cores this process may run on, or to fewer."""
    processors = _processors(_read("/proc/cpuinfo"))
    first = processors[0] if processors else {}
    present = _physical_cores(processors)
    cores = present if at_most is None else at_most
    if not 1 <= cores <= present:
        raise InputError(f"local@{cores}: this machine has {present} cores, use 1 to {present}")
    clock_hz = _clock_hz(processors)
    fp32, bf16, family = _flops_per_cycle(first)
    peak = {"fp64": fp32 / 2, "fp32": fp32} | ({"bf16": bf16} if bf16 else {})
    name = first.get("model name") or f"{_machine()} CPU".strip()
    server = "avx512" in family or "amx" in family or re.search(r"xeon|epyc", name, re.I)
    sockets = len({p.get("physical id", "0") for p in processors}) or 1
    per_socket = _SERVER_BANDWIDTH_BYTES_PER_S if server else _DESKTOP_BANDWIDTH_BYTES_PER_S
    return Device(
        id=LOCAL if at_most is None else f"{LOCAL}@{cores}",
        name=f"{name.strip()}, {cores} cores",
        vendor="cpu",
        architecture="cpu",
        family=family,
        peak_flops_per_s={dtype: cores * clock_hz * flops for dtype, flops in peak.items()},
        vector_flops_per_s=cores * clock_hz * fp32,
        memory_bytes=_memory_bytes(),
        memory_bandwidth_bytes_per_s=min(
            cores * _BANDWIDTH_PER_CORE_BYTES_PER_S, sockets * per_socket
        ),
        l2_bytes=_cache_bytes(first),
        sm_count=cores,
        clock_hz=clock_hz,
        gpu_link="loopback",
        host_link="loopback",
        network="eth-1g",
        sources="the operating system; memory bandwidth is assumed",
    )


def detect_gpus() -> tuple[Device, ...]:
    """The catalogued devices among the GPUs nvidia-smi lists; empty when there are none."""
    import subprocess  # slow to import and seldom needed

    try:
        done = subprocess.run(
            _NVIDIA_SMI, capture_output=True, text=True, timeout=5, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    found = (device_for_driver_name(line) for line in done.stdout.splitlines())
    return tuple(device for device in found if device is not None)


def device_for_driver_name(printed: str) -> Device | None:
    """The device a driver or torch calls `printed`, such as 'NVIDIA A100-SXM4-80GB'."""
    name = re.sub(r"^((nvidia|tesla)\s+)+", "", printed.strip().lower())
    device_id = driver_names().get(name)
    return None if device_id is None else catalogued()[device_id]


def _processors(cpuinfo: str) -> list[dict[str, str]]:
    """The blocks of /proc/cpuinfo this process may run on."""
    blocks = []
    for block in cpuinfo.strip().split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        blocks.append({key.strip(): value.strip() for key, _, value in pairs})
    allowed = {str(cpu) for cpu in _affinity()}
    chosen = [block for block in blocks if block.get("processor") in allowed]
    return chosen or [block for block in blocks if "processor" in block]


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _physical_cores(processors: list[dict[str, str]]) -> int:
    """Cores rather than hardware threads: two threads of a core share its vector units."""
    places = {(p.get("physical id"), p["core id"]) for p in processors if "core id" in p}
    return len(places) or len(_affinity())


def _clock_hz(processors: list[dict[str, str]]) -> float:
    """The base clock if anything tells it: wide vectors seldom sustain more."""
    model = processors[0].get("model name", "") if processors else ""
    if named := re.search(r"@\s*([0-9]+(?:\.[0-9]+)?)\s*GHz", model):
        return float(named.group(1)) * 1e9
    for file in ("base_frequency", "cpuinfo_max_freq"):
        khz = _read(f"/sys/devices/system/cpu/cpu0/cpufreq/{file}").strip()
        if khz.isdigit() and int(khz) > 0:
            return int(khz) * 1e3
    shown = [
        p["cpu MHz"] for p in processors if re.fullmatch(r"[0-9]+\.?[0-9]*", p.get("cpu MHz", ""))
    ]
    return max((float(mhz) * 1e6 for mhz in shown), default=0.0) or _DEFAULT_CLOCK_HZ


def _flops_per_cycle(processor: dict[str, str]) -> tuple[int, int, str]:
    """FLOP per cycle and core in fp32 and bf16 (0: none), and the family."""
    flags = set(processor.get("flags", processor.get("Features", "")).split())
    # Zen 4 (family 25) feeds AVX-512 through 256 bit units.
    halved = processor.get("vendor_id") == "AuthenticAMD" and processor.get("cpu family") == "25"
    if "avx512f" in flags:
        fp32 = 32 if halved else 64
        if "amx_bf16" in flags:
            return fp32, 1024, "cpu-amx"
        return fp32, 2 * fp32 if "avx512_bf16" in flags else 0, "cpu-avx512"
    if "avx2" in flags and "fma" in flags:
        return 32, 0, "cpu-avx2"
    if "asimd" in flags or _machine().lower() in ("arm64", "aarch64"):
        return 16, 0, "cpu-neon"
    return (16, 0, "cpu-avx") if "avx" in flags else (8, 0, "cpu-sse")


def _machine() -> str:
    return os.uname().machine if hasattr(os, "uname") else ""


def _memory_bytes() -> int:
    try:
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _DEFAULT_MEMORY_BYTES
    # -1 stands for "not known".
    return pages * page_bytes if pages > 0 and page_bytes > 0 else _DEFAULT_MEMORY_BYTES


def _cache_bytes(processor: dict[str, str]) -> int:
    size = re.fullmatch(r"(\d+) KB", processor.get("cache size", ""))
    return int(size.group(1)) * 1024 if size and int(size.group(1)) else _DEFAULT_CACHE_BYTES


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
