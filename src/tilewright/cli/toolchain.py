"""`tilewright toolchain`: show the current compiler, and fetch CK Tile's headers."""

from __future__ import annotations

import shlex
from typing import Any

import click

from tilewright.cli.command import Command, CommandGroup
from tilewright.cli.gpu_option import make_gpu_option
from tilewright.cli.output import add_json_option, print_facts, print_heading, print_json
from tilewright.cli.progress import report_progress


@click.group(cls=CommandGroup, examples=("tilewright toolchain fetch-ck", "tilewright toolchain show --gpu gfx942"))
def command() -> None:
    """Show the current compiler, or fetch CK Tile's headers."""


@command.command(
    "fetch-ck",
    cls=Command,
    examples=("tilewright toolchain fetch-ck", "tilewright toolchain fetch-ck --tools"),
)
@click.option("--tools", is_flag=True, help="Also fetch CK's tile_engine.")
@add_json_option
def fetch_headers(tools: bool, as_json: bool) -> None:
    """Download CK Tile's headers (about 40 MB) into the cache, once."""
    from tilewright.building.ck_headers import fetch_ck, read_manifest

    with report_progress(as_json=as_json):
        folder = fetch_ck(tools=tools)
    manifest = read_manifest(folder)
    if as_json:
        print_json({"folder": str(folder), **manifest})
        return
    files = ", ".join(f"{count:,} files in {part}/" for part, count in manifest["files"].items())
    print_facts([("folder", str(folder)), ("has", files)])


@command.command(
    "show",
    cls=Command,
    examples=("tilewright toolchain show", "tilewright toolchain show --gpu gfx942 --json"),
)
@make_gpu_option("arch", "Also show the compiler flags for this GPU.")
@add_json_option
def print_toolchain(arch: str | None, as_json: bool) -> None:
    """Show the current toolchain.

    If there is none, `tilewright doctor` lists the missing parts.
    """
    from tilewright import arch as gpus
    from tilewright.building.toolchain import find_toolchain

    spec = gpus.load(arch) if arch else None
    found = find_toolchain()
    flags = found.device_flags(spec) if spec else ()
    facts: dict[str, Any] = {
        "kind": found.kind,
        "compiler": str(found.cxx),
        "version": found.compiler,
        "objdump": str(found.objdump),
        "readelf": str(found.readelf),
        "bundler": str(found.bundler) if found.bundler else None,
        "device libraries": str(found.bitcode_dir),
        "CK headers": str(found.ck_include),
        "HIP version": found.hip_version,
    }
    if as_json:
        keyed = {name.lower().replace(" ", "_"): value for name, value in facts.items()}
        print_json({**keyed, "device_flags": list(flags)} if spec else keyed)
        return
    print_facts((name, str(value or "missing (optional)")) for name, value in facts.items())
    if spec:
        print_heading(f"Device flags for {spec.name}")
        click.echo(shlex.join(flags))
