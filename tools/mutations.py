"""Would a wrong kernel be noticed? Change one instruction of a GEMM kernel at a time and look at what comes out.

Two questions. Of random changes of one instruction, how many give another result or a fault? And of barriers and
waits that are taken away, how many does strict mode notice? Only instructions that the launch reaches are changed.

    python tools/mutations.py --count 120 --out docs/mutations.md
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.arch.number_formats import numpy_dtype
from tilewright.building.code_object import Line
from tilewright.building.store.artifact import Artifact
from tilewright.building.unit import LIBRARY
from tilewright.dispatch.guarded import Guarded
from tilewright.dispatch.launch import Call, functions_of
from tilewright.dispatch.plan import execution_of
from tilewright.emulator import waits
from tilewright.emulator.device import EmulatedDevice, Kernel
from tilewright.emulator.disassembly import parse
from tilewright.emulator.faults import Fault
from tilewright.emulator.group import Group, Pending, Step
from tilewright.emulator.launch import Launch, Mode
from tilewright.ops import op_named
from tilewright.ops.kernel import Kernel as OpKernel
from tilewright.runtime.buffers import Buffer

CONFIG: dict[str, Any] = {
    "variant": "standard",
    "dtype": "fp16",
    "layout": "rcr",
    "block": (64, 64, 32),
    "waves": (2, 2, 1),
    "mma": (16, 16, 16),
    "pipeline": "compv3",
    "scheduler": "intrawave",
    "epilogue": "cshuffle",
}
# Five steps along K and 9 × 11 blocks, so that loops, tails and the numbers of work-groups matter.
PROBLEM: dict[str, Any] = {"m": 576, "n": 704, "k": 160, "dtype": "fp16", "layout": "rcr"}
SWAPS = (
    ("v_add_u32", "v_sub_u32"), ("v_lshlrev_b32", "v_lshrrev_b32"), ("v_and_b32", "v_or_b32"),
    ("v_or_b32", "v_xor_b32"), ("v_add_f32", "v_mul_f32"), ("v_lshl_or_b32", "v_lshl_add_u32"),
    ("v_and_or_b32", "v_or3_b32"), ("v_mul_lo_u32", "v_mul_hi_u32"), ("s_add_i32", "s_sub_i32"),
    ("s_lshl_b32", "s_lshr_b32"), ("s_and_b32", "s_or_b32"), ("s_mul_i32", "s_add_i32"),
    ("s_cmp_lt_i32", "s_cmp_ge_i32"), ("s_cmp_lg_u32", "s_cmp_eq_u32"), ("s_cbranch_scc0", "s_cbranch_scc1"),
    ("s_cbranch_vccz", "s_cbranch_vccnz"), ("v_cvt_f16_f32", "v_mov_b32"), ("s_min_i32", "s_max_i32"),
)  # fmt: skip
# A changed loop may never end; the kernel itself takes a few thousand instructions per wave.
LIMIT = 1 << 21
NOTHING = "s_nop 0"
# Waits for memory; others, such as s_waitcnt_depctr, are for hazards that are not modelled.
WAIT = re.compile(r"s_waitcnt |s_waitcnt_vscnt|s_wait_(load|store|ds|km)cnt")
IDLE = "nothing to wait for"
COVERED = "the next one waits for it, too"
# LLVM counts on it: SIMemoryLegalizer.cpp leaves out waits for the LDS, because it is in a total order for all waves.
LDS_READS = "LDS reads only: the LDS does what all waves ask in order"
HARMLESS = (IDLE, COVERED, LDS_READS)


@dataclass(frozen=True)
class Mutation:
    """A changed line of a kernel's code."""

    line: Line
    text: str

    def __str__(self) -> str:
        return f"{self.line.address:#x}: {self.line.text}  →  {self.text}"


@dataclass(frozen=True)
class Subject:
    """A kernel, one launch of it, and what that must give."""

    device: EmulatedDevice
    kernel: Kernel
    launch: Launch
    output: tuple[int, int]  # address and size
    expected: bytes
    buffers: tuple[Buffer, ...]  # what the launch's addresses point to
    engine: str = "numpy"

    def outcome(self, kernel: Kernel, mode: Mode) -> str:
        """same, wrong, or the name of the fault."""
        address, size = self.output
        self.device.memory.write(address, b"\xff" * size)
        try:
            self.device.launch(kernel, self.launch, mode, limit=LIMIT, engine=self.engine)
        except Fault as fault:
            return fault.name
        return "same" if self.device.memory.read(address, size) == self.expected else "wrong"

    def on(self, engine: str) -> Subject:
        """The same with another engine, and with what the kernel gives there: sums differ in their last bits."""
        self.device.launch(self.kernel, self.launch, engine=engine)
        return dataclasses.replace(self, engine=engine, expected=self.device.memory.read(*self.output))

    def mutated(self, mutation: Mutation) -> Kernel:
        """The kernel with one line changed."""
        program = self.kernel.program.changed(mutation.line.address, mutation.text)
        return dataclasses.replace(self.kernel, program=program)

    def both(self, mutation: Mutation) -> tuple[str, str]:
        """What fast and strict mode make of a change; of what strict mode does not notice, why it is harmless."""
        changed = self.mutated(mutation)
        fast, strict = self.outcome(changed, Mode.FAST), self.outcome(changed, Mode.STRICT)
        if strict == "same" and WAIT.match(mutation.line.text):
            strict = COVERED if self.covered(mutation.line) else self.harmless(mutation.line) or "same"
        return fast, strict

    def covered(self, line: Line) -> bool:
        """Whether a wait right behind, with only waits between, asks for as much."""
        lines, code = self.kernel.program.lines, self.kernel.code
        wait, at = waits.translate(parse(line), code), line.address + line.size
        while wait is not None and (behind := waits.translate(parse(lines[at]), code)) is not None:
            if all(behind.counts.get(counter, count + 1) <= count for counter, count in wait.counts.items()):
                return True
            at += lines[at].size
        return False

    def harmless(self, line: Line) -> str:
        """Why nobody needs a wait whose lack changes no result; empty when that is not known."""
        program = self.kernel.program.changed(line.address, line.text)
        delivered: list[Pending] = []
        reached = []

        def watched(step: Step) -> Step:
            def run(group: Group) -> None:
                before = [effect for queue in group.pending.values() for effect in queue]
                step(group)
                left = {id(effect) for queue in group.pending.values() for effect in queue}
                delivered.extend(effect for effect in before if id(effect) not in left)
                reached.append(group.waves)

            return run

        program.watch(line.address, watched)
        # Only NumPy's engine has steps that one can watch.
        watching = self.on("numpy")
        assert watching.outcome(dataclasses.replace(self.kernel, program=program), Mode.STRICT) == "same"
        assert reached, f"{line.text} is not reached"
        if not delivered:
            return IDLE
        return LDS_READS if all(effect.lds_read for effect in delivered) else ""


@contextmanager
def captured() -> Iterator[list[tuple[EmulatedDevice, Kernel, Launch]]]:
    """The launches that reach emulated devices inside the `with` block."""
    seen: list[tuple[EmulatedDevice, Kernel, Launch]] = []
    plain = EmulatedDevice.launch

    def launch(device: EmulatedDevice, kernel: Kernel, launch: Launch, *rest: Any, **options: Any) -> Any:
        seen.append((device, kernel, launch))
        return plain(device, kernel, launch, *rest, **options)

    EmulatedDevice.launch = launch  # type: ignore[assignment, method-assign]
    try:
        yield seen
    finally:
        EmulatedDevice.launch = plain  # type: ignore[method-assign]


def launched(kernel: OpKernel, artifact: Artifact) -> Subject:
    """Launch a kernel once through its library, and keep the launch and its memory."""
    device = tw.Device(f"emulated:{kernel.arch}")
    execution = execution_of(kernel.op)
    problem = op_named(kernel.op).problem_type(**PROBLEM)
    inputs = execution.inputs(problem, 1, device.arch)
    placed = [Guarded(t, numpy_dtype(t.dtype, device.arch), inputs.get(t.name)) for t in execution.tensors(problem)]
    buffers = [device.allocate(each.nbytes, each.tensor.name) for each in placed]
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_from(each.memory)
    call = Call(device, kernel, functions_of(device, artifact.checked(LIBRARY), kernel), execution, problem)
    with captured() as seen, device.selected():
        call([buffer.address for buffer in buffers], None)
    ((emulated, loaded, launch),) = seen
    (out,) = [buffer for buffer, each in zip(buffers, placed, strict=True) if each.tensor.output]
    expected = emulated.memory.read(out.address, out.nbytes)
    found = Subject(emulated, loaded, launch, (out.address, out.nbytes), expected, tuple(buffers)).on("numpy")
    for mode in Mode:
        assert found.outcome(loaded, mode) == "same", f"the kernel itself must be right in mode {mode.value}"
    return found


def random_mutations(lines: Sequence[Line], count: int, seed: int) -> list[Mutation]:
    """Changes of instructions chosen at random, each another one."""
    rng = random.Random(seed)
    found: dict[str, Mutation] = {}
    while len(found) < count:
        line = rng.choice(lines)
        change = rng.choice((swapped, other_register, other_number, removed))
        text = change(line.text, rng)
        if text is not None and text != line.text:
            mutation = Mutation(line, text)
            found.setdefault(str(mutation), mutation)
    return list(found.values())


def swapped(text: str, _: random.Random) -> str | None:
    """Another operation on the same operands."""
    for one, other in SWAPS:
        for name, instead in ((one, other), (other, one)):
            if re.match(rf"{name}(?![a-z0-9])|{name}_e(32|64)\b", text):
                return text.replace(name, instead, 1)
    return None


def other_register(text: str, rng: random.Random) -> str | None:
    """A source register with a number one lower or higher. The first operand is mostly a destination."""
    name, _, operands = text.partition(" ")
    places = [m for m in re.finditer(r"\b([vs])(\d+)\b", operands) if m.start() > operands.find(",") >= 0]
    if not places or name.startswith(("s_waitcnt", "s_barrier")):
        return None
    place = rng.choice(places)
    number = max(int(place[2]) + rng.choice((-1, 1)), 0)
    return f"{name} {operands[: place.start()]}{place[1]}{number}{operands[place.end() :]}"


def other_number(text: str, rng: random.Random) -> str | None:
    """A constant or an offset that is a little off."""
    if text.startswith(("s_waitcnt", "s_nop", "s_cbranch", "s_branch", "s_barrier", "s_setprio", "v_mfma")):
        return None
    places = [*re.finditer(r"(?<=offset:)(\d+)\b", text), *re.finditer(r"(?<=, )(0x[0-9a-f]+|\d+)(?=,|$)", text)]
    if not places:
        return None
    place = rng.choice(places)
    step = 16 if "offset:" in text[: place.start()] else 1
    return f"{text[: place.start()]}{int(place[0], 0) + step}{text[place.end() :]}"


def removed(text: str, _: random.Random) -> str | None:
    """No instruction at all."""
    if text.startswith(("s_nop", "s_waitcnt", "s_barrier", "s_endpgm", "s_setprio")):
        return None  # the others are asked about by themselves
    return NOTHING


def synchronisation(lines: Sequence[Line]) -> list[Mutation]:
    """Every barrier and every wait taken away, one at a time; of a wait for two counters each by itself, too."""
    found = []
    for line in lines:
        if line.text.startswith("s_barrier"):
            found.append(Mutation(line, NOTHING))
        elif WAIT.match(line.text):
            parts = [part for part in re.findall(r"\w+cnt\(\d+\)", line.text) if "exp" not in part]
            found.append(Mutation(line, NOTHING))
            found += [Mutation(line, f"s_waitcnt {part}") for part in parts if len(parts) > 1]
    return found


def report(kernel: OpKernel, changes: Mapping[str, str], taken: Mapping[str, tuple[str, str]], seed: int) -> str:
    """The outcomes as a Markdown document."""
    counts = Counter(changes.values())
    caught = len(changes) - counts["same"]
    fast = sum(fast != "same" for fast, _ in taken.values())
    strict = sum(strict not in ("same", *HARMLESS) for _, strict in taken.values())
    idle = sum(strict in HARMLESS for _, strict in taken.values())
    lines = [
        "# Would a wrong kernel be noticed?",
        "",
        f"Written by `tools/mutations.py` (seed {seed}).",
        f"The problem is {PROBLEM['m']} × {PROBLEM['n']} × {PROBLEM['k']}, the kernel",
        f"`{'-'.join(kernel.slug.split('-')[1:-1])}`.",
        "One instruction that the launch reaches is changed at a time.",
        "",
        f"**{caught} of {len(changes)} random changes are noticed**: "
        + ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if name != "same")
        + ".",
        f"{counts['same']} give the same result.",
        "",
        f"**Of {len(taken)} barriers and waits taken away, strict mode notices {strict}**, fast mode {fast}.",
        f"{idle} waits are not needed; the table says why.",
        "",
        "## Random changes that give the same result",
        "",
        "| instruction → change |",
        "|---|",
        *(f"| `{name}` |" for name, outcome in changes.items() if outcome == "same"),
        "",
        "## Barriers and waits",
        "",
        "| taken away or weakened | fast | strict |",
        "|---|---|---|",
        *(f"| `{name}` | {fast} | {strict} |" for name, (fast, strict) in taken.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--engine", default="native", choices=("native", "numpy"))
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    options = parser.parse_args()
    kernel = tw.kernel_of(tw.gemm.config(**CONFIG), options.arch)
    found = launched(kernel, tw.build(kernel).artifact(kernel)).on(options.engine)
    lines = found.kernel.program.reached
    changes = {
        str(m): found.outcome(found.mutated(m), Mode.STRICT)
        for m in random_mutations(lines, options.count, options.seed)
    }
    taken = {str(m): found.both(m) for m in synchronisation(lines)}
    text = report(kernel, changes, taken, options.seed)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
