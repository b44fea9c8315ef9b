"""Write a self-contained pack folder for C and C++ programs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base import events
from tilewright.base.errors import CompileError
from tilewright.building.driver import NO_CONFIG_FILES
from tilewright.building.pack import generated_text
from tilewright.building.pack.generated_text import library_file, render_export_list, render_table
from tilewright.building.pack.install import create_private_sibling, install_pack, require_replaceable, sync_tree
from tilewright.building.pack.kernels import PackMember, collect_members, group_by_gpu
from tilewright.building.pack.manifest import MANIFEST, Pack, PackKernel, check_name, describe_pack_file
from tilewright.building.process import run_command
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.toolchain import Toolchain
from tilewright.codegen.fatbin import fatbin_symbol, render_fatbin
from tilewright.ops.kernel import Kernel

_TABLE_FLAGS = ("-x", "c", "-std=c11", "-O1", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c")
# No contraction: rankings must round each operation as Python does.
_RANK_FLAGS = (*_TABLE_FLAGS, "-O2", "-ffp-contract=off")
_LINK_FLAGS = (
    "-shared",
    "-Wl,--no-undefined",
    # A program may load two packs with the same kernel: each table must call the kernel in its own library.
    "-Wl,-Bsymbolic",
    "-Wl,--version-script=exports.map",
)
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class LibraryPlan:
    """One library to link, and its folders, which are all in one private folder."""

    name: str  # of the pack
    gpu: str
    members: Sequence[PackMember]
    work: Path  # for objects; not part of the pack
    include: Path
    out: Path
    rankings: Mapping[str, str] = field(default_factory=dict)  # op → C source of its tw_<op>_rank

    @property
    def file(self) -> str:
        return library_file(self.name, self.gpu)


def link_library(plan: LibraryPlan, toolchain: Toolchain, advance: Callable[[str], None]) -> Path:
    """Link a library and return its path. Raises `CompileError` with the log if compiling or linking fails."""
    plan.work.mkdir()
    objects = []
    for member in plan.members:
        objects += _make_objects(member, plan, toolchain)
        advance(member.kernel.slug)
    objects += [_compile_ranking(op, source, plan, toolchain) for op, source in sorted(plan.rankings.items())]
    objects.append(_compile_table(plan, toolchain))
    (plan.work / "objects.rsp").write_text("".join(f"{name}\n" for name in objects))
    (plan.work / "exports.map").write_text(render_export_list(member.kernel for member in plan.members))
    product = f"../{plan.out.relative_to(plan.work.parent)}/{plan.file}"
    words = (*_LINK_FLAGS, f"-Wl,-soname,{plan.file}", "@objects.rsp", "-o", product)
    _run_compiler(plan, toolchain, (*words, *toolchain.link_flags()), f"link {plan.file}")
    return plan.out / plan.file


def _make_objects(member: PackMember, plan: LibraryPlan, toolchain: Toolchain) -> list[str]:
    """Make the host object and an object with the device code. Files are copied, so that gc cannot remove them."""
    symbol = member.kernel.symbol
    code, host = member.verify_files()
    shutil.copyfile(code, plan.work / f"{symbol}.co")
    shutil.copyfile(host, plan.work / f"{symbol}.host.o")
    assembly = render_fatbin({plan.gpu: f"{symbol}.co"}, fatbin_symbol(member.unit))
    (plan.work / f"{symbol}.fatbin.s").write_text(assembly)
    words = ("-c", f"{symbol}.fatbin.s", "-o", f"{symbol}.fatbin.o")
    _run_compiler(plan, toolchain, words, f"embed the device code of {member.kernel.slug}")
    return [f"{symbol}.host.o", f"{symbol}.fatbin.o"]


def _compile_table(plan: LibraryPlan, toolchain: Toolchain) -> str:
    kernels = [member.kernel for member in plan.members]
    (plan.work / "table.c").write_text(render_table(plan.name, plan.gpu, kernels, plan.rankings))
    words = (*_TABLE_FLAGS, _include_flag(plan), "table.c", "-o", "table.o")
    _run_compiler(plan, toolchain, words, f"compile the table of {plan.file}")
    return "table.o"


def _compile_ranking(op: str, source: str, plan: LibraryPlan, toolchain: Toolchain) -> str:
    (plan.work / f"rank_{op}.c").write_text(source)
    words = (*_RANK_FLAGS, _include_flag(plan), f"rank_{op}.c", "-o", f"rank_{op}.o")
    _run_compiler(plan, toolchain, words, f"compile the ranking of {op} for {plan.file}")
    return f"rank_{op}.o"


def _include_flag(plan: LibraryPlan) -> str:
    return f"-I../{plan.include.relative_to(plan.work.parent)}"


def _run_compiler(plan: LibraryPlan, toolchain: Toolchain, words: Sequence[str], action: str) -> None:
    """Run the compiler in the work folder. All paths are relative, so the library contains no folder names."""
    ran = run_command((str(toolchain.cxx), NO_CONFIG_FILES, *words), folder=plan.work, timeout_s=_TIMEOUT_S)
    if ran.timed_out:
        raise CompileError(f"cannot {action}: the compiler did not end within {_TIMEOUT_S:g} s.", ran.output)
    if ran.code != 0:
        raise CompileError(f"cannot {action}: {toolchain.cxx} ended with code {ran.code}.\n{ran.output}", ran.output)


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
