"""What a calibration chooses from: single operators, and small models of many kinds."""

from __future__ import annotations

import importlib.util
import itertools

from foretell.api import Case, cluster_of
from foretell.design.candidates import Candidate, captured
from foretell.graph.sources.op_sweep import sweep_ops
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.assemble import slowest

# Many architectures, none of them large, so that a whole step is soon measured.
_VISION = (
    "resnet26",
    "seresnext26t_32x4d",
    "mobilenetv2_140",
    "efficientnet_b1",
    "regnetx_004",
    "rexnet_100",
    "ghostnetv2_100",
    "hrnet_w18_small",
    "res2net50_14w_8s",
    "convnext_pico",
    "vit_small_patch32_224",
    "poolformer_s12",
    "mixer_s32_224",
    "levit_128s",
    "mobilevitv2_050",
    "cspdarknet53",
)
_TEXT = (
    "transformer:layers=4,hidden=384,heads=6,seq=128,vocab=8000",
    "transformer:layers=3,hidden=256,heads=4,seq=256,vocab=8000,ffn=704,gated,rmsnorm,rope",
    "transformer:layers=8,hidden=128,heads=4,seq=128,vocab=2000,encoder",
)
_SIZES = {"cpu": (96, (2, 8))}
_GPU_SIZES = (224, (16, 64))
_FIXED_SIZE = {"vit_small_patch32_224": 224, "mixer_s32_224": 224, "levit_128s": 224}
_LONGEST_OPERATOR_S, _LONGEST_STEP_S = 0.3, 2.0


def operators(cluster: str) -> list[Candidate]:
    """Operators alone, forward or with backward, that one device runs soon."""
    cases = [  # both of each would tell little more and take twice as long to capture
        Case(model=m, batch=b, cluster=cluster, mode=mode)
        for (m, b), mode in zip(sweep_ops(), itertools.cycle(("train", "infer")), strict=False)
    ]
    return _short(cases)


def models(cluster: str, modes: tuple[str, ...]) -> list[Candidate]:
    """Steps of models that the devices run soon."""
    return _short(model_cases(cluster, modes))


def model_cases(cluster: str, modes: tuple[str, ...]) -> list[Case]:
    """Every model in two batches; those of timm only where it is installed."""
    vendor = slowest(cluster_of(cluster)).vendor
    image_size, batches = _SIZES.get(vendor, _GPU_SIZES)
    cases = [
        Case(model=m, batch=b, cluster=cluster, mode=mode)
        for m in _TEXT
        for b in batches
        for mode in modes
    ]
    if importlib.util.find_spec("timm") is None:
        return cases
    return cases + [
        Case(
            model=f"timm:{m}",
            batch=b,
            cluster=cluster,
            mode=mode,
            image_size=_FIXED_SIZE.get(m, image_size),
        )
        for m in _VISION
        for b in batches
        for mode in modes
    ]


def _short(cases: list[Case]) -> list[Candidate]:
    return [c for c in captured(cases)[0] if _is_short(c)]


def _is_short(candidate: Candidate) -> bool:
    workload, cluster = candidate.job
    expected_s = AnalyticPredictor.shipped().play(workload, cluster)[1].step_s
    return expected_s <= (_LONGEST_OPERATOR_S if candidate.is_operator else _LONGEST_STEP_S)
