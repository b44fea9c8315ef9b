"""Make an index from a store: blobs, and the metadata of The Update Framework that lists them.

The folder is what a static host serves. Files are only added, and never change, except for `timestamp.json`: it is
written last, so that a copy of the folder at any moment is complete.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from securesystemslib.signer import CryptoSigner, Key
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    SuccinctRoles,
    TargetFile,
    Targets,
    Timestamp,
)

from tilewright.base.atomic_write import write_atomically
from tilewright.base.documents import read_bytes
from tilewright.base.errors import InvalidBlobError, InvalidValueError, StoreError
from tilewright.base.events import Notice, emit, report_task
from tilewright.building.index.keys import format_public_key
from tilewright.building.index.transport import AbsentError
from tilewright.building.index.trusted import (
    BLOBS,
    METADATA,
    TIMESTAMP_FILE,
    TrustedIndex,
    get_blob_path,
)
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.remote import MAX_BLOB_BYTES, pack_entry, unpack_entry

S = TypeVar("S", Root, Timestamp, Snapshot, Targets)

_BIN = "bin"
# Bytes of a kernel's entry in a bin and of a bin's entry in the snapshot, as python-tuf writes them.
_ENTRY_BYTES, _ROW_BYTES = 143, 132
# A client downloads a snapshot, and a bin for each kernel. The sum is smallest for clients that need so many kernels
# from one snapshot: those that find 30 in a month, with a new snapshot each week.
_KERNELS_OF_SNAPSHOT = 4
_MIN_BITS, _MAX_BITS = 3, 14
# The snapshot pins each bin by its digest and expires soon, so the bin's own expiry, which the format requires, is far.
_BIN_DAYS = 3650.0
_HASHES = ["sha256"]


@dataclass(frozen=True)
class PublishedIndex:
    """The result of `publish_kernels`."""

    version: int
    keys: int
    added: int
    bytes: int  # of the added blobs
    bins: int
    signed: int  # bins that were signed anew


@dataclass(frozen=True)
class VerifiedIndex:
    """The result of `verify_folder`: the version of the snapshot, the number of keys, and what is damaged."""

    version: int
    keys: int
    problems: Sequence[str]


def write_root(
    folder: Path, roots: Sequence[Key], index: Sequence[Key], timestamp: Sequence[Key], threshold: int,
    signers: Sequence[CryptoSigner], days: float,
) -> Path:  # fmt: skip
    """Add a version of the root metadata: the first, or a rotation of keys. Returns its file.

    `threshold` of `roots` must sign it, and as many of the version before as that requires.
    """
    _refuse_earlier_format(folder)
    before = _read_newest(folder, Root)
    root = Root(1 if before is None else before.version + 1, expires=_compute_expiry(days))
    for role, keys in ((Root, roots), (Targets, index), (Snapshot, index), (Timestamp, timestamp)):
        for key in keys:
            root.add_key(key, role.type)
    root.roles[Root.type].threshold = threshold
    metadata = Metadata(root)
    for signer in signers:
        metadata.sign(signer, append=True)
    result = root.get_root_verification_result(before, metadata.signed_bytes, metadata.signatures)
    for version, part in ((root.version, result.second), (root.version - 1, result.first)):
        if not part:
            raise StoreError(
                f"{part.threshold} root keys of version {version} must sign, and {len(part.signed)} did: add --root-key"
            )
    path = folder / METADATA / f"{root.version}.root.json"
    _write(path, metadata.to_bytes())
    return path


def publish_kernels(folder: Path, store: Store, signer: CryptoSigner, days: float) -> PublishedIndex:
    """Add all built kernels of a store to the index, as a new snapshot. Kernels that it has are not read again."""
    _refuse_earlier_format(folder)
    known = {path for targets in _read_bins(folder).values() for path in targets.targets}
    new = []
    entries = [entry for entry in store.list_entries() if isinstance(entry.content, Artifact)]
    with report_task("adding kernels", len(entries)) as advance:
        for entry in entries:
            path = get_blob_path(entry.key)
            if path not in known and isinstance(entry.content, Artifact) and "kernel" in entry.content.facts:
                blob = pack_entry(entry.content)
                if len(blob) <= MAX_BLOB_BYTES:
                    new.append(write_blob(folder, path, blob))
                else:
                    what = f"{entry.key} has {len(blob):,} bytes, over {MAX_BLOB_BYTES:,}"
                    emit(Notice(f"{what}: it is not added to the index"))
            advance(entry.name)
    return publish_targets(folder, new, signer, days)


def write_blob(folder: Path, path: str, blob: bytes) -> TargetFile:
    """Write a blob to the folder of an index, and return its entry."""
    target = TargetFile.from_data(path, blob, _HASHES)
    _write(folder / BLOBS / target.get_prefixed_paths()[0], blob)
    return target


def publish_targets(folder: Path, new: Sequence[TargetFile], signer: CryptoSigner, days: float) -> PublishedIndex:
    """Sign new entries, in addition to those that the index has, as a new snapshot."""
    root = _require_root(folder)
    _require_key(root, Targets.type, signer)
    snapshot, bins = _read_newest(folder, Snapshot), _read_bins(folder)
    targets = [target for content in bins.values() for target in content.targets.values()] + list(new)
    bits = max(_choose_bits(len(targets)), len(bins).bit_length() - 1)
    roles = SuccinctRoles([signer.public_key.keyid], 1, bits, _BIN)
    delegations = Delegations({signer.public_key.keyid: signer.public_key}, succinct_roles=roles)
    if snapshot is not None and _read_targets(folder, Targets.type, snapshot).signed.delegations != delegations:
        bins = {}
    groups: dict[str, dict[str, TargetFile]] = {name: {} for name in roles.get_roles()}
    for target in targets:
        groups[roles.get_role_for_target(target.path)][target.path] = target
    expires, bin_expires = _compute_expiry(days), _compute_expiry(_BIN_DAYS)
    # Bins stay listed when there are more of them, since clients refuse a snapshot without a role of the one before.
    meta = {} if snapshot is None else dict(snapshot.meta)
    changed = [
        name
        for name, group in groups.items()
        if name not in bins or bins[name].targets != group or bins[name].expires <= expires
    ]
    for name in changed:
        before = meta.get(f"{name}.json")
        content = Targets(1 if before is None else before.version + 1, None, bin_expires, groups[name])
        meta[f"{name}.json"] = _sign(folder, name, content, signer)
    version = 1 if snapshot is None else snapshot.version + 1
    top = Targets(version, expires=expires, delegations=delegations)
    meta["targets.json"] = _sign(folder, Targets.type, top, signer)
    _sign(folder, Snapshot.type, Snapshot(version, expires=expires, meta=meta), signer)
    size = sum(target.length for target in new)
    return PublishedIndex(version, len(targets), len(new), size, len(groups), len(changed))


def sign_timestamp(folder: Path, signer: CryptoSigner, days: float) -> Timestamp:
    """Sign the newest snapshot: clients use it from now on, for a number of days."""
    root = _require_root(folder)
    _require_key(root, Timestamp.type, signer)
    path = _find_newest(folder, Snapshot.type)
    if path is None:
        raise StoreError(f"{folder} has no snapshot. Run `tilewright index publish` first.")
    snapshot = _load(path, Snapshot)
    try:
        root.verify_delegate(Snapshot.type, snapshot.signed_bytes, snapshot.signatures)
    except RepositoryError as error:
        raise StoreError(
            f"{path} is not signed by an index key of the newest root ({error}). Run `tilewright index publish`."
        ) from error
    file = folder / METADATA / TIMESTAMP_FILE
    before = _load(file, Timestamp) if file.exists() else None
    version = 1 if before is None else before.signed.version + 1
    meta = MetaFile.from_data(snapshot.signed.version, path.read_bytes(), _HASHES)
    timestamp = Metadata(Timestamp(version, expires=_compute_expiry(days), snapshot_meta=meta))
    timestamp.sign(signer)
    _write(file, timestamp.to_bytes())
    return timestamp.signed


@dataclass(frozen=True)
class _FolderTransport:
    """The folder as a host, so that `verify_folder` decides as clients do."""

    folder: Path

    def get(self, name: str, most: int, *, exact: bool = False) -> bytes:  # noqa: ARG002  (digests are compared)
        if not (self.folder / name).exists():
            raise AbsentError(f"{self.folder / name} does not exist")
        return read_bytes(self.folder / name, most)


def verify_folder(folder: Path, root: bytes, *, blobs: bool) -> VerifiedIndex:
    """Verify an index as a client does, with all bins, and with `blobs` every blob.

    Raises `RemoteError` if no client would use it.
    """
    _refuse_earlier_format(folder)
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        TrustedIndex(root, copy, _FolderTransport(folder), 0.0).find([])
        snapshot = _load(copy / "snapshot.json", Snapshot).signed
        targets = _load(copy / "targets.json", Targets).signed
    problems, count = [], 0
    roles = _get_roles(targets)
    with report_task("verifying", roles.number_of_bins) as advance:
        for name in roles.get_roles():
            advance(name)
            try:
                content = _read_targets(folder, name, snapshot)
                targets.verify_delegate(name, content.signed_bytes, content.signatures)
            except (StoreError, RepositoryError) as error:
                problems.append(str(error))
                continue
            count += len(content.signed.targets)
            if blobs:
                damages = (_find_blob_problem(folder, target) for target in content.signed.targets.values())
                problems += [damage for damage in damages if damage]
    return VerifiedIndex(snapshot.version, count, problems)


def _find_blob_problem(folder: Path, target: TargetFile) -> str:
    path = folder / BLOBS / target.get_prefixed_paths()[0]
    try:
        blob = path.read_bytes()
        target.verify_length_and_hashes(blob)
        unpack_entry(blob, Path(target.path).name)
    except (OSError, RepositoryError, InvalidBlobError) as error:
        return f"{path}: {error}"
    return ""


def _choose_bits(count: int) -> int:
    """Choose the number of bins, as a power of two, for a number of keys."""
    bins = math.sqrt(max(count, 1) * _KERNELS_OF_SNAPSHOT * _ENTRY_BYTES / _ROW_BYTES)
    return min(max(round(math.log2(bins)), _MIN_BITS), _MAX_BITS)


def _read_bins(folder: Path) -> dict[str, Targets]:
    """Read the bins of the newest snapshot."""
    snapshot = _read_newest(folder, Snapshot)
    if snapshot is None:
        return {}
    names = _get_roles(_read_targets(folder, Targets.type, snapshot).signed).get_roles()
    return {name: _read_targets(folder, name, snapshot).signed for name in names}


def _read_targets(folder: Path, name: str, snapshot: Snapshot) -> Metadata[Targets]:
    """Read the targets or a bin that a snapshot lists."""
    meta = snapshot.meta.get(f"{name}.json")
    if meta is None:
        raise StoreError(f"the newest snapshot of {folder} does not list {name}. Publish in a new folder.")
    return _load(folder / METADATA / f"{meta.version}.{name}.json", Targets, meta)


def _get_roles(targets: Targets) -> SuccinctRoles:
    if targets.delegations is None or targets.delegations.succinct_roles is None:
        raise StoreError("targets.json does not delegate to bins: it was not made by `tilewright index publish`")
    return targets.delegations.succinct_roles


def _find_newest(folder: Path, role: str) -> Path | None:
    paths = (folder / METADATA).glob(f"[0-9]*.{role}.json")
    return max(paths, key=lambda path: int(path.name.partition(".")[0]), default=None)


def _read_newest(folder: Path, kind: type[S]) -> S | None:
    path = _find_newest(folder, kind.type)
    return None if path is None else _load(path, kind).signed


def _load(path: Path, kind: type[S], meta: MetaFile | None = None) -> Metadata[S]:
    """Read metadata of a role, with the digest of `meta` if there is one. Raises `StoreError` if it is damaged."""
    try:
        raw = path.read_bytes()
        if meta is not None:
            meta.verify_length_and_hashes(raw)
        metadata = Metadata[S].from_bytes(raw)
        if not isinstance(metadata.signed, kind):
            raise RepositoryError(f"it is metadata of the role {metadata.signed.type}, must be {kind.type}")
    except (OSError, RepositoryError) as error:
        raise StoreError(f"{path} cannot be used: {error}. Restore it, or publish in a new folder.") from error
    return metadata


def _require_root(folder: Path) -> Root:
    _refuse_earlier_format(folder)
    root = _read_newest(folder, Root)
    if root is None:
        raise StoreError(f"{folder} has no root metadata. Run `tilewright index trust` first.")
    return root


def _require_key(root: Root, role: str, signer: CryptoSigner) -> None:
    if signer.public_key.keyid not in root.roles[role].keyids:
        raise StoreError(
            f"the key {format_public_key(signer.public_key)} is not one of the role {role!r} in version "
            f"{root.version} of the root. Use one of those, or add it with `tilewright index trust`."
        )


def _refuse_earlier_format(folder: Path) -> None:
    if (folder / "keys.json").exists() or (folder / "index.json").exists():
        raise StoreError(
            f"{folder} has an index in an earlier format, which is not used any more. Publish it again in a new "
            "folder: `tilewright index trust`, then `tilewright index publish`."
        )


def _compute_expiry(days: float) -> datetime:
    if not 0 < days <= 3650:
        raise InvalidValueError(f"{days:g} days cannot be the life of a document: it must be above 0 and at most 3650")
    return datetime.now(UTC) + timedelta(days=days)


def _sign(folder: Path, name: str, content: S, signer: CryptoSigner) -> MetaFile:
    """Sign and write one version of a role's metadata."""
    metadata = Metadata[S](content)
    metadata.sign(signer)
    raw = metadata.to_bytes()
    _write(folder / METADATA / f"{content.version}.{name}.json", raw)
    return MetaFile.from_data(content.version, raw, _HASHES)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as draft:
        draft.write_bytes(content)
