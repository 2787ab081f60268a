"""Published shapes of language models as transformer: references."""

from __future__ import annotations

_LLAMA = "gated,rmsnorm,rope"

SHAPES = {
    "LLAMA2-7B": f"layers=32,hidden=4096,heads=32,ffn=11008,vocab=32000,{_LLAMA}",
    "LLAMA2-13B": f"layers=40,hidden=5120,heads=40,ffn=13824,vocab=32000,{_LLAMA}",
    "LLAMA2-70B": f"layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=32000,{_LLAMA}",
    "LLAMA3-8B": f"layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,vocab=128256,{_LLAMA}",
    "LLAMA3-70B": f"layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=128256,{_LLAMA}",
    "LLAMA3.1-405B": (
        f"layers=126,hidden=16384,heads=128,kv_heads=8,ffn=53248,vocab=128256,{_LLAMA}"
    ),
    "GPT3-5B": "layers=24,hidden=4096,heads=32,vocab=51200",
    "GPT3-20B": "layers=44,hidden=6144,heads=48,vocab=51200",
    "GPT3-175B": "layers=96,hidden=12288,heads=96,vocab=51200",
    "NEMOTRON-8B": "layers=32,hidden=4096,heads=32,vocab=256000,rope",
    "NEMOTRON-22B": "layers=40,hidden=6144,heads=48,ffn=24576,vocab=256000,rope",
    "NEMOTRON-340B": "layers=96,hidden=18432,heads=96,kv_heads=8,ffn=73728,vocab=256000,rope",
}


def reference(name: str, seq: int) -> str | None:
    """The model's reference at a sequence length; None for shapes not listed."""
    shape = SHAPES.get(name.upper().replace("_", "-"))
    return shape and f"transformer:{shape},seq={seq}"
