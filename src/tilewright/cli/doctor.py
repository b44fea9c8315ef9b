"""`tilewright doctor`: whether kernels can be compiled and run here, and missing parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tilewright.base.knobs import find_unknown_variables
from tilewright.cli.command import Command
from tilewright.cli.defaults import read_defaults
from tilewright.cli.output import (
    add_json_option,
    mark_bad,
    mark_good,
    print_heading,
    print_json,
    print_table,
)
from tilewright.cli.toolchain import mark_tree

if TYPE_CHECKING:
    from tilewright.building.ck_tree import CkTree
    from tilewright.building.components import Component
    from tilewright.building.toolchain import Survey


@click.command(
    cls=Command,
    examples=("tilewright doctor", "tilewright doctor --json | jq .reason"),
)
@add_json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Check the toolchain and list devices and missing parts.

    Shows which toolchain is used and why, the devices, the ops of other packages, and the project's
    defaults. Warns of environment variables that are probably misspelt. The exit code is 1 if
    kernels cannot be compiled.
    """
    from tilewright.building.ck_tree import probe_tree
    from tilewright.building.toolchain import survey_toolchains

    found = survey_toolchains()
    tree = None if found.ck.path is None else probe_tree(found.ck.path)
    complete = found.chosen is not None and not found.ck.blocks and not (tree and tree.is_unknown)
    if as_json:
        print_json(
            {
                "complete": complete,
                **found.to_json(),
                "ck": None if tree is None else tree.to_json(),
                "ck_trees": _list_trees(found),
                "devices": _find_devices(),
                "plugins": _find_plugins(),
                **_find_settings(ctx),
            }
        )
    else:
        _print(found, complete)
        _print_generation(tree)
        _print_trees(found)
        _print_devices()
        _print_plugins()
        _print_settings(ctx)
    ctx.exit(0 if complete else 1)


def _list_trees(found: Survey) -> list[dict[str, Any]]:
    """The fetched trees of CK Tile's headers."""
    from tilewright.building.ck_cache import list_fetched_trees

    return [{**tree.to_json(), "current": tree.include == found.ck.path} for tree in list_fetched_trees()]


def _print_generation(tree: CkTree | None) -> None:
    """The generation of the CK headers, and the ops that cannot be compiled with them."""
    if tree is None:
        return
    click.echo(f"  generation of CK Tile: {'unknown' if tree.is_unknown else tree.api.generation}")
    for op, why in tree.failures.items():
        click.echo(f"  {mark_bad('unusable')} for {op}: {why}")


def _print_trees(found: Survey) -> None:
    from tilewright.building.ck_cache import list_fetched_trees

    trees = list_fetched_trees()
    click.echo(f"  fetched CK trees: {', '.join(mark_tree(tree, found.ck.path) for tree in trees) or 'none'}")
    for tree in trees:
        if tree.problem:
            click.echo(f"  {mark_bad('damaged')} {tree.problem}")


def _find_devices() -> dict[str, Any]:
    """The devices that kernels run on, and the packages that emulated devices lack."""
    from tilewright.runtime.device import GPU, devices
    from tilewright.runtime.hip_library import list_missing_extras

    listed = devices()
    return {
        "gpus": [device.name for device in listed if device.kind == GPU],
        "emulated": [device.name for device in listed if device.kind != GPU],
        "missing": list_missing_extras(),
    }


def _print_devices() -> None:
    from tilewright.runtime.hip_library import INSTALL

    found = _find_devices()
    click.echo(f"  GPUs: {', '.join(found['gpus']) or 'none'}")
    if found["missing"]:
        lacks = f"{mark_bad('missing')} {', '.join(found['missing'])}; get it with: {INSTALL}"
        click.echo(f"  emulated devices: {lacks}")
    else:
        click.echo(f"  emulated devices: {', '.join(found['emulated'])}")


def _find_plugins() -> dict[str, Any]:
    """The ops that other packages add, and the packages that could not be loaded."""
    from dataclasses import asdict

    from tilewright.ops import OPS, list_ops, list_plugin_failures

    added = [op.name for op in list_ops() if op not in OPS]
    return {"ops": added, "failed": [asdict(failure) for failure in list_plugin_failures()]}


def _print_plugins() -> None:
    from tilewright.ops import list_plugin_failures

    added = _find_plugins()["ops"]
    if added:
        click.echo(f"  ops of other packages: {', '.join(added)}")
    for failure in list_plugin_failures():
        click.echo(f"  {mark_bad('not loaded')} {failure}. Repair or uninstall that package.")


def _find_settings(ctx: click.Context) -> dict[str, Any]:
    """The defaults of the project, and environment variables that are probably misspelt."""
    defaults = read_defaults(ctx)
    return {
        "defaults": {"file": None if defaults.path is None else str(defaults.path), "values": dict(defaults.values)},
        "unknown_variables": [each.name for each in find_unknown_variables()],
    }


def _print_settings(ctx: click.Context) -> None:
    defaults = read_defaults(ctx)
    if defaults.path is not None:
        values = ", ".join(f"{key} = {value}" for key, value in defaults.values.items()) or "none"
        click.echo(f"  defaults from {defaults.path}: {values}")
    for each in find_unknown_variables():
        click.echo(f"{click.style('warning:', fg='yellow')} {each}", err=True)


def _print(found: Survey, complete: bool) -> None:
    from tilewright.building.from_pypi.manifest import INSTALL

    rows = []
    kind_before = ""
    for kind, part in found.list_components():
        rows.append((kind if kind != kind_before else "", part.name, *_describe_state(part)))
        kind_before = kind
    headings = ("toolchain", "component", "state", "version", "path or problem")
    print_table(headings, rows, whole=headings[:3])
    _print_fixes(found)
    if complete:
        click.echo(f"\n{mark_good('ready:')} the {found.chosen} toolchain will be used.")
    else:
        click.echo(f"\n{mark_bad('not ready:')} kernels cannot be compiled.")
        if found.chosen is None:
            click.echo(f"  The shortest way, without root and distribution packages: {INSTALL}")
    click.echo(f"  {found.reason}{'' if found.ck.ok else '; CK Tile headers are missing'}")


def _describe_state(part: Component) -> tuple[Any, str, str]:
    from rich.text import Text

    if part.ok:
        return Text("found", style="green"), _cut_version(part.version), str(part.path)
    style = "yellow" if part.optional else "red"
    return Text("optional" if part.optional else "missing", style=style), "", part.problem


def _cut_version(version: str) -> str:
    """A version line without the packager's remarks in parentheses."""
    return version.partition(" (")[0]


def _print_fixes(found: Survey) -> None:
    missing = [(kind, part) for kind, part in found.list_components() if not part.ok]
    if not missing:
        return
    print_heading("Commands that install missing parts")
    width = max(len(part.fix) for _, part in missing)
    for kind, part in missing:
        click.echo(f"  {part.fix:<{width}}  # {part.name}{_make_remark(found, kind, part)}")


def _make_remark(found: Survey, kind: str, part: Component) -> str:
    if kind not in ("all", found.chosen) and found.chosen is not None:
        return f", not needed: the {found.chosen} toolchain is used"
    if part.optional:
        return ", optional"
    return "" if kind == "all" else f", {kind} toolchain"
