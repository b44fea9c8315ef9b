"""Read code objects with LLVM's tools: registers, memory and code of each kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from tilewright.arch.occupancy import count_architectural_vgprs
from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, ToolchainError
from tilewright.building.disassembled import DisassembledInstruction, DisassembledLine, FunctionSymbol
from tilewright.building.listing import find_metadata, list_instructions, read_elf_functions, read_listing
from tilewright.building.process import read_tool_output
from tilewright.building.toolchain import Toolchain

Node: TypeAlias = "str | list[Node] | dict[str, Node]"
Lines: TypeAlias = Sequence[tuple[int, str]]  # indentation and text

_KEY = re.compile(r"(?P<key>[\w.$]+):(?: +(?P<value>\S.*))?")
# Kernels, their arguments and the fields of these: five levels. Code object metadata never has more.
_MAX_DEPTH = 8


def parse_metadata(text: str) -> dict[str, Node]:
    """Parse the single metadata document in the output of `llvm-readelf --notes`."""
    lines = _find_document(text)
    node, end = _parse_block(lines, 0, 0)
    if end != len(lines):
        _reject_line("a line that is indented less than the document", lines[end][1])
    if not isinstance(node, dict):
        _reject_line("a document that is not a table", lines[0][1])
    return node


def _find_document(text: str) -> Lines:
    lines = text.split("\n")
    starts = [n for n, line in enumerate(lines) if line.strip() == "---"]
    if len(starts) != 1:
        raise ToolchainError(
            f"the code object's notes hold {len(starts)} metadata documents, expected 1. "
            "Only code objects for AMD GPUs (amdhsa) have one."
        )
    body: list[tuple[int, str]] = []
    for line in lines[starts[0] + 1 :]:
        if line.rstrip() == "...":
            if not body:
                _reject_line("an empty document", "...")
            return body
        if line.strip():
            body.append((len(line) - len(line.lstrip(" ")), line.strip()))
    return _reject_line("a document without its end mark", lines[-1])


def _parse_block(lines: Lines, start: int, depth: int) -> tuple[Node, int]:
    """Parse the table or list whose first line is `start`; also return the line after it."""
    if depth > _MAX_DEPTH:
        _reject_line(f"more than {_MAX_DEPTH} levels", lines[start][1])
    if lines[start][1].startswith("- ") or lines[start][1] == "-":
        return _parse_list(lines, start, depth)
    return _parse_table(lines, start, depth)


def _parse_list(lines: Lines, start: int, depth: int) -> tuple[Node, int]:
    indent = lines[start][0]
    items: list[Node] = []
    at = start
    while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith("- "):
        content = lines[at][1][2:].strip()
        if _KEY.fullmatch(content):
            end = _find_item_end(lines, at)
            inner = [(indent + 2, content), *lines[at + 1 : end]]
            item, used = _parse_block(inner, 0, depth + 1)
            if used != len(inner):
                _reject_line("a list item that does not line up", inner[used][1])
            at = end
        else:
            item, at = _parse_scalar(content), at + 1
        items.append(item)
    if at == start:
        _reject_line("an empty list item", lines[start][1])
    return items, at


def _find_item_end(lines: Lines, at: int) -> int:
    indent = lines[at][0]
    end = at + 1
    while end < len(lines) and lines[end][0] > indent:
        end += 1
    return end


def _parse_table(lines: Lines, start: int, depth: int) -> tuple[Node, int]:
    indent = lines[start][0]
    table: dict[str, Node] = {}
    at = start
    while at < len(lines) and lines[at][0] == indent:
        match = _KEY.fullmatch(lines[at][1])
        if match is None:
            _reject_line("a line that is not 'key: value'", lines[at][1])
        if match["key"] in table:
            _reject_line("a key twice", lines[at][1])
        if match["value"] is not None:
            table[match["key"]], at = _parse_scalar(match["value"]), at + 1
        elif at + 1 < len(lines) and lines[at + 1][0] > indent:
            table[match["key"]], at = _parse_block(lines, at + 1, depth + 1)
        else:
            _reject_line("a key without a value", lines[at][1])
    return table, at


def _parse_scalar(text: str) -> Node:
    if text == "[]":
        return []
    if text == "{}":
        return {}
    if text.startswith("'"):
        if not re.fullmatch(r"'(?:[^']|'')*'", text):
            _reject_line("a text without its closing quote", text)
        return text[1:-1].replace("''", "'")
    if text[:1] in '"[{|>&*!%@`':
        _reject_line("a value of a form that LLVM does not write here", text)
    return text


def _reject_line(what: str, line: str) -> NoReturn:
    raise ToolchainError(
        f"the metadata that llvm-readelf printed has {what}: {line[:200]!r}. "
        "This layout is unknown; use the llvm-readelf of the compiler that created the code object."
    )


# Num: Value Size Type Bind Vis Ndx Name, printed by `llvm-readelf --symbols`.
_SYMBOL = re.compile(
    r" *\d+: (?P<value>[0-9a-f]{16}) +(?P<size>\d+|0x[0-9a-f]+) (?P<type>\w+) +\w+ +\w+ +"
    r"(?P<section>\w+)(?: (?P<name>\S.*)?)?"
)
# "<address> <<symbol>>:" and "\t<text> // <address>: <words>", printed by `llvm-objdump --disassemble`.
_LABEL = re.compile(r"(?P<address>[0-9a-f]{16}) <(?P<name>.+)>:")
_LINE = re.compile(r"\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]{8,16}): (?P<words>[0-9A-F]{8}\b(?: [0-9A-F]{8}\b)*).*")


# CK Tile launches its kernels through this template (ck_tile/host/kernel_launch.hpp).
_ENTRY = "kentry"
# Prefix of symbols in CK Tile's namespace. Its headers contain kernels of their own, such as flush_cache.
_OF_CK = "_ZN7ck_tile"


@dataclass(frozen=True, slots=True)
class KernelResources:
    """The resources of one kernel according to its code object's metadata.

    LLVM's `.vgpr_count` (AMDGPUBaseInfo.cpp, getTotalNumVGPRs) is the sum of VGPRs and AGPRs where
    they share one file (gfx90a and later CDNA; with AGPRs in use the VGPRs are first rounded up to
    a multiple of 4), and the larger of the two where each has its own file (gfx908). `vgprs` is
    the VGPRs alone in the first case, rounded in that way, and the larger of the two in the second.
    """

    name: str
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int  # per thread
    lds_bytes: int  # per work-group, known at compile time
    kernarg_bytes: int
    wave_size: int
    max_block_threads: int


def read_resources(path: Path, arch: Arch, toolchain: Toolchain) -> tuple[KernelResources, ...]:
    """Read the resources of every kernel in a code object."""
    return read_resources_with(toolchain.readelf, path, arch)


def read_resources_with(readelf: Path | None, path: Path, arch: Arch) -> tuple[KernelResources, ...]:
    """Like `read_resources`, with LLVM's reader of code objects; None if the code object has a listing."""
    if readelf is None:
        return parse_notes(find_metadata(read_listing(path)), arch)
    return parse_notes(read_tool_output([str(readelf), "--notes", str(path)]), arch)


def select_op_kernels(listed: Sequence[KernelResources]) -> tuple[KernelResources, ...]:
    """Select the kernels of a code object that compute the op, in order.

    They are launched through CK Tile's entry point or use LDS. If there are none, the op does not use CK Tile, and all
    kernels outside its namespace are selected. Other kernels clear or convert data, or come with the headers.
    """
    found = tuple(each for each in listed if _ENTRY in each.name or each.lds_bytes > 0)
    return found or tuple(each for each in listed if not each.name.startswith(_OF_CK))


def read_functions(path: Path, toolchain: Toolchain) -> Mapping[str, FunctionSymbol]:
    """Read kernels and other functions, by name, with their code sizes."""
    if toolchain.readelf is None:
        return read_elf_functions(path.read_bytes())
    return parse_symbols(read_tool_output([str(toolchain.readelf), "--symbols", "--wide", str(path)]))


def disassemble(path: Path, arch: Arch, toolchain: Toolchain) -> Mapping[str, tuple[DisassembledInstruction, ...]]:
    """Disassemble every function, without the padding between functions."""
    functions = read_functions(path, toolchain)
    if toolchain.objdump is None:
        return _group_lines(read_disassembly(path, arch, None), functions)
    return parse_disassembly(_run_objdump(path, arch, toolchain.objdump), functions)


def read_disassembly(path: Path, arch: Arch, objdump: Path | None) -> tuple[DisassembledLine, ...]:
    """Read every instruction of a code object in address order, including padding.

    Without a disassembler, this is the listing that the toolchain from PyPI added to the code object.
    """
    if objdump is None:
        return list_instructions(path.read_bytes(), read_listing(path))
    return parse_lines(_run_objdump(path, arch, objdump))


def _group_lines(
    lines: Sequence[DisassembledLine], functions: Mapping[str, FunctionSymbol]
) -> Mapping[str, tuple[DisassembledInstruction, ...]]:
    """Group the lines of a listing by function."""
    return {
        name: tuple(
            DisassembledInstruction(line.address - function.address, line.text.split()[0], line.text)
            for line in lines
            if function.address <= line.address < function.address + function.size
        )
        for name, function in functions.items()
    }


def _run_objdump(path: Path, arch: Arch, objdump: Path) -> str:
    # On gfx12, LLVM 22 by default does not print which half of a register a 16-bit instruction uses: its own compiler
    # uses only lower halves there. Newer compilers, such as Triton's, use both.
    halves = ["--mattr=+real-true16"] if arch.name.startswith("gfx12") else []
    return read_tool_output([str(objdump), "--disassemble", f"--mcpu={arch.name}", *halves, str(path)], timeout_s=300)


def parse_notes(text: str, arch: Arch) -> tuple[KernelResources, ...]:
    """Parse the kernels in the output of `llvm-readelf --notes`, in their order."""
    metadata = parse_metadata(text)
    target = metadata.get("amdhsa.target")
    made_for = target.rpartition("--")[2].split(":")[0] if isinstance(target, str) else target
    if made_for != arch.name:
        raise ToolchainError(f"the code object is for {made_for}, not for {arch.name}")
    kernels = metadata.get("amdhsa.kernels")
    if not isinstance(kernels, list):
        raise ToolchainError("the code object's metadata has no list 'amdhsa.kernels'")
    return tuple(_parse_resources(kernel, arch) for kernel in kernels)


def _parse_resources(kernel: Node, arch: Arch) -> KernelResources:
    if not isinstance(kernel, dict) or not isinstance(name := kernel.get(".name"), str):
        raise ToolchainError("the code object's metadata has a kernel without '.name'")

    def read_number(key: str) -> int:
        value = kernel.get(key)
        if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,10}", value):
            raise ToolchainError(f"the metadata of kernel {name} has {key} = {value!r}, expected an integer")
        return int(value)

    # LLVM writes .agpr_count only for GPUs that have such registers.
    agprs = read_number(".agpr_count") if arch.registers.agprs != "none" else 0
    try:
        vgprs = count_architectural_vgprs(arch, read_number(".vgpr_count"), agprs)
    except InvalidValueError as error:
        raise ToolchainError(f"the metadata of kernel {name} contradicts itself: {error}") from error
    return KernelResources(
        name=name,
        vgprs=vgprs,
        agprs=agprs,
        sgprs=read_number(".sgpr_count"),
        vgpr_spills=read_number(".vgpr_spill_count"),
        sgpr_spills=read_number(".sgpr_spill_count"),
        scratch_bytes=read_number(".private_segment_fixed_size"),
        lds_bytes=read_number(".group_segment_fixed_size"),
        kernarg_bytes=read_number(".kernarg_segment_size"),
        wave_size=read_number(".wavefront_size"),
        max_block_threads=read_number(".max_flat_workgroup_size"),
    )


def parse_symbols(text: str) -> Mapping[str, FunctionSymbol]:
    """Parse the functions in the output of `llvm-readelf --symbols`."""
    functions: dict[str, FunctionSymbol] = {}
    for line in text.splitlines():
        if not re.match(r" *\d+: ", line):
            continue  # a heading
        match = _SYMBOL.fullmatch(line)
        if match is None:
            raise ToolchainError(f"llvm-readelf printed a symbol in an unknown layout: {line!r}")
        if match["type"] == "FUNC" and match["section"] != "UND" and match["name"]:
            size = int(match["size"], 16 if match["size"].startswith("0x") else 10)
            functions[match["name"]] = FunctionSymbol(match["name"], int(match["value"], 16), size)
    return functions


def parse_disassembly(
    text: str, functions: Mapping[str, FunctionSymbol]
) -> Mapping[str, tuple[DisassembledInstruction, ...]]:
    """Parse the functions in the output of `llvm-objdump --disassemble`, each cut to its size."""
    code: dict[str, list[DisassembledInstruction]] = {}
    current: FunctionSymbol | None = None
    for kind, match in _match_lines(text):
        if kind == "label":
            # A label that is not a function is a location inside the current one.
            if match["name"] in functions:
                current = functions[match["name"]]
                code[current.name] = []
            continue
        if current is None:
            raise ToolchainError(f"llvm-objdump printed code before any function: {match[0]!r}")
        offset = int(match["address"], 16) - current.address
        if offset < current.size:
            code[current.name].append(DisassembledInstruction(offset, match["text"].split()[0], match["text"]))
    return {name: tuple(instructions) for name, instructions in code.items()}


def parse_lines(text: str) -> tuple[DisassembledLine, ...]:
    """Parse the instructions of all functions in the output of `llvm-objdump --disassemble`."""
    return tuple(
        DisassembledLine(
            int(match["address"], 16), match["text"], tuple(int(word, 16) for word in match["words"].split())
        )
        for kind, match in _match_lines(text)
        if kind == "instruction"
    )


def _match_lines(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for line in text.splitlines():
        if match := _LABEL.fullmatch(line):
            yield "label", match
        elif match := _LINE.fullmatch(line):
            yield "instruction", match
        elif line.startswith("\t") and line.strip() != "...":  # "..." stands for skipped zeros
            raise ToolchainError(f"llvm-objdump printed a line in an unknown layout: {line!r}")
