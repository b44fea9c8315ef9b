"""Groups of waves that run together, and their registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_module import LazyModule
from tilewright.emulator.instruction import EXEC, SCALARS
from tilewright.emulator.launch import Counters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tilewright.emulator.lds import Lds
    from tilewright.emulator.memory import Memory

    U32 = NDArray[np.uint32]
    Mask = NDArray[np.bool_]
else:
    np = LazyModule("numpy")
    U32 = Mask = Any
Registers = frozenset[tuple[str, int]]  # ("v", index) and ("s", index)
Step = Callable[["WaveGroup"], None]  # one translated instruction

POISON = 0x7FC0DEAD  # a quiet NaN as f32, NaN in its upper half as f16 and bf16, and an invalid address


@dataclass(slots=True)
class Batch:
    """State that the waves of a batch of work-groups share."""

    memory: Memory
    lds: Lds
    counters: Counters
    strict: bool
    detailed: bool  # also count cache lines and bank conflicts
    scratch: int = 0  # address of the private memory of the batch's first wave
    scratch_bytes: int = 0  # per lane
    waves_per_block: int = 1
    turned: bool = False  # strict mode: reverse wave order; loads and copies to LDS arrive early
    # The GPU counter of "load", "store", "lds" and "scalar" accesses: see waitcnt.py.
    counter_of: Mapping[str, str] = field(default_factory=dict)
    capacity_of: Mapping[str, int] = field(default_factory=dict)  # largest value of each of these counters


@dataclass(slots=True)
class PendingEffect:
    """A memory instruction whose effect is not visible yet. Strict mode keeps it until a wait requires it.

    `commit` makes it visible. `take` returns the effect for some of the waves, by row. `in_order` is false for scalar
    loads, which may return in any order. `overtaken` returns the effect for the case that some of the registers were
    written after the load arrived: these keep their current values.
    """

    commit: Callable[[WaveGroup], None]
    take: Callable[[NDArray[np.intp]], PendingEffect]
    in_order: bool = True
    lds_write: Callable[[Lds], None] | None = None  # applies an LDS write
    registers: Registers = frozenset()  # registers that it writes
    lds_read: bool = False  # its values come from the LDS
    overtaken: Callable[[WaveGroup, Registers], PendingEffect] | None = None


@dataclass(slots=True)
class WaveIndices:
    """Indices and addresses of waves: arrays with one entry per wave of the group."""

    wave: NDArray[np.int64]  # index in the launch: work-group · waves per work-group + own index
    lds_base: NDArray[np.int64]  # start of the work-group's LDS in `Batch.lds`
    scratch_base: NDArray[np.uint64]  # address of the wave's private memory

    def take(self, rows: NDArray[np.intp]) -> WaveIndices:
        return WaveIndices(self.wave[rows], self.lds_base[rows], self.scratch_base[rows])

    @staticmethod
    def join(parts: Sequence[WaveIndices]) -> WaveIndices:
        return WaveIndices(
            np.concatenate([p.wave for p in parts]),
            np.concatenate([p.lds_base for p in parts]),
            np.concatenate([p.scratch_base for p in parts]),
        )


class WaveGroup:
    """Waves at one instruction. Register r of all waves is one array [waves, lanes] (`v[r]`) or [waves] (`s[r]`)."""

    __slots__ = (
        "batch", "exec_mask", "float_mode", "full", "lanes", "pending", "places", "s", "s64", "sc", "scc", "scf", "sci",
        "sgprs", "si", "v", "vf", "vgprs", "vi", "waves",
    )  # fmt: skip

    def __init__(self, batch: Batch, vgprs: U32, sgprs: U32, scc: Mask, places: WaveIndices, float_mode: int) -> None:
        self.batch = batch
        self.vgprs = vgprs  # [registers, waves, lanes]
        self.sgprs = sgprs  # [waves, SCALARS]
        self.scc = scc
        self.places = places
        self.float_mode = float_mode  # MODE: see alu/float_mode.py
        self.pending: dict[str, list[PendingEffect]] = {}  # by counter, the oldest first
        self.waves = int(vgprs.shape[1])
        self.lanes = int(vgprs.shape[2])
        self.v = list(vgprs)
        self.vf = list(vgprs.view(np.float32))
        self.vi = list(vgprs.view(np.int32))
        signed, floating, wide = sgprs.view(np.int32), sgprs.view(np.float32), sgprs.view(np.uint64)
        self.s = [sgprs[:, k] for k in range(SCALARS)]
        self.si = [signed[:, k] for k in range(SCALARS)]
        self.sc = [sgprs[:, k : k + 1] for k in range(SCALARS)]  # as columns, for broadcasting over lanes
        self.sci = [signed[:, k : k + 1] for k in range(SCALARS)]
        self.scf = [floating[:, k : k + 1] for k in range(SCALARS)]
        self.s64 = [wide[:, k // 2] for k in range(SCALARS)]  # valid for even k only
        self.update_exec_mask()

    def update_exec_mask(self) -> None:
        """Update the mask after exec was written."""
        self.exec_mask = self.read_mask(EXEC)
        self.full = bool(self.exec_mask.all())

    def read_mask(self, register: int) -> Mask:
        """Return the lane mask in a scalar register (pair) as booleans [waves, lanes]."""
        words = self.sgprs[:, register : register + self.lanes // 32]
        octets = np.ascontiguousarray(words).view(np.uint8)
        return np.unpackbits(octets, axis=1, bitorder="little").view(np.bool_)

    def set_mask(self, register: int, mask: Mask) -> None:
        """Write a lane mask into a scalar register (pair). After writing exec, call `update_exec_mask`."""
        if mask.shape != (self.waves, self.lanes):
            mask = np.broadcast_to(mask, (self.waves, self.lanes))
        octets = np.packbits(mask, axis=1, bitorder="little")
        self.sgprs[:, register : register + self.lanes // 32] = octets.view(np.uint32)

    def write(self, register: int, values: U32) -> None:
        """Write a vector register where exec is set."""
        if self.full:
            self.v[register][...] = values
        else:
            destination = self.v[register]
            if values.shape == destination.shape and values.dtype == destination.dtype:
                np.putmask(destination, self.exec_mask, values)  # faster than copyto; would repeat missing values
            else:
                np.copyto(destination, values, where=self.exec_mask)

    def schedule_effect(self, kind: str, effect: PendingEffect) -> None:
        """Apply a memory instruction's effect now, or in strict mode when a wait on its counter requires it."""
        if not self.batch.strict:
            effect.commit(self)
            return
        counter = self.batch.counter_of[kind]
        most = self.batch.capacity_of[counter]
        if len(self.pending.get(counter, ())) >= most:
            self.drain(counter, most - 1)  # a full counter blocks until there is room
        self.pending.setdefault(counter, []).append(effect)

    def drain(self, counter: str, count: int) -> None:
        """Make visible only the effects that must be complete when `counter` is at most `count`.

        Accesses of one kind complete in order, so all but the last `count` are complete. Scalar loads may complete in
        any order: none is known to be complete until all are.
        """
        queue = self.pending.get(counter)
        if not queue:
            return
        ordered = sum(effect.in_order for effect in queue)
        over = max(ordered - count, 0)
        left = []
        for effect in queue:
            if effect.in_order and over > 0:
                over -= 1
                effect.commit(self)
            elif count == 0:
                effect.commit(self)
            else:
                left.append(effect)
        if left:
            self.pending[counter] = left
        else:
            del self.pending[counter]

    def take(self, rows: NDArray[np.intp]) -> WaveGroup:
        """Return some of the waves as a new group, with their pending effects."""
        part = WaveGroup(
            self.batch,
            np.ascontiguousarray(self.vgprs[:, rows]),
            np.ascontiguousarray(self.sgprs[rows]),
            self.scc[rows].copy(),
            self.places.take(rows),
            self.float_mode,
        )
        part.pending = {counter: [p.take(rows) for p in queue] for counter, queue in self.pending.items()}
        return part
