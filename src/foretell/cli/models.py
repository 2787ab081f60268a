"""foretell models: which names hf: and timm: accept."""

from __future__ import annotations

from typing import Annotated, Optional

import typer


def models(
    text: Annotated[
        Optional[str], typer.Argument(help="Show only names that contain this.")
    ] = None,
    timm: Annotated[bool, typer.Option("--timm", help="List timm's names too.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models known by name; any module of yours works as file.py:function."""
    import json

    from foretell.cli.show import print_line
    from foretell.errors import UnknownNameError
    from foretell.graph.sources.hf_catalogue import names

    known = [f"hf:{n}" for n in names()]
    if timm:
        from foretell.graph.sources.timm_source import timm_names

        known += [f"timm:{n}" for n in timm_names()]
    shown = [n for n in known if text is None or text.lower() in n.lower()]
    if not shown:
        raise UnknownNameError("model", text or "", known, "add --timm for timm's names")
    if json_output:
        print_line(json.dumps(shown))
    else:
        for name in shown:
            print_line(name)
