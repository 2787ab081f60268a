"""Which line of whose code is meant."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

import torch

_OURS = (str(Path(__file__).parent) + os.sep, *(p + os.sep for p in torch.__path__), "<frozen")
_RUNNER = str(Path(__file__).with_name("capture.py"))
"""What is further out than this runs the capture, not the model."""
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = os.sep + "site-packages" + os.sep


def line_of_caller() -> str:
    """file:line of the innermost running code of the user's, else of a package."""
    frames: list[tuple[str, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _RUNNER:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    found = _innermost([name for name, _ in frames])
    return "" if found is None else "{}:{}".format(*frames[found])


def line_at_fault(error: BaseException) -> str:
    """' at file:line (code)' of the innermost line of the user's, else of a package."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f" at {error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    found = _innermost([frame.filename for frame in frames])
    if found is None:
        return ""
    frame = frames[found]
    return f" at {frame.filename}:{frame.lineno} ({frame.line})"


def _innermost(files: list[str]) -> int | None:
    """Which of the files, innermost first, is the user's; else a package that is not torch."""
    others = [i for i, name in enumerate(files) if not name.startswith(_OURS)]
    foreign = [i for i in others if _PACKAGES in files[i] or not files[i].startswith(_STANDARD)]
    own = (i for i in foreign if _PACKAGES not in files[i])
    return next(own, foreign[0] if foreign else None)
