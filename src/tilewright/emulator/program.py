"""The code of a kernel in basic blocks, which are translated when they are first reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from tilewright.building.disassembled import DisassembledLine
from tilewright.building.instruction_mix import classify
from tilewright.emulator import control
from tilewright.emulator.code import LoadedCode
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.control import Ending
from tilewright.emulator.disassembly import find_branch_target, parse_line
from tilewright.emulator.faults import CodeFault, CodeObjectError, Fault
from tilewright.emulator.group import Registers, Step, WaveGroup
from tilewright.emulator.indexed_registers import RegisterIndexing, find_indexed, index_operands, make_indexed_step
from tilewright.emulator.instruction import Instruction, Operand
from tilewright.emulator.relative_moves import MOVES, index_move
from tilewright.emulator.write_hazards import NONE, find_written_registers

Translator = Callable[[Instruction, LoadedCode], Step | None]


@cache
def list_translators() -> tuple[Translator, ...]:
    """The translators of all kinds of instructions."""
    # They take long to import, and the native engine runs kernels from the cache without them.
    from tilewright.emulator import access, alu, matrix  # noqa: PLC0415

    return (control.translate, alu.translate, access.translate, matrix.translate)


@dataclass(frozen=True, slots=True)
class Listing:
    """The instructions of a code object by address, and the starts of basic blocks. `parsed` caches parsed ones."""

    lines: Mapping[int, DisassembledLine]
    leaders: frozenset[int]
    indexed: frozenset[int] = frozenset()  # see indexed_registers.py
    parsed: dict[int, Instruction] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions that run one after another. `steps` has no hints; `sources` are the instructions of the steps.

    `written` are the registers that each step writes at once; steps whose registers M0 selects see to it themselves. An
    odd address is that of the same instructions with the vector instructions skipped (s_setvskip).
    """

    address: int
    steps: tuple[Step, ...]
    sources: tuple[Instruction, ...]
    written: tuple[Registers, ...]
    ending: Ending | None
    last: Instruction
    count: int
    mix: Mapping[str, int]

    @property
    def after(self) -> int:
        """The address of the next basic block, if no jump is taken."""
        return self.last.next_address | self.address & control.SKIPPING


def make_listing(lines: Iterable[DisassembledLine]) -> Listing:
    """Find the basic blocks: they begin at branch targets and after instructions that end one."""
    listed = {line.address: line for line in lines}
    leaders: set[int] = set()
    for line in listed.values():
        if control.can_end_block(line.text.partition(" ")[0]):
            leaders.add(line.address + line.size)
            target = find_branch_target(line)
            if target is not None:
                leaders.add(target)
    return Listing(listed, frozenset(leaders), find_indexed(listed.values()))


class Program:
    """The code of one kernel.

    `find_listing` returns the listing of its code object, when it is needed. `identity` is that of the code object, if
    the kernel is as the code object has it.
    """

    def __init__(self, find_listing: Callable[[], Listing], code: LoadedCode, vgprs: int, identity: str = "") -> None:
        self._find_listing = find_listing
        self.identity = identity
        self._code = code
        self._vgprs = vgprs
        self._blocks: dict[int, BasicBlock] = {}
        self._watchers: dict[int, Callable[[Step], Step]] = {}
        self._reached: set[int] = set()

    @cached_property
    def _listing(self) -> Listing:
        return self._find_listing()

    @property
    def lines(self) -> Mapping[int, DisassembledLine]:
        """The instructions of the code object by address."""
        return self._listing.lines

    def read_instruction(self, address: int) -> Instruction:
        """Return the instruction at a valid address, parsed once for all kernels of the code object."""
        found = self._listing.parsed.get(address)
        if found is None:
            found = self._listing.parsed[address] = parse_line(self._listing.lines[address])
        return found

    def get_block(self, address: int) -> BasicBlock:
        """Return the basic block that begins at an address. Raises `CodeFault` without an instruction there."""
        block = self._blocks.get(address)
        if block is None:
            block = self._blocks[address] = self._translate_block(address)
        return block

    @property
    def reached(self) -> tuple[DisassembledLine, ...]:
        """The instructions that successful launches executed, by address."""
        return tuple(self._listing.lines[address] for address in sorted(self._reached))

    def record_reached(self, addresses: Iterable[int]) -> None:
        """Record the instructions that a launch executed."""
        self._reached.update(addresses)

    def clear_reached(self) -> None:
        """Clear the record of executed instructions, to inspect the next launch alone."""
        self._reached.clear()

    def list_addresses(self, block: BasicBlock) -> Iterator[int]:
        """Iterate over the addresses of a basic block's instructions."""
        at = block.address & ~control.SKIPPING
        while at < block.last.next_address:
            yield at
            at += self._listing.lines[at].size

    def replace_instruction(self, address: int, text: str) -> Program:
        """Return the same code with another instruction at one address, to test a kernel with that error."""
        line = replace(self._listing.lines[address], text=text)
        others = {at: known for at, known in self._listing.parsed.items() if at != address}
        listing = replace(self._listing, lines={**self._listing.lines, address: line}, parsed=others)
        return Program(lambda: listing, self._code, self._vgprs)

    def copy(self) -> Program:
        """Return the same code without watchers."""
        return Program(self._find_listing, self._code, self._vgprs)

    def watch(self, address: int, watcher: Callable[[Step], Step]) -> None:
        """Wrap the step of one instruction, to inspect the waves before and after it.

        For a jump, a barrier or the end, an empty step is wrapped, which runs before it.
        """
        self._watchers[address] = watcher
        self._blocks.clear()

    def _translate_block(self, address: int) -> BasicBlock:
        steps: list[Step] = []
        sources: list[Instruction] = []
        mix: Counter[str] = Counter()
        at, count = address & ~control.SKIPPING, 0
        while True:
            instruction, end, step = self.translate_at(at)
            if address & control.SKIPPING:
                end, step = control.skip_vector(instruction, end, step, self._code)
            count += 1
            mix.update(classify(half.mnemonic) for half in (instruction, instruction.other) if half)
            if end is not None and at in self._watchers:
                step = control.do_nothing
            if step is not None and (step is not control.do_nothing or at in self._watchers):
                steps.append(self._watchers.get(at, _keep_step)(step))
                sources.append(instruction)
            at = instruction.next_address
            if end is not None or at in self._listing.leaders or at not in self._listing.lines:
                changed = tuple(self._find_written(source) for source in sources)
                return BasicBlock(address, tuple(steps), tuple(sources), changed, end, instruction, count, mix)

    def translate_at(self, address: int) -> tuple[Instruction, Ending | None, Step | None]:
        """Return the instruction at an address, its ending and its step. An unknown one has a step that raises."""
        line = self._listing.lines.get(address)
        if line is None:
            raise CodeFault(f"no instruction exists at {address:#x}", CodePlace(address=address))
        try:
            instruction = self.read_instruction(address)
        except Fault as fault:
            return Instruction(line.address, line.size, line.text.split()[0], (), line.text), None, FaultStep(fault)
        return instruction, *self._translate_instruction(instruction)

    def _translate_instruction(self, instruction: Instruction) -> tuple[Ending | None, Step | None]:
        try:
            self.check_registers(instruction)
            end = control.find_ending(instruction, self._code)
            if instruction.address in self._listing.indexed and end is not None:
                raise self._code.unknown("a jump between s_set_gpr_idx_on and s_set_gpr_idx_off", instruction)
            if self.is_indexed(instruction):
                indexing = self._find_indexing(instruction)
                return None, make_indexed_step(instruction, self._code, indexing, self._make_checked_step)
            return (end, None) if end is not None else (None, self._make_step(instruction))
        except Fault as fault:
            return None, FaultStep(fault)
        except Exception as error:  # a form of the instruction that its translator does not support
            what = f"this form of the instruction ({type(error).__name__}: {error})"
            return None, FaultStep(self._code.unknown(what, instruction), error)

    def _make_step(self, instruction: Instruction) -> Step:
        for translate in list_translators():
            step = translate(instruction, self._code)
            if step is not None:
                return step
        raise self._code.unknown(f"'{instruction.mnemonic}'", instruction)

    def _make_checked_step(self, instruction: Instruction) -> Step:
        self.check_registers(instruction)
        return self._make_step(instruction)

    @property
    def register_limit(self) -> int:
        """The number of vector registers that v names."""
        return self._code.accumulators or self._vgprs

    def is_indexed(self, instruction: Instruction) -> bool:
        """Whether M0 selects registers of an instruction."""
        name = instruction.mnemonic
        return name in MOVES or (instruction.address in self._listing.indexed and classify(name) == "valu")

    def _find_indexing(self, instruction: Instruction) -> RegisterIndexing:
        find = index_move if instruction.mnemonic in MOVES else index_operands
        return find(instruction, self._code)

    def _find_written(self, instruction: Instruction) -> Registers:
        return NONE if self.is_indexed(instruction) else find_written_registers(instruction, self._code)

    def check_registers(self, instruction: Instruction) -> None:
        """Raise for a vector register beyond those that the kernel requests."""
        for operand in (*instruction.operands, *(instruction.other.operands if instruction.other else ())):
            if operand.kind in ("v", "a") and self._code.get_register(operand) + operand.count > self._find_limit(
                operand
            ):
                what = f"{operand.kind}{operand.index + operand.count - 1} is used"
                raise CodeObjectError(f"{what}, but the kernel requests {self._vgprs} vector registers")

    def _find_limit(self, operand: Operand) -> int:
        return self._vgprs if operand.kind == "a" else self.register_limit


@dataclass(frozen=True, slots=True)
class FaultStep:
    """The step of an unknown instruction."""

    fault: Fault
    cause: Exception | None = None

    def __call__(self, _: WaveGroup) -> None:
        raise self.fault from self.cause


def _keep_step(step: Step) -> Step:
    return step
