"""timm:NAME, any model of the timm package, built without weights."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import Any

from foretell.errors import CaptureError, InputError, MissingExtraError, UnknownNameError
from foretell.graph.capture import Subject
from foretell.graph.loss import class_targets


def build_timm(name: str, *, image_size: int | None = None) -> Subject:
    """A timm model ready to capture; `image_size` overrides its own input resolution."""
    import torch

    timm = _import_timm()
    known = timm.list_models()
    plain = name.split(".")[0]
    if not timm.is_model(plain):
        raise UnknownNameError("timm model", name, known)
    if image_size is not None and image_size < 1:
        raise InputError(f"image size {image_size} is not a size: give pixels, such as 224")
    with torch.device("meta"), _quiet():
        module, size = _create(timm, plain, image_size)
    channels = size[0]

    def inputs(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (torch.empty((batch, channels, *size[1:])),), {}

    def loss(out: Any) -> torch.Tensor:
        first = out[0] if isinstance(out, (tuple, list)) else out
        target = class_targets(first.shape[:1], first.device)
        return torch.nn.functional.cross_entropy(first.flatten(1), target)

    return Subject(
        module=module,
        inputs=inputs,
        loss=loss,
        meta={"source": f"timm:{name}", "input": list(size), "sample": "image"},
    )


def timm_names() -> list[str]:
    """All names that timm:NAME accepts."""
    names: list[str] = _import_timm().list_models()
    return names


def _import_timm() -> Any:
    from foretell.graph.sources.torchvision_repair import repair_torchvision

    repair_torchvision()
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError("timm: models", "timm") from error
    return timm


def _create(timm: Any, name: str, image_size: int | None) -> tuple[Any, tuple[int, ...]]:
    """The module and its (channels, height, width); resizable models are built for the size."""
    if image_size is None:
        module = _create_with_head(timm, name)
        config = module.default_cfg
        return module, tuple(config.get("input_size") or (3, 224, 224))
    try:
        module = _create_with_head(timm, name, img_size=image_size)
    except TypeError:
        module = _create_with_head(timm, name)
    except Exception as error:
        raise InputError(
            f"timm model {name!r} cannot be built for image size {image_size}: {error}"
        ) from error
    channels = (module.default_cfg.get("input_size") or (3,))[0]
    return module, (channels, image_size, image_size)


def _create_with_head(timm: Any, name: str, **options: Any) -> Any:
    """Create a model; one whose configuration has no classes gets ImageNet's thousand."""
    try:
        module = timm.create_model(name, **options)
    except (TypeError, InputError):
        raise
    except Exception as error:
        if options:
            raise
        reason = str(error).strip().split("\n")[0]
        raise CaptureError(f"timm model {name!r} cannot be built here: {reason}") from error
    if getattr(module, "num_classes", None) == 0:
        with contextlib.suppress(Exception):
            return timm.create_model(name, num_classes=1000, **options)
    return module


@contextlib.contextmanager
def _quiet() -> Any:
    """timm talks while it builds; users asked for a forecast."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
