"""The request of a sweep, in `sweep.json` next to its journal: a journal holds the results of one sweep only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.base.atomic_write import describe_write_error, make_temporary_path, remove_draft
from tilewright.base.digest import digest_value, to_canonical_json
from tilewright.base.errors import FileFormatError, FileProblem, JournalError
from tilewright.base.shared_files import describe_lock_error, try_lock, wait_for_lock
from tilewright.bench.field_checks import format_quoted
from tilewright.bench.plan import Shard

# Holds the shard count. Each sweeping process holds a shared lock on it; only a process that is alone may change it.
COUNT = "shards.lock"


@contextmanager
def lock_shard(folder: Path, shard: Shard) -> Iterator[None]:
    """Ensure that no other process measures this shard inside the `with` block. Raises `JournalError` if one does."""
    with (
        _open_lock_file(folder / COUNT) as count,
        _open_lock_file(folder / f"shard-{shard.number}-of-{shard.count}.lock") as own,
    ):
        _check_shard_count(folder, count, shard)
        with _translate_lock_errors(folder):
            free = try_lock(own)
        if not free:
            raise JournalError(
                f"another process is sweeping shard {shard} into {folder}: wait for it, or use another shard"
            )
        yield


def _check_shard_count(folder: Path, descriptor: int, shard: Shard) -> None:
    """Check that all other processes have the same shard count, and keep it so."""
    with _translate_lock_errors(folder):
        alone = try_lock(descriptor)
    if alone:
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{shard.count}\n".encode(), 0)
        except OSError as error:
            raise JournalError(describe_write_error(folder, error)) from error
    # Others hold the exclusive lock only for a moment. It is released before the shared one is taken: in between,
    # another process may have written its own count, so the current content decides.
    with _translate_lock_errors(folder):
        wait_for_lock(descriptor, shared=True)
    found = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    if found != str(shard.count):
        raise JournalError(
            f"another process is sweeping shards I/{found} into {folder}, which have tasks in common with "
            f"shard {shard}. Both would measure these: use a shard I/{found}, or wait for it"
        )


@contextmanager
def _open_lock_file(path: Path) -> Iterator[int]:
    """An open file to lock. Closing it releases the lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise JournalError(describe_write_error(path, error)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _translate_lock_errors(folder: Path) -> Iterator[None]:
    """Translate an `OSError` of the `with` block: the disk does not support locks."""
    try:
        yield
    except OSError as error:
        raise JournalError(describe_lock_error(folder, error)) from error


FILE = "sweep.json"
SCHEMA = 1


def claim_folder(folder: Path | str, asked: Mapping[str, Any]) -> bool:
    """Assign a folder to the requested sweep, or check that it belongs to it. True if the sweep is resumed.

    Raises `JournalError` with the differing fields if it belongs to another sweep. If several processes start at once,
    one writes and all others compare.
    """
    folder = Path(folder)
    wanted = json.loads(to_canonical_json(dict(asked)))
    text = json.dumps({"schema": SCHEMA, "digest": digest_value(wanted), "asked": wanted}, indent=2) + "\n"
    draft = make_temporary_path(folder / FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with draft.open("w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.link(draft, folder / FILE)
    except FileExistsError as error:
        if not (folder / FILE).exists():  # the folder itself is a file
            raise JournalError(describe_write_error(folder, error)) from error
        _compare_requests(folder, read_request(folder), wanted)
        return True
    except OSError as error:
        raise JournalError(describe_write_error(folder, error)) from error
    finally:
        remove_draft(draft)
    return False


def check_folder(folder: Path | str, asked: Mapping[str, Any]) -> bool:
    """Whether a folder belongs to the requested sweep, without claiming it. Raises as `claim_folder` does."""
    if not (Path(folder) / FILE).exists():
        return False
    _compare_requests(Path(folder), read_request(folder), json.loads(to_canonical_json(dict(asked))))
    return True


def read_request(folder: Path | str) -> dict[str, Any]:
    """The request of a folder's sweep. Raises `FileFormatError` for an invalid file."""
    path = Path(folder) / FILE
    try:
        value = json.loads(path.read_text("utf-8"), parse_constant=_reject_constant)
        schema, digest, asked = value["schema"], value["digest"], value["asked"]
    except FileNotFoundError as error:
        raise JournalError(f"{path} does not exist: the folder does not belong to a sweep") from error
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(path, [FileProblem("", f"is not the request of a sweep: {error}")]) from error
    if schema != SCHEMA:
        raise FileFormatError(path, [FileProblem("schema", f"is {format_quoted(schema)}, this version reads {SCHEMA}")])
    if not isinstance(asked, dict) or not _has_digest(digest, asked):
        raise FileFormatError(path, [FileProblem("asked", "was changed: its digest does not match")])
    return asked


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _has_digest(digest: object, asked: dict[str, Any]) -> bool:
    try:
        return bool(digest == digest_value(asked))
    except (ValueError, RecursionError):  # a number such as 1e999 is infinite, which no request has
        return False


def _compare_requests(folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    differences = list(_describe_differences(found, wanted))
    if differences:
        raise JournalError(
            f"{folder} holds another sweep: {'; '.join(differences)}. "
            "Repeat the same request to resume it, or use a new folder"
        )


def _describe_differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between two requests: counts rather than digests, and single settings."""
    names = {name for name in {*found, *wanted} if found.get(name) != wanted.get(name)}
    for name in sorted(names):
        counted = name.removesuffix("_digest")
        if name != counted:
            if counted not in names:
                yield f"other {counted} ({_format_field(wanted, counted)} there and now)"
        elif f"{name}_digest" in wanted:
            yield f"{_format_field(found, name)} {name} there, {_format_field(wanted, name)} now"
        elif isinstance(found.get(name), dict) and isinstance(wanted.get(name), dict):
            yield from _describe_differences(found[name], wanted[name])
        else:
            yield f"{name} {_format_field(found, name)} there, {_format_field(wanted, name)} now"


def _format_field(asked: Mapping[str, Any], name: str) -> str:
    value = asked.get(name, "nothing")
    texts = value if isinstance(value, list) else [value]
    text = ", ".join(each if isinstance(each, str) else to_canonical_json(each) for each in texts)
    return text if len(text) <= 60 else f"{text[:57]}…"
