"""Where models come from: a reference in, a Graph out, captured or from the cache.

    timm:resnet50                          a model of the timm package
    hf:meta-llama/Llama-3.1-8B             a well-known architecture, facts shipped with us
    hf:path/config.json                    a local Hugging Face configuration
    transformer:layers=24,hidden=1024,...  a transformer that exists only as numbers
    op:linear,in=1024,out=4096             a single operator
    path/file.py:function                  the user's own code
    package.module:function                the user's own code, installed

Nothing here imports torch until a model really has to be captured.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell._version import __version__
from foretell.errors import InputError
from foretell.graph.graph import Graph
from foretell.graph.sources.op_shape import parse_op
from foretell.graph.sources.transformer_shape import parse_transformer
from foretell.graph.store import GraphCache

if TYPE_CHECKING:
    from foretell.graph.capture import CaptureOptions, Subject

_LIBRARY = {"timm": "timm", "hf": "transformers", "transformer": "", "op": ""}

_PARSERS: dict[str, Callable[[str], object]] = {"transformer": parse_transformer, "op": parse_op}


def graph_of(
    reference: str,
    *,
    image_size: int | None = None,
    seq: int | None = None,
    mode: str = "train",
    precision: str = "fp32",
    channels_last: bool = False,
    fused_attention: bool = True,
    recompute: str = "none",
    batch: int | None = None,
    cache: GraphCache | None = None,
) -> Graph:
    """The graph of a model reference; `recompute` is none, full, selective or module names.

    `batch` is the one the graph will be asked about: the user's own code may depend on it.
    """
    scheme = check_reference(reference)  # so that nothing the cache holds hides a mistake
    for name, value in {"image_size": image_size, "seq": seq, "batch": batch}.items():
        if value is not None and value < 1:
            raise InputError(f"{name}={value} must be at least 1")
    options: dict[str, Any] = {
        "mode": mode,
        "precision": captured_precision(precision),
        "channels_last": channels_last,
        "fused_attention": fused_attention,
        "recompute": recompute if mode == "train" else "none",
    }
    if scheme == "python":
        return _capture_own(reference, options, batch)
    key = {
        "reference": reference,
        "image_size": image_size,
        "seq": seq,
        **options,
        **_versions(scheme, reference),
    }
    cache = cache or GraphCache()
    found = cache.get(key)
    if found is None:
        found = _capture(reference, image_size, seq, options)
        cache.put(key, found)
    return found


def file_stamp(reference: str) -> tuple[str, int, int] | None:
    """What changes when the file behind a reference does; None for those without a file."""
    path = _file_of(reference)
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return found and (str(path), found.st_mtime_ns, found.st_size)


def check_reference(reference: str) -> str:
    """The scheme of a reference; refuses what can be seen to be wrong without building it."""
    scheme = scheme_of(reference)
    if scheme in _PARSERS:
        _PARSERS[scheme](reference.partition(":")[2])
    return scheme


def scheme_of(reference: str) -> str:
    """'timm', 'hf', 'transformer', 'op' or 'python'; refuses what is none of them."""
    scheme, colon, rest = reference.partition(":")
    if scheme in _LIBRARY and rest:
        return scheme
    if not colon or not rest or not scheme:
        raise InputError(
            f"model reference {reference!r} is not understood: write timm:NAME, hf:NAME, "
            "transformer:layers=..., file.py:function or package.module:function"
        )
    return "python"


def subject_of(reference: str, *, image_size: int | None = None, seq: int | None = None) -> Subject:
    """The model behind a reference, built on the meta device and ready to capture."""
    scheme = scheme_of(reference)
    name = reference.partition(":")[2]
    if scheme == "timm":
        from foretell.graph.sources.timm_source import build_timm

        return build_timm(name, image_size=image_size)
    if scheme == "hf":
        from foretell.graph.sources.hf_source import build_hf

        return build_hf(name, seq=seq, image_size=image_size)
    if scheme == "transformer":
        from foretell.graph.sources.transformer_source import build_transformer

        return build_transformer(name, seq=seq)
    if scheme == "op":
        from foretell.graph.sources.op_source import build_op

        return build_op(name)
    from foretell.graph.sources.python_source import build_python

    return build_python(reference)


def _capture(
    reference: str, image_size: int | None, seq: int | None, options: dict[str, Any]
) -> Graph:
    from foretell.graph.capture import capture
    from foretell.graph.surroundings import default_dtype

    with default_dtype("float32"):
        subject = subject_of(reference, image_size=image_size, seq=seq)
        return capture(subject, _capture_options(subject, options))


def _capture_own(reference: str, options: dict[str, Any], batch: int | None) -> Graph:
    from foretell.graph.surroundings import default_dtype

    with default_dtype():
        return graph_of_own(subject_of(reference), batch=batch, **options)


def graph_of_own(subject: Subject, *, batch: int | None, **options: Any) -> Graph:
    """The graph of a user's own model made ready to capture."""
    from foretell.graph.own import capture_own

    return capture_own(subject, _capture_options(subject, options), batch=batch)


def _capture_options(subject: Subject, options: dict[str, Any]) -> CaptureOptions:
    """What capture is told; the graph remembers it."""
    from foretell.graph.blocks import recompute_paths
    from foretell.graph.capture import CaptureOptions

    subject.meta["captured"] = options
    paths = recompute_paths(subject.module, options["recompute"])
    return CaptureOptions(**{**options, "recompute": paths})


def _file_of(reference: str) -> Path | None:
    """The file a reference is read from, if it is one that can change."""
    scheme = scheme_of(reference)
    if scheme not in ("python", "hf"):
        return None
    place = reference.rpartition(":")[0] if scheme == "python" else reference.partition(":")[2]
    try:
        path = Path(place).resolve()
        path = path / "config.json" if scheme == "hf" and path.is_dir() else path
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


def captured_precision(precision: str) -> str:
    """tf32 changes the speed of matrix products, not the operators; fp8 runs on a bf16 graph."""
    return {"tf32": "fp32", "fp8": "bf16"}.get(precision, precision)


def _versions(scheme: str, reference: str) -> dict[str, Any]:
    versions: dict[str, Any] = {"foretell": __version__, "torch": _version("torch")}
    library = _LIBRARY.get(scheme)
    if library:
        versions[library] = _version(library)
    path = _file_of(reference)
    if scheme == "hf" and path is not None:
        with contextlib.suppress(OSError):
            versions["config"] = path.read_text(encoding="utf-8", errors="replace")
    return versions


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
