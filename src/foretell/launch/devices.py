"""Which catalogued device a scheduler's word for a GPU means."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from foretell.cluster import aliases, devices
from foretell.cluster.catalogue import driver_names

# What the labels of clouds call accelerators and machines, as they write them.
_LABELLED = {
    "nvidia-tesla-a100": "a100-40gb",
    "nvidia-h100-mega-80gb": "h100-sxm",
    "standard_nd96asr_v4": "a100-40gb",
    "standard_nd96amsr_a100_v4": "a100-80gb",
    "standard_nd96isr_h100_v5": "h100-sxm",
    "standard_nd96isr_h200_v5": "h200",
    **dict.fromkeys((f"a2-highgpu-{n}g" for n in (1, 2, 4, 8)), "a100-40gb"),
    **dict.fromkeys((f"a2-ultragpu-{n}g" for n in (1, 2, 4, 8)), "a100-80gb"),
    **dict.fromkeys((f"a3-highgpu-{n}g" for n in (1, 2, 4, 8)), "h100-sxm"),
    "a3-megagpu-8g": "h100-sxm",
    "a3-ultragpu-8g": "h200",
}
# Families of machines whose size follows a dot.
_MACHINES = {
    "p3": "v100-16gb",
    "p3dn": "v100-32gb",
    "p4d": "a100-40gb",
    "p4de": "a100-80gb",
    "p5": "h100-sxm",
    "p5e": "h200",
    "p5en": "h200",
    "p6-b200": "b200",
    "g4dn": "t4",
    "g5": "a10g",
    "g6": "l4",
    "g6e": "l40s",
}
_BRANDS = re.compile(r"^((nvidia|tesla|geforce|amd|instinct|gpu)[-_ ])+")


def resolve_device(word: str, also: Iterable[str] = ()) -> str | None:
    """The id of the GPU that `word` means; None when the catalogue does not know it.

    `also` are further words that may settle the memory size, such as 80gb.
    """
    if (labelled := _LABELLED.get(word.strip().lower())) is not None:
        return labelled
    plain = _plain(word)
    sizes = [m.group(1) for w in also if (m := re.fullmatch(r"(?:gpu)?(\d+)gb?", _plain(w)))]
    candidates = [f"{plain}-{size}gb" for size in sizes] + [plain, f"{plain}b", f"{plain}gb"]
    for candidate in candidates:
        if candidate in _names():
            return _names()[candidate]
    return _MACHINES.get(word.lower().split(".")[0]) if "." in word else None


def memory_variants(word: str) -> tuple[str, ...]:
    """The devices that a word leaves open, such as a100 -> a100-40gb and a100-80gb."""
    if word.strip().lower() in _LABELLED:
        return ()
    plain = _plain(word)
    found = (d for d in devices() if re.fullmatch(re.escape(plain) + r"-\d+gb", d))
    return tuple(sorted(found))


@cache
def _names() -> dict[str, str]:
    found = {_plain(printed): known for printed, known in driver_names().items()}
    found |= dict(aliases()) | {device_id: device_id for device_id in devices()}
    return {name: known for name, known in found.items() if devices()[known].vendor != "cpu"}


def _plain(word: str) -> str:
    return _BRANDS.sub("", re.sub(r"[_\s]+", "-", word.strip().lower()))
