"""Which line of whose code is meant."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from types import FrameType

_OURS = (os.path.join("foretell", "graph") + os.sep, os.sep + "torch" + os.sep, "<frozen")
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")})


def line_of_caller() -> str:
    """file:line of the innermost running code that is neither ours nor torch's."""
    frame: FrameType | None = sys._getframe(1)
    nearest = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(part in name for part in _OURS):
            if not name.startswith(_INSTALLED):
                return f"{name}:{frame.f_lineno}"
            nearest = nearest or f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return nearest


def line_at_fault(error: BaseException) -> str:
    """' at file:line (code)' of the innermost line that is neither ours nor torch's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not any(part in f.filename for part in _OURS)]
    return f" at {own[-1].filename}:{own[-1].lineno} ({own[-1].line})" if own else ""
