"""Which instructions of LLVM's assembler the emulated device supports, by class and GPU: tables for docs/evidence.md.

    python tools/instruction_coverage.py              write the tables into docs/evidence.md
    python tools/instruction_coverage.py --check      write nothing, fail if they are stale
    python tools/instruction_coverage.py --check --gpu gfx942      the same, for the numbers of one GPU only

The names are those in the assembler's table of LLVM 22; a GPU has a name if the assembler asks for its operands. The
emulated device supports it if it can translate the name with some operands. Names include older spellings.
"""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import tilewright.arch
from markdown_text import format_table, wrap_paragraph
from tilewright.building.disassembled import DisassembledLine
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.isa.wide import WIDE
from tilewright.emulator.matrix.sparse import find_any_shape
from tilewright.emulator.native.lower import lower_line_alone
from tilewright.emulator.program import FaultStep, Program, make_listing

PAGE = Path(__file__).parent.parent / "docs" / "evidence.md"
START, END = "<!-- instruction_coverage.py -->\n", "<!-- end -->\n"
LIBRARY = Path("/usr/lib/x86_64-linux-gnu/libLLVM.so.22.1")
_SAMPLE = b"\x09v_add_u32"  # in the table, each name follows its length
_UNKNOWN = re.compile(r"not supported|invalid instruction")
_ERROR = re.compile(r"<stdin>:(\d+):\d+: error: (.*)")

# Classes by the beginning of names, first match wins. Those left out are named in the page.
CLASSES = (
    ("graphics: images and ray tracing", r"image_|v_interp|exp$|export|lds_|ds_(param|direct)_|ds_bvh|ds_ordered"),
    ("graphics: typed buffers", r"tbuffer_|buffer_(load|store)_(lds_)?(d16_)?(hi_)?format"),
    ("graphics: other", r"v_cube|s_ttracedata"),
    ("traps, debugging, queues", r"s_(rfe|cbranch_(g_fork|i_fork|join|cdbg)|setkill|sethalt|sendmsg|set_gpr_idx_exec"
     r"|dump|trap|getpc_dummy|atc_probe|monitor|sleep_var|alloc_vgpr|get_barrier|barrier_(init|join|leave)"
     r"|wakeup_barrier)|ds_gws"),
    ("matrix, sparse", r"v_(smfmac|swmmac)"),
    ("matrix", r"v_(mfma|wmma)"),
    ("dual (VOPD)", r"v_dual"),
    ("compare", r"v_cmp"),
    ("convert", r"v_cvt"),
    ("packed, dot products", r"v_(pk|dot)"),
    ("lanes", r"v_(readlane|readfirst|writelane|permlane|swap|mbcnt)"),
    ("vector arithmetic", r"v_(?!s_)"),
    ("scalar memory", r"s_(load|buffer|store|atomic|scratch|dcache|memtime|memreal|prefetch|gl1)"),
    ("control", r"s_(wait|branch|cbranch|endpgm|barrier|nop|sleep|set|icache|clause|delay|code_end|version|wakeup"
     r"|round_mode|denorm_mode|getreg|swappc|getpc|call|subvector|inst_pref|incperf|decperf|singleuse)"),
    ("scalar arithmetic", r"s_|v_s_"),
    ("LDS", r"ds_"),
    ("memory", r"global_|flat_|scratch_|buffer_"),
)  # fmt: skip
LEFT_OUT = 4  # the first classes


def read_names() -> list[str]:
    """Return all names in the table of the assembler."""
    data = LIBRARY.read_bytes()
    at = data.index(_SAMPLE)
    first, last = data.rindex(b"\0", 0, at), data.index(b"\0", at)
    return sorted({found.decode() for found in re.findall(rb"[a-z][a-z0-9_]{2,60}", data[first:last])})


def list_gpu_names(gpu: str, names: list[str]) -> list[str]:
    """Return the names that a GPU has: the assembler then only misses operands."""
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={gpu}", "-filetype=null"]
    errors = subprocess.run(command, input="\n".join(names), text=True, capture_output=True, check=False).stderr
    first: dict[int, str] = {}
    for line, message in _ERROR.findall(errors):
        first.setdefault(int(line), message)
    return [name for number, name in enumerate(names, 1) if not _UNKNOWN.search(first.get(number, ""))]


@cache
def classify(name: str) -> str:
    return next(label for label, start in CLASSES if re.match(start, name))


def _registers(kind: str, first: int, counts: tuple[int, ...]) -> list[str]:
    return [f"{kind}{first}" if count == 1 else f"{kind}[{first}:{first + count - 1}]" for count in counts]


def list_operands(name: str, gpu: str) -> Iterator[str]:
    """List operands to try, the most common first."""
    mask = "vcc" if gpu.startswith("gfx9") else "vcc_lo"
    if name.startswith("v_dual"):
        yield from (
            f"{rest} :: v_dual_mov_b32 v1, v4"
            for rest in ("v0, v2, v3", "v0, v2", "v0, v2, v3, 0x1234", "v0, v2, 0x1234, v3")
        )
        return
    if name in WIDE:
        counts = (WIDE[name].registers, *(source.count_registers(WIDE[name].count) for source in WIDE[name].sources))
        yield ", ".join(_registers("v", 64 * k, (count,))[0] for k, count in enumerate(counts))
    elif name.startswith("v_") and not name.startswith("v_s_"):
        yield from _list_vector_operands(mask)
    elif name.startswith("ds_"):
        yield from _list_lds_operands()
    elif name.startswith(("s_", "v_s_")):
        yield from _list_scalar_operands()
    else:
        yield from _list_memory_operands(name)


def _list_vector_operands(mask: str) -> Iterator[str]:
    targets = [*_registers("v", 0, (1, 2, 4)), mask, "s0", "s[0:1]"]
    sources = [_registers("v", first, (1, 2)) for first in (8, 10, 12)]
    for count in (1, 2, 3):
        for target, *rest in product(targets, *sources[:count]):
            yield ", ".join((target, *rest))
    for target, *rest in product(targets[:2], *sources):
        yield ", ".join((target, mask, *rest))
        yield ", ".join((target, mask, *rest[:2]))
        yield ", ".join((target, *rest[:2], mask))
        yield ", ".join((target, mask, *rest[:2], mask))
        yield ", ".join((target, *rest)) + " bitop3:0x40"
    yield from (
        "",
        "v0, v8, v10, 0x1234",
        "v0, v8, 0x1234, v10",
        "s0, v8, s2",
        "v0, s8, s2",
        "v0, v8, s2, s3",
        "v8, v10",
    )
    yield from ("a0, v8", "v0, a8", "a0, a8")


def _list_lds_operands() -> Iterator[str]:
    for count in (1, 2, 3, 4):
        wide = _registers("v", 8, (count,))[0]
        again = _registers("v", 16, (count,))[0]
        target = _registers("v", 0, (count,))[0]
        double = _registers("v", 24, (2 * count,))[0]
        yield from (f"{target}, v4", f"v4, {wide}", f"{target}, v4, {wide}", f"v4, {wide}, {again}")
        yield from (f"{target}, v4, {wide}, {again}", f"{double}, v4", f"{target}", f"v4, {wide}, {again} offset1:1")
        yield from (f"{double}, v4 offset1:1", f"{double}, v4, {wide}, {again} offset1:1", f"{target}, v4 offset:16")
    yield ""


def _list_scalar_operands() -> Iterator[str]:
    sizes = _registers("s", 16, (1, 2))
    for count in (1, 2, 3):
        for parts in product(*(_registers("s", 16 + 4 * k, (1, 2)) for k in range(count))):
            yield ", ".join(parts)
    yield from (f"{size}, 0x12" for size in sizes)
    yield from (
        "",
        "0",
        "0x1",
        "s16, s20, s24, 0x1234",
        "s16, s20, 0x1234, s24",
        "vmcnt(0)",
        "null, 0x0",
        "s16, s20, 0x1",
    )
    yield from ("s16, hwreg(HW_REG_MODE, 0, 4)", "hwreg(HW_REG_MODE, 4, 4), s16", "hwreg(HW_REG_MODE, 4, 4), 0x3")
    yield from (
        "s16, gpr_idx(DST)",
        "gpr_idx(DST)",
        "-1",
        "s[16:17], 0x40",
        "sendmsg(MSG_DEALLOC_VGPRS)",
        "instid0(VALU_DEP_1)",
    )
    for count in (1, 2, 3, 4, 8, 16):
        data = _registers("s", 32, (count,))[0]
        yield from (f"{data}, s[4:5], 0x0", f"{data}, s[4:7], 0x0", f"{data}, s[4:5], 0x0 glc")


def _list_memory_operands(name: str) -> Iterator[str]:
    old = name.startswith("global") and "_lds_" in name
    for count in (1, 2, 3, 4):
        data, target = _registers("v", 8, (count,))[0], _registers("v", 0, (count,))[0]
        if name.startswith("buffer"):
            yield from (
                f"{data}, off, s[4:7], 0",
                "off, s[4:7], 0 lds",
                f"{data}, off, s[4:7], 0 sc0",
                f"{data}, off, s[4:7], 0 glc",
            )
            yield from (
                f"{data}, off, s[4:7], null",
                f"{data}, off, s[4:7], null th:TH_ATOMIC_RETURN",
                "off, s[4:7], 0",
            )
        elif name.startswith("scratch"):
            yield from (f"{data}, v4, off", f"v4, {data}, off", f"{data}, off, off", f"off, {data}, off", "v4, off")
        else:
            end = "" if name.startswith("flat") else ", off"
            yield from (f"{data}, v[4:5]{end}", f"v[4:5], {data}{end}", f"{target}, v[4:5], {data}{end} sc0")
            yield from (f"{target}, v[4:5], {data}{end} glc", f"{target}, v[4:5], {data}{end} th:TH_ATOMIC_RETURN")
            if old:
                yield f"v[4:5]{end}"
    yield from ("", "v0, v[4:5], off", "v[4:5], off", "s[4:5], 0x0", "v0, s[4:5]")
    yield from ("v[8:39], v[4:5], off", "v[4:5], v[8:39], off", "v[8:39], off, off", "off, v[8:39], off")


@cache
def _make_code(gpu: str) -> LoadedCode:
    arch = tilewright.arch.load(gpu)
    return LoadedCode(arch, "kernel", arch.wave_size, 256 if gpu.startswith("gfx9") else 0, 0)


def support(name: str, gpu: str) -> str:
    """Return "native", "numpy" or "" for a name that is not supported."""
    code = _make_code(gpu)
    if name.startswith(("v_mfma", "v_wmma", "v_smfmac", "v_swmmac")):
        return "native" if find_any_shape(name, code.arch.family) else ""
    for operands in list_operands(name, gpu):
        line = DisassembledLine(0, f"{name} {operands}".strip(), (0, 0))
        listing = functools.partial(make_listing, [line])
        program = Program(listing, code, 512 if gpu.startswith("gfx9") else 256)
        _, _, step = program.translate_at(0)
        if not isinstance(step, FaultStep):
            return "numpy" if lower_line_alone(program, code, 0) is None else "native"
    return ""


def find_support(gpu: str, names: list[str]) -> dict[str, str]:
    """Return how each name that a GPU has is supported."""
    return {name: support(name, gpu) for name in list_gpu_names(gpu, names)}


def count_support(found: dict[str, str]) -> list[str]:
    """Return the column of a GPU: supported and all names of each class, then of all classes but the first four."""
    labels = [label for label, _ in CLASSES]
    cells = []
    for group in (*([label] for label in labels), labels[LEFT_OUT:]):
        kinds = [kind for name, kind in found.items() if classify(name) in group]
        cells.append(f"{sum(map(bool, kinds))} / {len(kinds)}" if kinds else "–")
    return cells


def read_column(text: str, gpu: str) -> list[str]:
    """Return the column of a GPU in the page."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [row[rows[0].index(gpu)] for row in rows[2:]]


def make_tables() -> str:
    """Return the tables as Markdown."""
    names = read_names()
    found = {gpu: find_support(gpu, names) for gpu in EMULATED}
    missing = []
    for number, (label, _) in enumerate(CLASSES):
        lacking = {
            name for here in found.values() for name, kind in here.items() if not kind and classify(name) == label
        }
        if lacking and number >= LEFT_OUT:
            listed = ", ".join(f"`{name}`" for name in sorted(lacking))
            missing.append(wrap_paragraph(f"**{label}** ({len(lacking)}): {listed}"))
    numpy_only = sorted({name for gpu in EMULATED for name, kind in found[gpu].items() if kind == "numpy"})
    labels = (*(label for label, _ in CLASSES), "**all but the first four**")
    columns = [count_support(found[gpu]) for gpu in EMULATED]
    table = format_table(("class", *EMULATED), list(zip(labels, *columns, strict=True)))
    parts = [table, "Not supported, on at least one GPU:", *missing]
    listed = ", ".join(f"`{name}`" for name in numpy_only)
    parts.append(wrap_paragraph(f"Only on the NumPy engine: {listed or 'none'}"))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the tables are stale")
    parser.add_argument("--gpu", choices=EMULATED, help="with --check: compare the numbers of this GPU only")
    given = parser.parse_args()
    if given.gpu and not given.check:
        parser.error("--gpu needs --check: the page is written for all GPUs")
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(START)
    tables, _, after = rest.partition(END)
    if given.gpu:
        if read_column(tables, given.gpu) == count_support(find_support(given.gpu, read_names())):
            return 0
        print(f"{PAGE} is stale for {given.gpu}: run tools/instruction_coverage.py", file=sys.stderr)
        return 1
    new = f"{before}{START}\n{make_tables()}\n{END}{after}"
    if new == text:
        return 0
    if given.check:
        print(f"{PAGE} is stale: run tools/instruction_coverage.py", file=sys.stderr)
        return 1
    PAGE.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
