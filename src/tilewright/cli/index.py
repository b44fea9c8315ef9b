"""`tilewright index`: make, sign, verify and serve an index of built kernels for static hosts."""

from __future__ import annotations

from dataclasses import asdict
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
        "tilewright index trust site --root-key root.key --index-key ed25519:… --timestamp-key ed25519:…",
        "tilewright index publish site --key index.key",
        "tilewright index sign site --key timestamp.key",
        "tilewright index verify site --root site/metadata/1.root.json",
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
    from tilewright.building.index.keys import create_private_key, format_public_key

    public = format_public_key(create_private_key(file).public_key)
    if as_json:
        print_json({"file": str(file), "public": public})
    else:
        click.echo(public)


@command.command(
    "trust",
    cls=Command,
    examples=("tilewright index trust site --root-key root.key --index-key ed25519:… --timestamp-key ed25519:…",),
)
@click.argument("folder", type=OutputFolder())
@click.option("--root-key", "signers", type=FILE, multiple=True, required=True, help="Sign with this root key.")
@click.option("--root", "roots", multiple=True, metavar="KEY", help="A public root key. Default: those that sign.")
@click.option("--index-key", "index", multiple=True, required=True, metavar="KEY", help="A public key that publishes.")
@click.option(
    "--timestamp-key", "timestamp", multiple=True, required=True, metavar="KEY", help="A public key that dates."
)
@click.option("--threshold", type=click.IntRange(1), default=1, show_default=True, help="Root keys that must sign.")
@click.option("--days", type=_DAYS, default=365.0, show_default=True, help="Expire after this many days.")
@add_json_option
def trust(
    folder: Path,
    signers: tuple[Path, ...],
    roots: tuple[str, ...],
    index: tuple[str, ...],
    timestamp: tuple[str, ...],
    threshold: int,
    days: float,
    as_json: bool,
) -> None:
    """Add a version of the root metadata of an index.

    The first version names the keys of all roles; give its file to your users, who pin it. Later
    versions replace keys: each is signed by the root keys before it and by its own.
    """
    from tilewright.building.index.keys import format_public_key, parse_public_key, read_private_key
    from tilewright.building.index.publish import write_root

    keys = [read_private_key(path) for path in signers]
    public = [parse_public_key(text) for text in roots] or [key.public_key for key in keys]
    file = write_root(
        folder,
        public,
        [parse_public_key(text) for text in index],
        [parse_public_key(text) for text in timestamp],
        threshold,
        keys,
        days,
    )
    if as_json:
        print_json({"root": str(file), "roots": [format_public_key(key) for key in public]})
    else:
        click.echo(str(file))


@command.command("publish", cls=Command, examples=("tilewright index publish site --key index.key",))
@click.argument("folder", type=_FOLDER)
@click.option("--key", type=FILE, required=True, help="Sign with this index key.")
@click.option("--days", type=_DAYS, default=90.0, show_default=True, help="Expire after this many days.")
@add_json_option
def publish(folder: Path, key: Path, days: float, as_json: bool) -> None:
    """Add all built kernels of the store to an index.

    Kernels that FOLDER has already are not read again. `tilewright index sign` makes the result
    visible to clients.
    """
    from tilewright.building.index.keys import read_private_key
    from tilewright.building.index.publish import publish_kernels
    from tilewright.building.store.local import Store

    with report_progress(as_json=as_json):
        done = publish_kernels(folder, Store(), read_private_key(key), days)
    if as_json:
        print_json(asdict(done))
        return
    print_facts(
        [
            ("index", f"{folder}, snapshot {done.version}, for {days:g} days"),
            ("kernels", f"{done.keys:,}, {done.added:,} of them new ({format_size(done.bytes)})"),
            ("bins", f"{done.bins:,}, {done.signed:,} of them signed"),
        ]
    )


@command.command("sign", cls=Command, examples=("tilewright index sign site --key timestamp.key --days 14",))
@click.argument("folder", type=_FOLDER)
@click.option("--key", type=FILE, required=True, help="Sign with this timestamp key.")
@click.option("--days", type=_DAYS, default=14.0, show_default=True, help="Expire after this many days.")
@add_json_option
def sign(folder: Path, key: Path, days: float, as_json: bool) -> None:
    """Sign the newest snapshot of an index: clients use it from now on.

    Clients do not use it after it has expired, so sign it regularly, also if it has not changed.
    """
    from tilewright.building.index.keys import read_private_key
    from tilewright.building.index.publish import sign_timestamp

    signed = sign_timestamp(folder, read_private_key(key), days)
    snapshot = signed.snapshot_meta.version
    if as_json:
        print_json({"version": signed.version, "snapshot": snapshot, "expires": signed.expires.isoformat()})
    else:
        click.echo(f"version {signed.version} with snapshot {snapshot}, for {days:g} days")


@command.command(
    "verify", cls=Command, examples=("tilewright index verify site --root site/metadata/1.root.json --blobs",)
)
@click.argument("folder", type=_FOLDER)
@click.option("--root", type=FILE, required=True, help="The root metadata that users pin.")
@click.option("--blobs", is_flag=True, help="Hash every kernel, too.")
@add_json_option
@click.pass_context
def verify(ctx: click.Context, folder: Path, root: Path, blobs: bool, as_json: bool) -> None:
    """Verify an index as clients do.

    The exit code is 1 if a bin or a kernel is damaged, and 2 if no client would use the index.
    """
    from tilewright.building.index.publish import verify_folder

    with report_progress(as_json=as_json):
        verified = verify_folder(folder, root.read_bytes(), blobs=blobs)
    problems = verified.problems
    if as_json:
        print_json(asdict(verified))
    else:
        for problem in problems:
            click.echo(problem)
        mark = mark_bad(format_count(len(problems), "problem")) if problems else mark_good("good:")
        click.echo(f"{mark} snapshot {verified.version} with {format_count(verified.keys, 'kernel')}")
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
