"""What a run ran on and with: everything needed to repeat it, nothing that names the machine."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from foretell._version import __version__
from foretell.cluster import Device

_LIBRARIES = ("torch", "timm", "transformers", "numpy")


def environment(device: Device, threads: int) -> dict[str, Any]:
    """Versions, processor, clocks and load, as plain data."""
    import torch

    found: dict[str, Any] = {
        "foretell": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": threads,
        "device": device_facts(device),
        "load_1m": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        **{name: _version(name) for name in _LIBRARIES},
    }
    if torch.cuda.is_available():
        found |= _cuda()
    else:
        found |= {"governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")}
        found |= {"clock_mhz": _clock_mhz()}
    return {name: value for name, value in found.items() if value not in ("", None)}


def device_facts(device: Device) -> dict[str, Any]:
    """A device as plain data, so that another machine can forecast for it."""
    facts = {f.name: getattr(device, f.name) for f in dataclasses.fields(device)}
    facts["peak_flops_per_s"] = dict(device.peak_flops_per_s)
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _cuda() -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "cuda": torch.version.cuda or "",
        "gpu": torch.cuda.get_device_name(),
        "cudnn": torch.backends.cudnn.version(),
    }
    try:
        import pynvml
    except ImportError:
        return found
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    found["driver"] = pynvml.nvmlSystemGetDriverVersion()
    found["clock_mhz"] = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    return found


def _clock_mhz() -> float | None:
    shown = [
        float(line.split(":")[1])
        for line in _read("/proc/cpuinfo").splitlines()
        if line.startswith("cpu MHz")
    ]
    return max(shown, default=None)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
