"""Find the repeated blocks of a network, the usual unit of activation recomputation."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from foretell.errors import InputError

_CONTAINERS = (nn.ModuleList, nn.Sequential)


def recompute_paths(module: nn.Module, choice: str | Sequence[str]) -> tuple[str, ...]:
    """Module paths to recompute for 'none', 'full', 'selective' or explicit names.

    full: every repeated block. selective: only the attention inside blocks, or every second
    block of a network without attention. Names match a path, or the last part of several.
    """
    if choice == "none" or not choice:
        return ()
    blocks = repeated_blocks(module)
    if choice in ("full", "selective") and not blocks:
        raise InputError(
            f"recompute={choice}: {type(module).__name__} has no repeated blocks; "
            "name the modules to recompute"
        )
    if choice == "full":
        return blocks
    if choice == "selective":
        return _attention_in(module, blocks) or blocks[::2]
    names = choice.split(",") if isinstance(choice, str) else choice
    found = (path for name in names for path in _matching(module, name.strip()))
    return tuple(dict.fromkeys(found))


def repeated_blocks(module: nn.Module) -> tuple[str, ...]:
    """Paths of the blocks in execution order; () when nothing repeats."""
    found: list[str] = []
    _collect(module, "", found)
    return tuple(found)


def _collect(module: nn.Module, path: str, found: list[str]) -> None:
    for name, child in module.named_children():
        child_path = f"{path}.{name}" if path else name
        if isinstance(child, _CONTAINERS) and _is_block_list(child):
            found.extend(f"{child_path}.{n}" for n, _ in child.named_children())
        else:
            _collect(child, child_path, found)


def _is_block_list(container: nn.Module) -> bool:
    children = list(container.children())
    if not children or len({type(c) for c in children}) > 1:
        return False
    first = children[0]
    is_stage = isinstance(first, _CONTAINERS) or "stage" in type(first).__name__.lower()
    holds_blocks = any(
        isinstance(m, _CONTAINERS) and len(list(m.children())) > 1 and _is_block_list(m)
        for m in first.modules()
        if m is not first
    )
    weighted = [m for m in first.modules() if next(m.parameters(recurse=False), None) is not None]
    return len(weighted) >= 2 and not (is_stage or (holds_blocks and len(children) <= 6))


def _attention_in(module: nn.Module, blocks: Sequence[str]) -> tuple[str, ...]:
    inside = tuple(b + "." for b in blocks)
    paths: list[str] = []
    for path, child in module.named_modules():
        is_attention = any(word in type(child).__name__.lower() for word in ("attention", "attn"))
        nested = any(path.startswith(p + ".") for p in paths)
        if is_attention and path.startswith(inside) and not nested:
            paths.append(path)
    return tuple(paths)


def _matching(module: nn.Module, name: str) -> list[str]:
    """Paths a name stands for; a list of modules, which never runs itself, means its items."""
    if not name:
        raise InputError("recompute names a module without a name: write names between commas")
    paths = [p for p, _ in module.named_modules() if p]
    hits = [p for p in paths if p == name] or [p for p in paths if p.split(".")[-1] == name]
    if not hits:
        raise InputError(
            f"recompute names module {name!r}, which the model does not have; its top modules "
            f"are {', '.join(n for n, _ in module.named_children())}"
        )
    return [path for hit in hits for path in _that_run(module.get_submodule(hit), hit)]


def _that_run(module: nn.Module, path: str) -> list[str]:
    if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        return [path]
    inside = [_that_run(m, f"{path}.{n}") for n, m in module.named_children()]
    return [p for paths in inside for p in paths]
