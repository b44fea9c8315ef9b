"""The option --gpu, which is the same in every command, and product names for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tilewright.cli.command import MultiValueOption, Option
from tilewright.cli.completion import complete_gpus
from tilewright.cli.defaults import use_default

F = TypeVar("F", bound=Callable[..., Any])

# Other names of --gpu. Every command accepts them.
ALIASES = ("--arch", "--gpu-target")
# Whether the default of --gpu comes from the project's file.
PROJECT, LATE = "project", "late"


class GpuOption(Option):
    """An option that takes a GPU: `gfx942`, or its product name, `MI300X`."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        found = super().process_value(ctx, value)
        return resolve_gpu(found) if isinstance(found, str) else found


class SeveralGpus(MultiValueOption):
    """An option that takes GPUs, each as in `GpuOption`."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        return tuple(resolve_gpu(name) for name in super().process_value(ctx, value))


def make_gpu_option(
    parameter: str,
    text: str,
    *,
    required: bool = False,
    several: bool = False,
    of_records: bool = False,
    default: str = "",
) -> Callable[[F], F]:
    """The option --gpu. The command gets its value as `parameter`: one name, or a tuple if it takes `several`.

    An option that selects `of_records` takes no product names: records of an MI300A are of gfx942 too, and must not
    pass for those of an MI300X. `default` is PROJECT if the project's file gives the default, or LATE if the command
    decides whether it does.
    """
    single = Option if of_records else GpuOption
    return click.option(
        "--gpu",
        parameter,
        cls=SeveralGpus if several else single,
        aliases=ALIASES,
        default_key="gpu" if default else None,
        late=default == LATE,
        required=required,
        metavar="GPU,…" if several else "GPU",
        shell_complete=complete_gpus,
        help=text,
    )


def find_default_gpu() -> str | None:
    """The GPU of the project's file, for a command with a LATE default."""
    ctx = click.get_current_context(silent=True)
    found = None if ctx is None else use_default(ctx, "gpu")
    return None if found is None else resolve_gpu(str(found))


def resolve_gpu(text: str) -> str:
    """The name of the GPU that a name or a product name describes: `gfx942` for `MI300X` and `GFX942:xnack-`.

    Unknown names that start with gfx are returned as they are: the commands check them.
    """
    from tilewright.arch import cut_features, find_gpu_name

    if text.lower().startswith("gfx"):
        return cut_features(text)
    return find_gpu_name(text)
