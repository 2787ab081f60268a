"""Where and how a step runs, as numbers: device, mode, layout, execution, framework version."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from foretell.cluster import Device
from foretell.graph.graph import Floats
from foretell.predictors.scaledl.form import USUAL_LOG_WATTS
from foretell.predictors.scaledl.table import UNITS, unit_peaks
from foretell.workload import Recipe

RELEASES = ((1, 10), (1, 11), (1, 12), (1, 13), (2, 1), (2, 4), (2, 9))
"""Releases of PyTorch that steps were measured with; others are taken as between their neighbours.

Which kernels a release picks does not follow its number, so each has a switch of its own.
"""
SETTING_NAMES = (
    "train",
    "channels_last",
    "compile",
    "cpu",
    "alone",
    *(f"torch_{major}_{minor}" for major, minor in RELEASES),
)
_FIRST_RELEASE = len(SETTING_NAMES) - len(RELEASES)
DEVICE_NAMES = (
    "log_bandwidth",
    "log_l2_bytes",
    "log_processors",
    "log_watts",
    *(f"log_{u}" for u in UNITS),
)
FIRST_UNIT = DEVICE_NAMES.index(f"log_{UNITS[0]}")
VECTOR = DEVICE_NAMES.index("log_vector")
_USUAL_VERSION = (2, 6)
ALONE = -1
"""Instead of a release, where nobody noted one."""


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
    def is_old(self) -> bool:
        """Whether PyTorch was older than 2."""
        old = [major < 2 for major, _ in RELEASES]
        return bool(self.features[_FIRST_RELEASE:][old].sum() > 0.5)

    @property
    def release(self) -> int:
        """The nearest of RELEASES; ALONE for operators timed one by one."""
        return ALONE if self.is_alone else int(self.features[_FIRST_RELEASE:].argmax())

    def at_release(self, release: int) -> Setting:
        """The same with another of RELEASES."""
        features = self.features.copy()
        features[_FIRST_RELEASE:] = np.eye(len(RELEASES))[release]
        return dataclasses.replace(self, features=features)

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
    features = [
        mode == "train",
        channels_last,
        compiled,
        device.vendor == "cpu",
        alone,
        *(np.zeros(len(RELEASES)) if alone else _releases(torch_version)),
    ]
    spec = [
        device.memory_bandwidth_bytes_per_s,
        device.l2_bytes,
        device.sm_count,
        _watts(device),
        *unit_peaks(device),
    ]
    return Setting(
        device=device.id,
        features=np.array(features, dtype=np.float64),
        spec=np.log(np.array(spec, dtype=np.float64)),
    )


def _watts(device: Device) -> float:
    """What the device may draw; as much as it needs where nobody says or it is a processor."""
    if device.tdp_w is None or device.vendor == "cpu":
        return 2 * math.exp(USUAL_LOG_WATTS) * device.sm_count
    return device.tdp_w


def _releases(text: str | None) -> Floats:
    """How much of each of RELEASES a version is."""
    at = [_place(*release) for release in RELEASES]
    wanted = _place(*_USUAL_VERSION) if text is None else _place(*_version(text))
    return np.array([np.interp(wanted, at, each) for each in np.eye(len(RELEASES))])


def _place(major: int, minor: int) -> float:
    """Releases in a row: 2.0 came after 1.13."""
    return float(minor if major < 2 else 14 + minor)


def _version(text: str) -> tuple[int, int]:
    major, _, rest = text.partition(".")
    return int(major), int(rest.split(".")[0] or 0)
