"""The option --gpu, which is the same in every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tilewright.cli.command import Option, Several

F = TypeVar("F", bound=Callable[..., Any])

# Other names of --gpu. Every command accepts them.
ALIASES = ("--arch", "--gpu-target")


def make_gpu_option(parameter: str, text: str, *, required: bool = False, several: bool = False) -> Callable[[F], F]:
    """The option --gpu. The command gets its value as `parameter`: one name, or a tuple if it takes `several`."""
    return click.option(
        "--gpu",
        parameter,
        cls=Several if several else Option,
        aliases=ALIASES,
        required=required,
        metavar="GPU,…" if several else "GPU",
        help=text,
    )
