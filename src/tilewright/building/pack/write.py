"""Write a self-contained pack folder for C and C++ programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tilewright.base import events
from tilewright.building.pack import generated_text
from tilewright.building.pack.install import create_private_sibling, install_pack, require_replaceable, sync_tree
from tilewright.building.pack.kernels import PackMember, collect_members, group_by_gpu
from tilewright.building.pack.library import LibraryPlan, link_library
from tilewright.building.pack.manifest import MANIFEST, Pack, PackKernel, check_name, describe_pack_file
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
    members = collect_members(artifacts)
    target = folder.resolve()
    require_replaceable(target)
    with create_private_sibling(target) as private:
        draft = private / "pack"
        pack = _write_draft(draft, name, members, toolchain, private, rankings or _no_rankings)
        install_pack(draft, target)
    return Pack(folder, pack.name, pack.version, pack.libraries, pack.files, pack.kernels)


def _no_rankings(gpu: str, kernels: Sequence[Kernel]) -> Mapping[str, str]:  # noqa: ARG001
    return {}


def _write_draft(
    draft: Path, name: str, members: tuple[PackMember, ...], toolchain: Toolchain, private: Path, rankings: Rankings
) -> Pack:
    """Write the whole pack into `draft`; objects go next to it."""
    by_gpu = group_by_gpu(members)
    written = {
        **generated_text.read_headers(sorted({m.kernel.op for m in members})),
        **generated_text.render_cmake_package(name, tuple(by_gpu)),
    }
    _write_texts(draft, written)
    libraries = {}
    with events.report_task("pack", len(members)) as advance:
        for gpu, own in by_gpu.items():
            ranked = rankings(gpu, [member.kernel for member in own])
            plan = LibraryPlan(name, gpu, own, private / f"work-{gpu}", draft / "include", draft / "lib", ranked)
            libraries[gpu] = describe_pack_file(draft, str(link_library(plan, toolchain, advance).relative_to(draft)))
    files = tuple(describe_pack_file(draft, path) for path in sorted(written))
    pack = Pack(
        draft,
        name,
        generated_text.get_version(),
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
