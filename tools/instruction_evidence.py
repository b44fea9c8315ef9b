"""List with which independent sources each instruction of our kernels was compared, and those with fewer than two.

    python tools/instruction_evidence.py --kernels ~/.cache/tilewright-tests/kernels --hardware tinygrad/test/amd/hw \\
        --others aiter_meta/hsa/gfx942/bf16gemm --triton ~/.cache/tilewright-tests/triton

Instructions are counted by gfx9's names, if later GPUs only renamed them. A source covers the instructions of its code
objects, or those that its files name; which of them ran is not told apart. Only `--kernels` is required: a source
without a folder covers nothing. The table goes to docs/evidence.md by hand, because most folders are not part of this
repository.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tilewright.arch.load import list_arch_files, load_file
from tilewright.building.toolchain import Toolchain, find_toolchain
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.isa.names import normalize_name
from tilewright.emulator.matrix.shapes import list_shapes

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "emulator"
LEVELS = ROOT / "tests" / "programs" / "levels.hip"
CODE_OBJECTS = (".co", ".hsaco")
ENOUGH = 2
_WIDTH = 118
_NAME = re.compile(r"\b((?:v|s|ds|global|flat|scratch|buffer)_[a-z0-9_]*[a-z0-9])\b")
_ENCODING = re.compile(r"_(e64_dpp|e32|e64|dpp|sdwa)$")
# Instructions without a result: waits, hints, the ends of programs, and zeros between functions (v_illegal). There is
# nothing to compare.
_WITHOUT_RESULT = re.compile(
    r"s_(nop|wait\w*|sleep|setprio|code_end|endpgm|delay_alu|clause|set_inst_prefetch_distance|dcache_\w+|icache_inv|"
    r"sendmsg|barrier\w*|branch|cbranch_\w+|sethalt|trap|set_gpr_idx_\w+|setvskip|version|getpc_b64|setpc_b64|swappc_b64)|"
    r"v_nop|v_illegal|buffer_(gl\w+|inv\w*|wb\w*)|global_(inv|wb|wbinv)"
)


def read_code_objects(paths: Iterable[Path], objdump: Path) -> Counter[str]:
    """Return the instructions of code objects, each with the number of code objects that have it."""
    found: Counter[str] = Counter()
    for path in paths:
        done = subprocess.run(
            [str(objdump), "--disassemble", "--no-show-raw-insn", "--no-leading-addr", str(path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        # Dual instructions are written "a :: b".
        lines = (half for line in done.stdout.splitlines() if line.startswith("\t") for half in line.split(" :: "))
        found.update({normalize(line.split()[0]) for line in lines if _NAME.match(line.strip())})
    return found


def read_names(paths: Iterable[Path]) -> set[str]:
    """Return the names of instructions in texts."""
    return {normalize(name) for path in paths for name in _NAME.findall(path.read_text("utf-8"))}


def normalize(name: str) -> str:
    """Return the name in the tables, without its encoding; halves of dual instructions as the instructions alone."""
    return normalize_name(_ENCODING.sub("", name).replace("v_dual_", "v_"))


def list_computed() -> set[str]:
    """Return the instructions that tests name, and those of the tables that these tests use."""
    sys.path.insert(0, str(TESTS))
    import isa_oracles  # type: ignore[import-not-found]

    named = read_names([*sorted(TESTS.glob("test_*.py")), TESTS / "isa_oracles.py"])
    return named | {normalize(f"{kind}_{name}") for kind in ("v_cmp", "v_cmpx") for name in isa_oracles.COMPARE}


def list_matrix_instructions() -> set[str]:
    """Return all matrix instructions: tests/emulator/test_matrix_layouts.py compares each with AMD's layouts."""
    return {name for path in list_arch_files().values() for name in list_shapes(load_file(path).family)}


def compile_expressions(toolchain: Toolchain, folder: Path) -> list[Path]:
    """Compile what tests compare with the host: C expressions, and the compiler's own functions for GPUs."""
    sys.path.insert(0, str(TESTS))
    import builtin_expressions  # type: ignore[import-not-found]
    import differential_expressions  # type: ignore[import-not-found]

    made = []
    for gpu in EMULATED:
        sources = (differential_expressions.make_gpu_source(), builtin_expressions.make_gpu_source(gpu))
        for number, text in enumerate(sources):
            source, target = folder / f"{gpu}{number}.c", folder / f"{gpu}{number}.co"
            source.write_text(text)
            flags = ["-std=gnu11", "-O2", "-ffp-contract=off", "-fwrapv", "-nogpulib", "-ffreestanding"]
            flags += ["-target", "amdgcn-amd-amdhsa", f"-mcpu={gpu}"]
            subprocess.run([str(toolchain.cxx), "-x", "c", *flags, str(source), "-o", str(target)], check=True)
            made.append(target)
    return made


def compile_levels(toolchain: Toolchain, folder: Path) -> list[Path]:
    """Compile the program that tests compare with the host, at the levels of optimization of these tests."""
    from tilewright.arch import load
    from tilewright.building.compile import compile_device

    made = []
    for gpu in EMULATED:
        for level in ("-O0", "-O1", "-O3"):
            made.append(folder / f"levels{gpu}{level}.co")
            flags = (level, "-ffp-contract=off")
            built = compile_device(LEVELS.read_text(), load(gpu), toolchain, made[-1], extra_flags=flags)
            if not built.ok:
                raise SystemExit(built.log)
    return made


def format_result(used: Mapping[str, int], sources: Mapping[str, set[str]]) -> str:
    """Return the tables: how many instructions each source covers, and the instructions with few sources."""
    names = sorted(name for name in used if not _WITHOUT_RESULT.fullmatch(name))
    covered = {name: [label for label, known in sources.items() if name in known] for name in names}
    lines = ["| source | instructions of our kernels that it covers |", "| --- | --- |"]
    lines += [f"| {label} | {sum(label in each for each in covered.values())} |" for label in sources]
    few = {name: labels for name, labels in covered.items() if len(labels) < ENOUGH}
    none = [name for name, labels in few.items() if not labels]
    counts = f"{len(names) - len(few)} with two sources or more, {len(few) - len(none)} with one, {len(none)} with none"
    lines += ["", f"{len(names)} instructions: {counts}.", ""]
    for label in (*sources, ""):
        one = [f"`{name}`" for name, labels in few.items() if labels == ([label] if label else [])]
        if one:
            lines += [*textwrap.wrap(f"**{label or 'none'}** ({len(one)}): {', '.join(one)}", _WIDTH), ""]
    return "\n".join(lines)


def list_code_objects(folder: Path | None, every: int = 1) -> list[Path]:
    """List the code objects below a folder, or each n-th of them."""
    if folder is None:
        return []
    return sorted(path for path in folder.rglob("*") if path.suffix in CODE_OBJECTS)[::every]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=Path, required=True, help="a store with our kernels")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="read each N-th kernel of the store")
    parser.add_argument("--hardware", type=Path, help="tests whose expected values were compared with a GPU")
    parser.add_argument("--others", type=Path, help="hand-written code objects that run right")
    parser.add_argument("--triton", type=Path, help="Triton's cache of the kernels in tests/triton_gpu")
    given = parser.parse_args()
    toolchain = find_toolchain(with_ck=False)
    if toolchain.objdump is None:
        raise SystemExit("a disassembler is needed: the toolchain from PyPI has none")
    kernels = list_code_objects(given.kernels, given.every)
    objdump = toolchain.objdump
    used = read_code_objects(kernels, objdump)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {
            "hardware": read_names(sorted(given.hardware.glob("*.py")) if given.hardware else ()),
            "x86 code of the same C": set(read_code_objects(compile_expressions(toolchain, folder), objdump)),
            "-O0, -O1 and -O3 of one source": set(read_code_objects(compile_levels(toolchain, folder), objdump)),
            "tests with computed values": list_computed(),
            "AMD's matrix layouts": list_matrix_instructions(),
            "Triton's kernels and torch": set(read_code_objects(list_code_objects(given.triton), objdump)),
            "hand-written kernels": set(read_code_objects(list_code_objects(given.others), objdump)),
        }
    print(f"{len(kernels)} code objects\n\n{format_result(used, sources)}")


if __name__ == "__main__":
    main()
