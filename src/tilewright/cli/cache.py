"""`tilewright cache`: list, check and clean the artifact store."""

from __future__ import annotations

import datetime
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.cli.command import Command, CommandGroup
from tilewright.cli.output import (
    add_json_option,
    format_count,
    mark_bad,
    mark_good,
    print_facts,
    print_heading,
    print_json,
    print_table,
)
from tilewright.cli.progress import report_progress

if TYPE_CHECKING:
    from tilewright.building.store.artifact import Entry
    from tilewright.building.store.maintenance import GcResult

_SIZES = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_AGES = {"w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
_SHORT_KEY = 12
_LOG_LINES = 20
_ORDERS: dict[str, Callable[[Entry], Any]] = {
    "use": lambda entry: (-entry.last_use, entry.key),
    "age": lambda entry: (entry.created, entry.key),
    "size": lambda entry: (-entry.size, entry.key),
    "name": lambda entry: (entry.name, entry.key),
}


def _parse_size(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:  # noqa: ARG001  (click's)
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([BKMGT])", text)
    if match is None:
        raise InvalidValueError(
            f"{text!r} is not a size. Write a number with B, K, M, G or T (bytes, KiB, MiB, GiB, TiB): 500M, 10G."
        )
    return int(float(match[1]) * _SIZES[match[2]])


def _parse_age(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:  # noqa: ARG001  (click's)
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([wdhms])", text)
    if match is None:
        raise InvalidValueError(f"{text!r} is not an age. Write a number with s, m, h, d or w: 30d.")
    return float(match[1]) * _AGES[match[2]]


@click.group(
    cls=CommandGroup, examples=("tilewright cache ls", "tilewright cache gc --max-size 10G", "tilewright cache verify")
)
def command() -> None:
    """List, check and clean the store of built kernels."""


@command.command("ls", cls=Command, examples=("tilewright cache ls", "tilewright cache ls --sort size --limit 20"))
@click.option(
    "--sort",
    "order",
    metavar="ORDER",
    default="use",
    show_default=True,
    help="Sort by use (last used first), age (oldest first), size (largest first) or name.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show only the first N entries.")
@add_json_option
def list_entries(order: str, limit: int | None, as_json: bool) -> None:
    """List the entries of the store, last used first."""
    from tilewright.base.errors import choose
    from tilewright.building.store.local import Store

    choose("order", order, _ORDERS)
    with report_progress(as_json=as_json):
        every = sorted(Store().list_entries(), key=_ORDERS[order])
    shown = every[:limit]
    if as_json:
        print_json([_describe_entry(entry) for entry in shown])
        return
    now = time.time()
    rows = [
        (
            entry.key[:_SHORT_KEY],
            format_size(entry.size),
            format_age(now - entry.last_use),
            "failed" if entry.failed else "built",
            entry.name,
        )
        for entry in shown
    ]
    if rows:
        headings = ("key", "size", "used", "is", "kernel")
        print_table(headings, rows, numbers=("size", "used"), whole=("key", "is"), clipped=("kernel",))
        click.echo()
    left = len(every) - len(shown)
    rest = f", {left:,} of them not shown" if left else ""
    click.echo(f"{_format_entry_count(len(every))}, {format_size(sum(entry.size for entry in every))}{rest}")


@command.command("show", cls=Command, examples=("tilewright cache show 9a6900b412ca",))
@click.argument("key")
@add_json_option
def print_entry(key: str, as_json: bool) -> None:
    """Show an entry of the store, and the log of a failed build.

    KEY may be shortened.
    """
    from tilewright.building.store.artifact import Artifact, Entry
    from tilewright.building.store.local import Store

    store = Store()
    with report_progress(as_json=as_json):
        found = store.read(resolve_key(key, list(store.list_keys())))
    if not isinstance(found, Entry):
        what = found.what if found is not None else "it has just been removed"
        raise InvalidValueError(f"{key} cannot be shown: {what}. Run `tilewright cache verify` for details.")
    content = found.content
    files = content.files if isinstance(content, Artifact) else {}
    log = "" if isinstance(content, Artifact) else content.log
    if as_json:
        listed = {name: {"size": file.size, "blake2b": file.blake2b} for name, file in files.items()}
        print_json({**_describe_entry(found), "files": listed, "facts": dict(content.facts), "log": log})
        return
    now = time.time()
    print_facts(
        [
            ("key", found.key),
            ("is", "a build that failed" if found.failed else "built"),
            ("folder", str(found.folder)),
            ("size", format_size(found.size)),
            ("created", f"{_format_date(found.created)} ({format_age(now - found.created)} ago)"),
            ("last use", f"{format_age(now - found.last_use)} ago, to the hour"),
            *((name, value if isinstance(value, str) else repr(value)) for name, value in content.facts.items()),
        ]
    )
    if files:
        rows = [(name, format_size(file.size), file.blake2b) for name, file in files.items()]
        print_table(("file", "size", "blake2b"), rows, numbers=("size",), whole=("file",), title="Files")
    if log:
        _print_log(log)


@command.command("verify", cls=Command, examples=("tilewright cache verify", "tilewright cache verify --remove"))
@click.option("--remove", is_flag=True, help="Move damaged entries out of the store. They are built again when needed.")
@add_json_option
@click.pass_context
def verify_store(ctx: click.Context, remove: bool, as_json: bool) -> None:
    """Hash every file in the store and list damaged entries.

    The exit code is 1 if there are any.
    """
    from tilewright.building.store.local import Store
    from tilewright.building.store.maintenance import move_damaged_entries, verify_entries

    store = Store()
    with report_progress(as_json=as_json):
        keys = list(store.list_keys())
        findings = verify_entries(store)
        moved = move_damaged_entries(store, findings) if remove else []
    if as_json:
        listed = [{"kind": f.kind, "key": f.key, "path": str(f.path), "what": f.what} for f in findings]
        places = [str(path) for path in moved]
        print_json({"store": str(store.root), "entries": len(keys), "findings": listed, "moved": places})
    elif not findings:
        click.echo(f"{mark_good('good:')} {_format_entry_count(len(keys))} in {store.root}")
    else:
        for finding in findings:
            click.echo(str(finding))
        click.echo(
            f"\n{mark_bad(format_count(len(findings), 'finding'))} in {_format_entry_count(len(keys))} of {store.root}"
        )
        advice = "`tilewright cache verify --remove` moves them out; they are built again when needed."
        click.echo(f"moved {len(moved)} to {store.layout.corrupt}, until the next gc" if remove else advice)
    ctx.exit(1 if findings else 0)


@command.command(
    "gc",
    cls=Command,
    examples=("tilewright cache gc --max-size 10G --max-age 30d", "tilewright cache gc --max-age 30d --dry-run"),
)
@click.option(
    "--max-size", metavar="SIZE", callback=_parse_size, help="Keep at most this much, the last used first: 500M, 10G."
)
@click.option(
    "--max-age", metavar="AGE", callback=_parse_age, help="Keep only entries used within this time, such as 12h or 30d."
)
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before removing all entries.")
@add_json_option
def collect_garbage(max_size: int | None, max_age: float | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove old entries and leftovers.

    Leftovers come from killed processes and damaged entries. Without --max-size and --max-age, only leftovers are
    removed. The time of last use is known to the hour. Entries that are being built stay. If no entry would be kept,
    the command asks first.
    """
    from tilewright.building.store.local import Store
    from tilewright.building.store.maintenance import remove_unused_entries

    store = Store()
    if not yes and not dry_run and (max_size is not None or max_age is not None):
        with report_progress(as_json=as_json):
            planned = remove_unused_entries(store, max_size, max_age, dry_run=True)
        _ask_to_remove_all(planned, str(store.root), asks=not as_json and sys.stdin.isatty())
    with report_progress(as_json=as_json):
        done = remove_unused_entries(store, max_size, max_age, dry_run=dry_run)
    if as_json:
        print_json(_describe_gc(done, str(store.root), dry_run))
        return
    now = time.time()
    rows = [
        (entry.key[:_SHORT_KEY], format_size(entry.size), format_age(now - entry.last_use), entry.reason, entry.name)
        for entry in done.removed
    ]
    if rows:
        headings = ("key", "size", "used", "reason", "kernel")
        print_table(headings, rows, numbers=("size", "used"), whole=("key", "reason"), clipped=("kernel",))
        click.echo()
    print_facts(
        [
            (
                "would be removed" if dry_run else "removed",
                f"{_format_entry_count(len(done.removed))}, {format_size(done.bytes)}",
            ),
            ("kept", f"{_format_entry_count(done.kept)}, {format_size(done.kept_bytes)}"),
            ("in use", _format_entry_count(len(done.busy))),
            ("leftovers", f"{done.work_folders} work folders, {done.corrupt} damaged, {done.locks} lock files"),
        ]
    )


@command.command("path", cls=Command, examples=("tilewright cache path", "tilewright cache path --json"))
@add_json_option
def print_path(as_json: bool) -> None:
    """Print the folder of the store."""
    from tilewright.base import knobs
    from tilewright.building.store.local import Store
    from tilewright.building.store.remote import open_remote

    store, url = Store(), knobs.REMOTE.get()
    if as_json:
        remote = None if url is None else open_remote(url).describe()
        print_json({"store": str(store.root), "entries": str(store.layout.entries), "remote": remote})
    else:
        click.echo(str(store.root))


@command.command("wheels", cls=Command, examples=("tilewright cache wheels", "tilewright cache wheels --json"))
@add_json_option
def list_installed_wheels(as_json: bool) -> None:
    """List installed wheels of kernels, and whether they are used here.

    A wheel is used if its kernels have this machine's build keys. TILEWRIGHT_PREBUILT also allows
    kernels that another compiler made from the same source and CK tree, or forbids all.
    """
    from tilewright.base.digest import digest_text
    from tilewright.base.errors import ToolchainError
    from tilewright.building.prebuilt.choose import describe_fit
    from tilewright.building.prebuilt.installed import list_wheels
    from tilewright.building.toolchain import find_toolchain

    with report_progress(as_json=as_json):
        wheels = list_wheels()
        try:
            found = find_toolchain()
            own: tuple[str | None, str | None] = digest_text(found.identity()), found.ck_digest
        except ToolchainError:
            own = None, None  # a wheel's use says so
    fits = [describe_fit(wheel, *own) for wheel in wheels]
    if as_json:
        print_json(
            [
                {
                    "name": wheel.name,
                    "version": wheel.version,
                    "gpu": wheel.gpu,
                    "folder": str(wheel.folder),
                    "built": wheel.built.to_json(),
                    "kernels": [entry.to_json() for entry in wheel.entries.values()],
                    "use": fit,
                }
                for wheel, fit in zip(wheels, fits, strict=True)
            ]
        )
        return
    if not wheels:
        click.echo("No wheel of kernels is installed, or TILEWRIGHT_PREBUILT is 'never'.")
    for wheel, fit in zip(wheels, fits, strict=True):
        print_facts(
            [
                ("wheel", wheel.describe()),
                ("kernels", f"{len(wheel.entries):,} for {wheel.gpu}"),
                ("built with", wheel.built.describe()),
                ("here", fit),
            ]
        )


def resolve_key(text: str, keys: Sequence[str]) -> str:
    """The only key that begins with `text`."""
    matching = [key for key in keys if key.startswith(text)]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise UnknownValueError("key", text, keys if len(keys) <= 20 else ())
    listed = ", ".join(matching[:20]) + (" …" if len(matching) > 20 else "")
    raise InvalidValueError(f"{len(matching):,} keys begin with {text!r}. Write more of the key: {listed}")


def format_size(count: int) -> str:
    """`824 B`, `1.5 MiB`."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def format_age(seconds: float) -> str:
    """`5 d`, `3 h`; a time in the future is `0 s`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _ask_to_remove_all(planned: GcResult, root: str, *, asks: bool) -> None:
    """Return if something is kept or the user agrees to remove everything; abort otherwise."""
    if planned.kept or not planned.removed:
        return
    what = f"all {len(planned.removed):,} entries of {root} ({format_size(planned.bytes)}) would be removed"
    if not asks:
        raise InvalidValueError(f"{what}. Pass --yes to remove them, or --dry-run to list them.")
    click.confirm(f"{what[0].upper()}{what[1:]}. Remove them?", abort=True)


def _format_entry_count(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _format_date(seconds: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s after 1970"  # the manifest's number is not a date; it is only printed


def _print_log(log: str) -> None:
    lines = log.rstrip().splitlines()
    print_heading("Log")
    click.echo("\n".join(lines[:_LOG_LINES]))
    if len(lines) > _LOG_LINES:
        click.echo(f"… and {len(lines) - _LOG_LINES} more lines; --json has all")


def _describe_entry(entry: Entry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "kind": "failure" if entry.failed else "artifact",
        "kernel": entry.name or None,
        "size": entry.size,
        "created": entry.created,
        "last_use": entry.last_use,
        "folder": str(entry.folder),
    }


def _describe_gc(done: GcResult, root: str, dry_run: bool) -> dict[str, Any]:
    removed = [
        {"key": e.key, "kernel": e.name or None, "reason": e.reason, "size": e.size, "last_use": e.last_use}
        for e in done.removed
    ]
    return {
        "store": root,
        "dry_run": dry_run,
        "removed": removed,
        "removed_bytes": done.bytes,
        "busy": list(done.busy),
        "kept": done.kept,
        "kept_bytes": done.kept_bytes,
        "work_folders": done.work_folders,
        "corrupt": done.corrupt,
        "locks": done.locks,
    }
