"""Where and how a step runs, as numbers: device, mode, layout, execution, framework version."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.cluster import Device
from foretell.graph.graph import Floats
from foretell.predictors.scaledl.table import UNITS, unit_peaks
from foretell.workload import Recipe

SETTING_NAMES = ("train", "channels_last", "compile", "version_1", "minor", "cpu", "alone")
DEVICE_NAMES = ("log_bandwidth", "log_l2_bytes", "log_processors", *(f"log_{u}" for u in UNITS))
_USUAL_VERSION = (2, 6)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all operators of a step have in common."""

    device: str
    """Id; its embedding, if it was seen in training."""
    features: Floats
    """In the order of SETTING_NAMES."""
    spec: Floats
    """In the order of DEVICE_NAMES: natural logarithms."""

    @property
    def is_cpu(self) -> bool:
        """Whether the device is a processor."""
        return bool(self.features[SETTING_NAMES.index("cpu")])

    @property
    def is_alone(self) -> bool:
        """Whether it is about operators timed one by one."""
        return bool(self.features[SETTING_NAMES.index("alone")])

    @property
    def trains(self) -> bool:
        """Whether the step is one of training."""
        return bool(self.features[SETTING_NAMES.index("train")])


def place_of(setting: Setting) -> str:
    """Device, mode, layout and execution in one word; intervals go by it."""
    on = dict(zip(SETTING_NAMES, setting.features.astype(bool).tolist(), strict=True))
    words = (
        setting.device,
        "alone" if on["alone"] else "train" if on["train"] else "infer",
        "nhwc" if on["channels_last"] else "nchw",
        "compiled" if on["compile"] else "eager",
    )
    return "/".join(words)


def setting_of(recipe: Recipe, device: Device) -> Setting:
    """The setting of a workload on a device."""
    return make_setting(
        device,
        mode=recipe.mode,
        channels_last=recipe.channels_last,
        compiled=recipe.compile,
        torch_version=recipe.torch_version,
    )


def make_setting(
    device: Device,
    *,
    mode: str,
    channels_last: bool = False,
    compiled: bool = False,
    torch_version: str | None = None,
    alone: bool = False,
) -> Setting:
    """`alone` is for operators timed one by one, with their launch."""
    major, minor = _version(torch_version)
    features = [
        mode == "train",
        channels_last,
        compiled,
        major < 2,
        (minor - 11 if major < 2 else minor - 6) / 5,
        device.vendor == "cpu",
        alone,
    ]
    spec = [
        device.memory_bandwidth_bytes_per_s,
        device.l2_bytes,
        device.sm_count,
        *unit_peaks(device),
    ]
    return Setting(
        device=device.id,
        features=np.array(features, dtype=np.float64),
        spec=np.log(np.array(spec, dtype=np.float64)),
    )


def _version(text: str | None) -> tuple[int, int]:
    if text is None:
        return _USUAL_VERSION
    major, _, rest = text.partition(".")
    return int(major), int(rest.split(".")[0] or 0)
