"""Arguments that are negative numbers: `-5` is no option."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

_NEGATIVE = re.compile(r"-\.?\d[\d.]*([eE][+-]?\d+)?")
_MARK = "\0"  # in no word of a command line


class NumbersCommand(TyperCommand):
    """A command whose argument `args` may have negative numbers in it, anywhere among the options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words of a command line apart, as `click.Command.parse_args` does."""
        options = (one for one in self.params if getattr(one, "is_flag", None) is False)
        taking = {name for one in options for name in (*one.opts, *one.secondary_opts)}  # what follows one of these is its value
        pairs = zip(["", *args], args, strict=False)
        marked = [_MARK + word if _NEGATIVE.fullmatch(word) and before not in taking else word for before, word in pairs]
        rest = super().parse_args(ctx, marked)
        if ctx.params.get("args"):
            ctx.params["args"] = [word.removeprefix(_MARK) for word in ctx.params["args"]]
        return rest
