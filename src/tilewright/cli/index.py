"""`tilewright index`: make, sign, verify and serve an index of built kernels for static hosts."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.cli.cache import format_size
from tilewright.cli.command import FILE, Command, CommandGroup
from tilewright.cli.output import add_json_option, format_count, mark_bad, mark_good, print_facts, print_json
from tilewright.cli.output_paths import OutputFile, OutputFolder
from tilewright.cli.progress import report_progress

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_DAYS = click.FloatRange(0, 3650, min_open=True)


@click.group(
    cls=CommandGroup,
    examples=(
        "tilewright index new-key root.key",
        "tilewright index build site",
        "tilewright index trust site --root-key root.key --index-key ed25519:…",
        "tilewright index sign site --key index.key",
        "tilewright index verify site --pin ed25519:…",
    ),
)
def command() -> None:
    """Publish built kernels as a signed index on a static host."""


@command.command("new-key", cls=Command, examples=("tilewright index new-key root.key",))
@click.argument("file", type=OutputFile())
@add_json_option
def create_key(file: Path, as_json: bool) -> None:
    """Make an Ed25519 key and print its public key.

    Only you can read the file. Keep root keys off the machine that serves the index.
    """
    from tilewright.building.index.signing import PREFIX, create_private_key

    public = f"{PREFIX}{create_private_key(file).public}"
    if as_json:
        print_json({"file": str(file), "public": public})
    else:
        click.echo(public)


@command.command("build", cls=Command, examples=("tilewright index build site",))
@click.argument("folder", type=OutputFolder())
@add_json_option
def build(folder: Path, as_json: bool) -> None:
    """Add all built kernels of the store to an index.

    Kernels that FOLDER has already are not read again. `tilewright index sign` makes the result
    visible to clients.
    """
    from tilewright.building.index.publish import build_index
    from tilewright.building.store.local import Store

    with report_progress(as_json=as_json):
        made = build_index(folder, Store())
    if as_json:
        print_json({"keys": made.keys, "added": made.added, "shards": made.shards, "bytes": made.bytes})
        return
    print_facts(
        [
            ("index", str(folder)),
            ("kernels", f"{made.keys:,}, {made.added:,} of them new ({format_size(made.bytes)})"),
            ("shards", f"{made.shards:,}"),
        ]
    )


@command.command(
    "trust",
    cls=Command,
    examples=("tilewright index trust site --name kernels --root-key root.key --index-key ed25519:…",),
)
@click.argument("folder", type=_FOLDER)
@click.option("--name", default="tilewright-kernels", show_default=True, metavar="NAME", help="Name of the index.")
@click.option("--root-key", "signers", type=FILE, multiple=True, required=True, help="Sign with this root key.")
@click.option("--root", "roots", multiple=True, metavar="KEY", help="A public root key. Default: those that sign.")
@click.option("--index-key", "index", multiple=True, required=True, metavar="KEY", help="A public key of indexes.")
@click.option("--threshold", type=click.IntRange(1), default=1, show_default=True, help="Root keys that must sign.")
@click.option("--days", type=_DAYS, default=365.0, show_default=True, help="Expire after this many days.")
@add_json_option
def trust(
    folder: Path,
    name: str,
    signers: tuple[Path, ...],
    roots: tuple[str, ...],
    index: tuple[str, ...],
    threshold: int,
    days: float,
    as_json: bool,
) -> None:
    """Add a version to the list of keys of an index.

    The first version names the root keys that users pin and the keys that may sign the index. Later
    versions replace keys: each is signed by the root keys before it and by its own.
    """
    from tilewright.building.index.publish import write_keys
    from tilewright.building.index.signing import parse_pins, read_private_key

    keys = [read_private_key(path) for path in signers]
    public = [each for text in roots for each in parse_pins(text)] or [key.public for key in keys]
    listed = [each for text in index for each in parse_pins(text)]
    version = write_keys(folder, name, public, listed, threshold, keys, days)
    if as_json:
        print_json({"version": version, "roots": public, "index": listed})
    else:
        click.echo(f"version {version} of the list of keys: {format_count(len(listed), 'index key')}")


@command.command("sign", cls=Command, examples=("tilewright index sign site --key index.key --days 14",))
@click.argument("folder", type=_FOLDER)
@click.option("--key", type=FILE, required=True, help="Sign with this index key.")
@click.option("--days", type=_DAYS, default=14.0, show_default=True, help="Expire after this many days.")
@add_json_option
def sign(folder: Path, key: Path, days: float, as_json: bool) -> None:
    """Sign an index as the next version.

    Clients do not use it after it has expired, so sign it regularly, also if it has not changed.
    """
    from tilewright.building.index.publish import sign_index
    from tilewright.building.index.signing import read_private_key

    signed = sign_index(folder, read_private_key(key), days)
    if as_json:
        print_json({"version": signed.version, "keys": signed.table.count, "expires": signed.expires})
    else:
        click.echo(f"version {signed.version} with {format_count(signed.table.count, 'kernel')}, for {days:g} days")


@command.command("verify", cls=Command, examples=("tilewright index verify site --pin ed25519:… --blobs",))
@click.argument("folder", type=_FOLDER)
@click.option("--pin", required=True, metavar="KEY", help="The public root key that users pin.")
@click.option("--blobs", is_flag=True, help="Hash every kernel, too.")
@add_json_option
@click.pass_context
def verify(ctx: click.Context, folder: Path, pin: str, blobs: bool, as_json: bool) -> None:
    """Verify an index as clients do.

    The exit code is 1 if a shard or a kernel is damaged, and 2 if no client would use the index.
    """
    from tilewright.building.index.publish import verify_folder
    from tilewright.building.index.signing import parse_pins

    with report_progress(as_json=as_json):
        index, problems = verify_folder(folder, parse_pins(pin), blobs=blobs)
    if as_json:
        print_json({"version": index.version, "keys": index.table.count, "problems": problems})
    else:
        for problem in problems:
            click.echo(problem)
        mark = mark_bad(format_count(len(problems), "problem")) if problems else mark_good("good:")
        click.echo(f"{mark} version {index.version} with {format_count(index.table.count, 'kernel')}")
    ctx.exit(1 if problems else 0)


@command.command("serve", cls=Command, examples=("tilewright index serve site --port 8080",))
@click.argument("folder", type=_FOLDER)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="any free one", help="Port to listen on."
)
@add_json_option
def serve(folder: Path, port: int, as_json: bool) -> None:
    """Serve an index on this machine, for tests.

    It listens on 127.0.0.1 only. For others, copy the folder to a static host with TLS.
    """
    from tilewright.building.index.serve import LOOPBACK, make_server

    with make_server(folder, port) as server:
        url = f"http://{LOOPBACK}:{server.server_address[1]}/"
        if as_json:
            print_json({"url": url})
        else:
            click.echo(url)
        server.serve_forever()
