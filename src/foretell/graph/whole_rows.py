"""Let Hugging Face models run as if each row were one sequence without padding, as ours are.

transformers reads masks and positions to find out. Meta tensors have no values to read, and the
wrong answer costs fused attention its causal fast path.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

_ANSWERS = {
    "find_packed_sequence_indices": lambda position_ids: None,
    "fast_all": lambda mask: True,
}


@contextlib.contextmanager
def assume_whole_rows() -> Iterator[None]:
    """Answer transformers' questions about packing and padding while the context lasts."""
    masking = sys.modules.get("transformers.masking_utils")
    scope = {} if masking is None else vars(masking)
    originals = {name: scope[name] for name in _ANSWERS if name in scope}
    scope.update({name: _ANSWERS[name] for name in originals})
    try:
        yield
    finally:
        scope.update(originals)
