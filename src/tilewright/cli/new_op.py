"""`tilewright new-op`: write the folder of a new op."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tilewright.cli.command import Command, Option
from tilewright.cli.output import add_json_option, format_count, print_facts, print_heading, print_json
from tilewright.cli.output_paths import OutputFolder

GPU = "gfx942"


@click.command(cls=Command, examples=("tilewright new-op rms_norm", "tilewright new-op rms_norm --out ops/rms_norm"))
@click.argument("name", metavar="NAME")
@click.option(
    "--out",
    "folder",
    cls=Option,
    type=OutputFolder(),
    metavar="DIR",
    show_default="NAME",
    help="The folder to write to. It must be new or empty.",
)
@add_json_option
def command(name: str, folder: Path | None, as_json: bool) -> None:
    """Write the folder of a new op.

    You can build, run and verify it at once. It is a Python package with the op, a kernel that computes y = factor · x,
    and tests. Install it, and every command knows the op. Then change the problem, the kernel and the reference to
    yours.

    NAME is a Python identifier in lower case. docs/add-an-op.md explains the files.
    """
    from tilewright.codegen.op_folder import write_op_folder

    folder = Path(name) if folder is None else folder
    files = write_op_folder(name, folder)
    commands = _list_next_commands(name, folder)
    if as_json:
        print_json({"op": name, "folder": str(folder), "files": list(files), "next": commands})
        return
    lines = sum(len(text.splitlines()) for text in files.values())
    print_facts(
        [("op", name), ("folder", str(folder)), ("written", f"{format_count(len(files), 'file')}, {lines} lines")]
    )
    print_heading("Next")
    click.echo("\n".join(commands))


def _list_next_commands(name: str, folder: Path) -> list[str]:
    kernel = "-s dtype=fp32 -s threads=256 -s items=4"
    where = shlex.quote(str(folder))
    return [
        f"pip install --editable {where if folder.is_absolute() else f'./{where}'}",
        f"tilewright rules --op {name}",
        f"tilewright check {name} --gpu {GPU} {kernel}",
        f"tilewright build {name} --gpu {GPU} {kernel}",
        f"tilewright verify {name} --device emulated:{GPU} {kernel}",
        f"pytest {where}",
    ]
