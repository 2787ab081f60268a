"""Lets every switch of a command be turned off as well as on."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperOption


class SwitchCommand(TyperCommand):
    """A command whose switches all have a --no- form, which would crowd its help out."""

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        for switch in self.params:
            if not isinstance(switch, TyperOption):
                continue
            if switch.is_bool_flag and not switch.secondary_opts:
                parser.add_option(
                    obj=switch,
                    opts=[f"--no-{option.removeprefix('--')}" for option in switch.opts],
                    dest=switch.name,
                    action="store_const",
                    const=False,
                )
        return parser
