"""`tilewright cmake`: the folder of the CMake package that builds packs inside a C++ build."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.command import Command
from tilewright.cli.output import add_json_option, print_json


@click.command(
    cls=Command,
    examples=("tilewright cmake", "tilewright cmake --json | jq .folder"),
)
@add_json_option
def command(as_json: bool) -> None:
    """Print the folder of Tilewright's CMake package.

    find_package(Tilewright) finds the package there, if you pass the folder to CMake as
    -DTilewright_ROOT. Its function tilewright_add_pack builds a pack of kernels as a part of your C++
    build.
    """
    from tilewright.building import pack

    folder = Path(pack.__file__).parent / "cmake"
    if as_json:
        print_json({"folder": str(folder)})
    else:
        click.echo(str(folder))
