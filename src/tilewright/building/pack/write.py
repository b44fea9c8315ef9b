"""Write a self-contained pack folder for C and C++ programs: atomically, and never over anything that is not a pack."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilewright.base import events
from tilewright.base.errors import FileFormatError, PackError
from tilewright.building.pack.kernels import PackMember, collect_members, group_by_gpu
from tilewright.building.pack.library import (
    LibraryPlan,
    RankOrder,
    get_version,
    link_library,
    read_headers,
    render_cmake_package,
)
from tilewright.building.pack.manifest import MANIFEST, Pack, PackKernel, check_name, describe_pack_file, read_manifest
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.files import get_inode
from tilewright.building.toolchain import Toolchain
from tilewright.ops.kernel import Kernel

DEFAULT_NAME = "tilewright_pack"
# Returns C sources that rank kernels, for a GPU and its kernels in table order: op → source of tw_<op>_rank as declared
# in pack.h. Ops without one keep the order of the table.
Rankings = Callable[[str, Sequence[Kernel]], Mapping[str, str]]

_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)
# An attempt fails only if another writer of the same pack interferes at that very moment.
_ROUNDS = 50
_SHOWN = 5


def write_pack(
    artifacts: Iterable[Artifact | Failure],
    toolchain: Toolchain,
    folder: Path,
    *,
    name: str = DEFAULT_NAME,
    rankings: Rankings | None = None,
    order: RankOrder | None = None,
) -> Pack:
    """Link artifacts into a pack in `folder`, atomically. The same artifacts and rankings give the same bytes. Without
    rankings the pack's kernels can be queried and run, but not ranked. `order` has priorities and measured times, which
    come before them.

    An existing pack is replaced; a folder with anything else is rejected. Raises `PackError` with every entry that
    cannot be packed, including failed builds.
    """
    check_name(name)
    members = collect_members(artifacts)
    target = folder.resolve()
    require_replaceable(target)
    with create_private_sibling(target) as private:
        draft = private / "pack"
        pack = _write_draft(draft, name, members, toolchain, private, rankings or _no_rankings, order or RankOrder())
        install_pack(draft, target)
    return Pack(folder, pack.name, pack.version, pack.libraries, pack.files, pack.kernels)


def _no_rankings(gpu: str, kernels: Sequence[Kernel]) -> Mapping[str, str]:  # noqa: ARG001
    return {}


def _write_draft(
    draft: Path,
    name: str,
    members: tuple[PackMember, ...],
    toolchain: Toolchain,
    private: Path,
    rankings: Rankings,
    order: RankOrder,
) -> Pack:
    """Write the whole pack into `draft`; objects go next to it."""
    by_gpu = group_by_gpu(members)
    written = {
        **read_headers(sorted({m.kernel.op for m in members})),
        **render_cmake_package(name, tuple(by_gpu)),
    }
    _write_texts(draft, written)
    libraries = {}
    with events.report_task("pack", len(members)) as advance:
        for gpu, own in by_gpu.items():
            ranked = rankings(gpu, [member.kernel for member in own])
            work = private / f"work-{gpu}"
            plan = LibraryPlan(name, gpu, own, work, draft / "include", draft / "lib", ranked, order)
            libraries[gpu] = describe_pack_file(draft, str(link_library(plan, toolchain, advance).relative_to(draft)))
    files = tuple(describe_pack_file(draft, path) for path in sorted(written))
    pack = Pack(
        draft,
        name,
        get_version(),
        libraries,
        files,
        tuple(_make_pack_kernel(member) for member in members),
    )
    _write_texts(draft, {MANIFEST: pack.to_text()})
    sync_tree(draft)
    return pack


def _make_pack_kernel(member: PackMember) -> PackKernel:
    kernel = member.kernel
    return PackKernel(
        slug=kernel.slug,
        op=kernel.op,
        symbol=kernel.symbol,
        arch=kernel.arch,
        config=kernel.facts["config"],
        code_object=member.code_digest,
        resources=member.resources,
    )


def _write_texts(root: Path, texts: Mapping[str, str]) -> None:
    for path, content in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8", newline="\n")


def require_replaceable(folder: Path) -> None:
    """Raise `PackError` unless `folder` does not exist, is empty, or holds a pack and nothing else."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise PackError(f"{folder} is in the way: it is not a folder. Name another one, or move it away.")
    present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}
    if not present:
        return
    try:
        pack = read_manifest(folder)
    except (PackError, FileFormatError) as error:
        raise PackError(
            f"{folder} is not overwritten: it has {len(present)} file(s), and it is not a pack that this version of "
            f"Tilewright supports. Name another folder, or remove it. ({error})"
        ) from error
    ours = {MANIFEST, *(file.path for file in (*pack.libraries.values(), *pack.files))}
    if foreign := sorted(present - ours):
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        raise PackError(
            f"{folder} is not overwritten: {len(foreign)} file(s) in it do not belong to the pack: "
            f"{', '.join(foreign[:_SHOWN])}{more}. Move them away."
        )


def install_pack(draft: Path, folder: Path) -> None:
    """Rename a finished pack to `folder`; an existing pack is moved next to the draft, and moved back on failure.

    Of several concurrent writers the last one wins. Nobody ever sees a part of a pack; while one replaces another, the
    folder may be missing for a moment.
    """
    for number in range(_ROUNDS):
        if not _is_still_replaceable(folder):
            continue
        aside = draft.with_name(f"replaced-{number}")
        try:
            draft.rename(folder)  # also over an empty folder
            return
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
        try:
            folder.rename(aside)
        except FileNotFoundError:
            continue  # another writer has just moved it
        try:
            draft.rename(folder)
            return
        except OSError as error:
            if error.errno not in _OCCUPIED:
                aside.rename(folder)
                raise
    raise PackError(f"{folder} was replaced by other writers in each of {_ROUNDS} attempts. Try again.")


def _is_still_replaceable(folder: Path) -> bool:
    """Return True, or raise `PackError`. Return False if another writer changed the folder during the check."""
    judged = get_inode(folder)
    try:
        require_replaceable(folder)
    except FileNotFoundError:
        return False  # it was removed during the check, and its inode may be in use again
    except (PackError, OSError):
        if get_inode(folder) == judged:
            raise
        return False
    return True


@contextmanager
def create_private_sibling(folder: Path) -> Iterator[Path]:
    """Create a private folder on the file system of `folder`, so that a rename is atomic. Removed at the end."""
    with translate_os_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        private = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    with translate_os_errors(private):
        try:
            yield private
        finally:
            shutil.rmtree(private)


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Translate an `OSError` of the `with` block into a `PackError` with path, cause and advice."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise PackError(
            f"cannot write a pack, {where}: {error.strerror or error}. Name a folder that this user can write, "
            "on a disk with free space."
        ) from error


def sync_tree(root: Path) -> None:
    """Sync every file below `root` to disk, so that a crash after the rename leaves no empty files."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
