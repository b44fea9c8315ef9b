"""Write a self-contained pack folder for C and C++ programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tilewright.base import events
from tilewright.building.pack import text
from tilewright.building.pack.library import LibraryPlan, link_library
from tilewright.building.pack.manifest import MANIFEST, Pack, PackKernel, check_name, pack_file
from tilewright.building.pack.members import Member, gpus_of, members_of
from tilewright.building.pack.place import private_sibling, put_in_place, require_replaceable, sync_tree
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.toolchain import Toolchain
from tilewright.ops.kernel import Kernel

DEFAULT_NAME = "tilewright_pack"
# Returns C sources that rank kernels, for a GPU and its kernels in table order: op → source of tw_<op>_rank as declared
# in pack.h. Ops without one keep the order of the table.
Rankings = Callable[[str, Sequence[Kernel]], Mapping[str, str]]


def write_pack(
    artifacts: Iterable[Artifact | Failure],
    toolchain: Toolchain,
    folder: Path,
    *,
    name: str = DEFAULT_NAME,
    rankings: Rankings | None = None,
) -> Pack:
    """Link artifacts into a pack in `folder`, atomically. The same artifacts and rankings give the same bytes. Without
    rankings the pack's kernels can be queried and run, but not ranked.

    An existing pack is replaced; a folder with anything else is rejected. Raises `PackError` with every entry that
    cannot be packed, including failed builds.
    """
    check_name(name)
    members = members_of(artifacts)
    target = folder.resolve()
    require_replaceable(target)
    with private_sibling(target) as private:
        draft = private / "pack"
        pack = _write(draft, name, members, toolchain, private, rankings or _no_rankings)
        put_in_place(draft, target)
    return Pack(folder, pack.name, pack.version, pack.libraries, pack.files, pack.kernels)


def _no_rankings(gpu: str, kernels: Sequence[Kernel]) -> Mapping[str, str]:  # noqa: ARG001
    return {}


def _write(
    draft: Path, name: str, members: tuple[Member, ...], toolchain: Toolchain, private: Path, rankings: Rankings
) -> Pack:
    """Write the whole pack into `draft`; objects go next to it."""
    by_gpu = gpus_of(members)
    written = {**text.headers(sorted({m.kernel.op for m in members})), **text.cmake_package(name, tuple(by_gpu))}
    _write_texts(draft, written)
    libraries = {}
    with events.task("pack", len(members)) as advance:
        for gpu, own in by_gpu.items():
            ranked = rankings(gpu, [member.kernel for member in own])
            plan = LibraryPlan(name, gpu, own, private / f"work-{gpu}", draft / "include", draft / "lib", ranked)
            libraries[gpu] = pack_file(draft, str(link_library(plan, toolchain, advance).relative_to(draft)))
    files = tuple(pack_file(draft, path) for path in sorted(written))
    pack = Pack(draft, name, text.version(), libraries, files, tuple(_kernel(member) for member in members))
    _write_texts(draft, {MANIFEST: pack.text()})
    sync_tree(draft)
    return pack


def _kernel(member: Member) -> PackKernel:
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
