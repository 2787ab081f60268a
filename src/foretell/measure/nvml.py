"""Counters of NVIDIA devices, read by the sampling process through the driver's NVML.

The driver averages both utilisations over a window of its own, a sixth of a second to a second:
bursts shorter than that do not show, however often it is asked.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from foretell.errors import CannotError, MissingExtraError


def check_nvml() -> None:
    """Raise unless the package that speaks to NVML is installed."""
    if importlib.util.find_spec("pynvml") is None:
        raise MissingExtraError("sampling NVIDIA devices", "nvidia")


class NvidiaCounters:
    """Devices by NVML's index (which ignores CUDA_VISIBLE_DEVICES) or UUID."""

    def __init__(self, devices: Sequence[int | str]) -> None:
        self.devices = tuple(devices)
        self._last: list[int] = []
        self._handles: list[object] = []
        if not devices:
            return
        check_nvml()
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            for device in devices:
                by_index = isinstance(device, int)
                find = (
                    pynvml.nvmlDeviceGetHandleByIndex
                    if by_index
                    else pynvml.nvmlDeviceGetHandleByUUID
                )
                self._handles.append(find(device))
            self._last = self._ask()
        except pynvml.NVMLError as error:
            names = ", ".join(map(str, devices))
            raise CannotError(
                f"NVIDIA devices {names} cannot be sampled, NVML says {error}: "
                "compare with what nvidia-smi lists"
            ) from error

    def read(self) -> list[int]:
        """Per device: percent of time busy, percent of time its memory was, bytes in use."""
        if self._handles:
            try:
                self._last = self._ask()
            except self._nvml.NVMLError:
                return self._last  # a driver that stumbles once is asked again at the next tick
        return self._last

    def _ask(self) -> list[int]:
        counts = []
        for handle in self._handles:
            busy = self._nvml.nvmlDeviceGetUtilizationRates(handle)
            counts += [busy.gpu, busy.memory, self._nvml.nvmlDeviceGetMemoryInfo(handle).used]
        return counts
