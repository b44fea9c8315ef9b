"""The files of a pack that programs build with: headers, the CMake package, and a library of kernels per GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright import arch as archs
from tilewright.base.digest import to_canonical_json
from tilewright.base.errors import CompileError, PackError
from tilewright.building.driver import NO_CONFIG_FILES
from tilewright.building.flags import HIP_FORWARD, HIP_FORWARD_FLAGS
from tilewright.building.outcome import is_disk_full
from tilewright.building.pack.kernels import PackMember
from tilewright.building.pack.problems import (
    count_stages,
    count_tensors,
    has_problems,
    list_preparations,
    render_problem_headers,
    render_problem_source,
    write_problem,
)
from tilewright.building.pack.templates import fill_template
from tilewright.building.process import run_command
from tilewright.building.toolchain import Toolchain
from tilewright.codegen.fatbin import fatbin_symbol, render_fatbin
from tilewright.codegen.render import read_support_files
from tilewright.ops import find_op
from tilewright.ops.kernel import DIGEST_LENGTH, Kernel

HEADERS = "include/tilewright"
TABLE_FUNCTION = "tw_pack_table"
# The functions that a kernel with symbol S exports as S_supports, S_run, …: the same for every op.
FUNCTIONS = ("supports", "workspace_size", "run", "message", "name")
_HERE = Path(__file__).parent
_TABLE_FLAGS = ("-x", "c", "-std=c11", "-O1", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c")
# No contraction: rankings must round each operation as Python does.
_RANK_FLAGS = (*_TABLE_FLAGS, "-O2", "-ffp-contract=off")
# The checks are long and each runs once for a problem: with inlining, those of attention take 13 s instead of 3 s of
# CPU time to compile, and twice the room.
_PROBLEM_FLAGS = (*_TABLE_FLAGS, "-fno-inline-functions", "-ffp-contract=off")
_LINK_FLAGS = (
    "-shared",
    # A program may load two packs with the same kernel: each table must call the kernel in its own library.
    "-Wl,-Bsymbolic",
    "-Wl,--version-script=exports.map",
)
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class TunedKernel:
    """The fastest measured kernel of a problem, and its time."""

    kernel: Kernel
    problem: Any
    us: float


@dataclass(frozen=True)
class RankOrder:
    """What comes before estimates: priorities of kernels, and measured times."""

    priorities: Mapping[Kernel, int] = field(default_factory=dict)
    tuned: Sequence[TunedKernel] = ()


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
    order: RankOrder = field(default_factory=RankOrder)

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
    objects += [_compile_problems(op, source, plan, toolchain) for op, source in _render_problems(plan)]
    objects += [_compile_table(plan, toolchain), _compile_hip_forward(plan, toolchain)]
    (plan.work / "objects.rsp").write_text("".join(f"{name}\n" for name in objects))
    (plan.work / "exports.map").write_text(render_export_list(member.kernel for member in plan.members))
    product = f"../{plan.out.relative_to(plan.work.parent)}/{plan.file}"
    words = (*_LINK_FLAGS, f"-Wl,-soname,{plan.file}", "@objects.rsp", "-o", product)
    _run_compiler(plan, toolchain, (*words, *toolchain.link_flags()), f"link {plan.file}")
    return plan.out / plan.file


@dataclass(frozen=True)
class _Row:
    """One kernel in the context of the table's template."""

    slug: str
    op: str
    symbol: str
    prefix: str  # of the op's C names: tw_xyz, for tw_xyz_args and TW_XYZ_ABI_VERSION
    config: str
    fields: Sequence[tuple[str, str]]
    prepared: Sequence[tuple[str, str]]
    profiles: int  # bit i: the kernel is in the op's profile i


@dataclass(frozen=True)
class _OpRow:
    """The problems of one op in the context of the table's template."""

    op: str
    prefix: str
    most_tensors: int
    most_stages: int
    has_workspace: bool
    profiles: Sequence[tuple[str, str]]  # the name and the aliases of each


def library_file(name: str, gpu: str) -> str:
    """The file name of a pack's library for one GPU."""
    return f"lib{name}_{gpu}.so"


def render_table(
    name: str, gpu: str, kernels: Sequence[Kernel], ranked: Collection[str] = (), order: RankOrder | None = None
) -> str:
    """Render the C source of a library's table. Kernels must be sorted by slug. The library has a ranking function for
    the ops in `ranked`."""
    order = order or RankOrder()
    places = {kernel: place for place, kernel in enumerate(kernels)}
    tuned = {
        op: [
            (write_problem(each.problem), places[each.kernel], repr(each.us))
            for each in order.tuned
            if each.kernel.op == op and each.kernel in places
        ]
        for op in sorted({each.kernel.op for each in order.tuned})
    }
    ops = sorted({kernel.op for kernel in kernels})
    rows = [_make_row(kernel) for kernel in kernels]
    prefixes = sorted({row.prefix for row in rows if row.op in ranked})
    return fill_template(
        "table.c.j2",
        file=library_file(name, gpu),
        name=name,
        version=get_version(),
        gpu=gpu,
        fp8=archs.load(gpu).numbers.fp8,
        ops=ops,
        kernels=rows,
        ranked=prefixes,
        problems={op: _make_op_row(op) for op in ops if has_problems(op)},
        priorities=[order.priorities.get(kernel, 0) for kernel in kernels] if any(order.priorities.values()) else [],
        tuned={op: rows for op, rows in tuned.items() if rows and op in ranked},
    )


def render_export_list(kernels: Iterable[Kernel]) -> str:
    """Render a version script for the linker that exports only the table and the kernels' C functions."""
    names = [TABLE_FUNCTION, *(f"{kernel.symbol}_{function}" for kernel in kernels for function in FUNCTIONS)]
    listed = "".join(f"    {name};\n" for name in names)
    return f"{{\n  global:\n{listed}  local:\n    *;\n}};\n"


def read_headers(ops: Iterable[str]) -> Mapping[str, str]:
    """Read the headers of a pack with these ops: path in the pack → text."""
    names = ("pack.h", *sorted(path.name for path in _HERE.glob("*.hpp")))
    ours = {name: (_HERE / name).read_text(encoding="utf-8") for name in names}
    for op in ops:
        ours |= {f"{op}.h": _read_c_header(op)}
        ours |= render_problem_headers(op) if has_problems(op) else {}
        ours |= _read_host_reference(op)
    return {f"{HEADERS}/{name}": text for name, text in ours.items()}


def render_cmake_package(name: str, gpus: Sequence[str]) -> Mapping[str, str]:
    """Render the files that `find_package` reads: path in the pack → text."""
    number = get_version()
    major, minor = (int(number) for number in number.split(".")[:2])
    folder = f"lib/cmake/{name}"
    return {
        f"{folder}/{name}Config.cmake": fill_template("Config.cmake.j2", name=name, version=number, gpus=gpus),
        f"{folder}/{name}ConfigVersion.cmake": fill_template(
            "ConfigVersion.cmake.j2", version=number, major=major, minor=minor
        ),
    }


def _make_row(kernel: Kernel) -> _Row:
    config: Mapping[str, Any] = kernel.facts["config"]
    fields = [(name, _format_field(value)) for name, value in sorted(config.items())]
    prefix = kernel.symbol[: -DIGEST_LENGTH - 1]
    text = to_canonical_json(config)
    arch = archs.load(kernel.arch)
    wanted = [profile.wants(kernel.config, arch) for profile in find_op(kernel.op).profiles.values()]
    bits = sum(1 << place for place, own in enumerate(wanted) if own)
    return _Row(kernel.slug, kernel.op, kernel.symbol, prefix, text, fields, list_preparations(kernel), bits)


def _make_op_row(op: str) -> _OpRow:
    execution = find_op(op).execution
    assert execution is not None
    assert execution.call is not None
    has_workspace = any(member.name == "workspace" for member in execution.call.members)
    profiles = [(name, ",".join(each.aliases)) for name, each in find_op(op).profiles.items()]
    return _OpRow(op, f"tw_{op}", count_tensors(op), count_stages(op), has_workspace, profiles)


def _format_field(value: Any) -> str:
    return value if isinstance(value, str) else to_canonical_json(value)


def _read_host_reference(op: str) -> Mapping[str, str]:
    execution = find_op(op).execution
    if execution is None or execution.host_reference is None:
        return {}
    return {f"{op}_reference.hpp": execution.host_reference.read_text(encoding="utf-8")}


def _read_c_header(op: str) -> str:
    """Read the C interface of an op: its only support file in C."""
    found = {name: text for name, text in read_support_files(op).items() if name.endswith(".h")}
    if len(found) != 1:
        raise PackError(
            f"op {op} has {len(found)} C headers among its support files, a pack needs exactly 1: "
            f"{', '.join(found) or '(none)'}. C++ files must end with .hpp."
        )
    return next(iter(found.values()))


def get_version() -> str:
    """Return the version of Tilewright."""
    from tilewright import __version__  # noqa: PLC0415  (the package imports its parts, not the other way round)

    return __version__


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
    (plan.work / "table.c").write_text(render_table(plan.name, plan.gpu, kernels, plan.rankings, plan.order))
    words = (*_TABLE_FLAGS, _include_flag(plan), "table.c", "-o", "table.o")
    _run_compiler(plan, toolchain, words, f"compile the table of {plan.file}")
    return "table.o"


def _compile_hip_forward(plan: LibraryPlan, toolchain: Toolchain) -> str:
    shutil.copyfile(HIP_FORWARD, plan.work / HIP_FORWARD.name)
    words = (*HIP_FORWARD_FLAGS, "-c", HIP_FORWARD.name, "-o", "hip_forward.o")
    _run_compiler(plan, toolchain, words, f"compile the HIP functions of {plan.file}")
    return "hip_forward.o"


def _compile_ranking(op: str, source: str, plan: LibraryPlan, toolchain: Toolchain) -> str:
    (plan.work / f"rank_{op}.c").write_text(source)
    words = (*_RANK_FLAGS, _include_flag(plan), f"rank_{op}.c", "-o", f"rank_{op}.o")
    _run_compiler(plan, toolchain, words, f"compile the ranking of {op} for {plan.file}")
    return f"rank_{op}.o"


def _render_problems(plan: LibraryPlan) -> list[tuple[str, str]]:
    """The C sources of problems, by op; the kernels of an op follow each other in the table."""
    kernels = [member.kernel for member in plan.members]
    sources = []
    for op in sorted({kernel.op for kernel in kernels if has_problems(kernel.op)}):
        own = [kernel for kernel in kernels if kernel.op == op]
        sources.append((op, render_problem_source(op, plan.gpu, own, kernels.index(own[0]))))
    return sources


def _compile_problems(op: str, source: str, plan: LibraryPlan, toolchain: Toolchain) -> str:
    (plan.work / f"problem_{op}.c").write_text(source)
    words = (*_PROBLEM_FLAGS, _include_flag(plan), f"problem_{op}.c", "-o", f"problem_{op}.o")
    _run_compiler(plan, toolchain, words, f"compile the problems of {op} for {plan.file}")
    return f"problem_{op}.o"


def _include_flag(plan: LibraryPlan) -> str:
    return f"-I../{plan.include.relative_to(plan.work.parent)}"


def _run_compiler(plan: LibraryPlan, toolchain: Toolchain, words: Sequence[str], action: str) -> None:
    """Run the compiler in the work folder. All paths are relative, so the library contains no folder names."""
    ran = run_command((str(toolchain.cxx), NO_CONFIG_FILES, *words), folder=plan.work, timeout_s=_TIMEOUT_S)
    if ran.timed_out:
        raise CompileError(f"cannot {action}: the compiler did not end within {_TIMEOUT_S:g} s.", ran.output)
    if ran.code != 0 and is_disk_full(plan.work, ran.output):
        raise PackError(f"cannot {action}: the disk is full. Name a folder on a disk with free space.")
    if ran.code != 0:
        raise CompileError(f"cannot {action}: {toolchain.cxx} ended with code {ran.code}.\n{ran.output}", ran.output)
