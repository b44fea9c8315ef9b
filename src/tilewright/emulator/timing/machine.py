"""The machine of the timeline: clocks that instructions take on a GPU. `machines.toml` has their sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilewright.arch.spec import Arch
from tilewright.base.documents import read_toml
from tilewright.base.errors import InvalidValueError
from tilewright.emulator.matrix.shapes import F8F6F4, MatrixShape
from tilewright.emulator.matrix.sparse import find_any_shape

FILE = Path(__file__).with_name("machines.toml")
# The names of element types in the GPUs' files, and the type whose rate counts for a type without one.
_RATES = {"f64": "fp64", "f32": "fp32", "xf32": "fp32", "f16": "fp16", "bf16": "bf16"} | {
    **{"fp8": "fp8", "bf8": "bf8", "i8": "int8", "iu8": "int8", "iu4": "int8"},
    **{"f8f6f4": "fp8", "fp6": "pk_fp4", "bf6": "pk_fp4", "fp4": "pk_fp4"},
}
_FALLBACK = "fp16"


@dataclass(frozen=True, slots=True)
class TimingMachine:
    """Clocks of one GPU. Latencies are those of an idle unit: the timeline itself adds the time in queues."""

    arch: Arch
    issue: int  # between two instructions of a wave, and between two of a SIMD for one unit
    vector_result: int  # until a vector instruction can read the result of another
    slow_vector: int  # occupancy of a transcendental function
    scalar_result: int
    matrix_result: int  # from the end of a matrix instruction to a reader of its result
    lds_latency: int
    scalar_latency: int
    jump: int
    barrier: int
    block_start: int  # until the first instruction of a work-group
    wave_start: int  # between the starts of two waves of a shader engine
    units_per_engine: int
    memory_latency: int  # of a load that L2 serves in a busy GPU
    memory_bytes: int  # per clock, of a unit's vector cache
    lds_bytes: int  # per clock, of a unit's LDS

    def count_matrix_clocks(self, name: str, shape: MatrixShape) -> int:
        """Return how long a matrix instruction occupies the matrix pipe of a SIMD, from the GPU's peak rate."""
        compute, peaks = self.arch.compute, self.arch.peak_tflops
        peak = peaks.get(_RATES[shape.a], peaks[_FALLBACK])
        rate = peak * 1e6 / compute.clock_mhz / compute.units / compute.simds_per_unit
        flops = shape.flops / (2 if shape.sparse else 1)  # half of A is not stored
        return max(round(flops / (rate * self.arch.matrix_share.get(name, 1.0))), self.issue)

    def find_shape(self, name: str, cbsz: int) -> MatrixShape:
        """Return the shape of a matrix instruction of this GPU. `cbsz` selects A's format."""
        shape = find_any_shape(name, self.arch.family)
        assert shape is not None, name  # the emulated device has run it
        return shape.replace_formats(F8F6F4[cbsz], F8F6F4[cbsz]) if shape.a == "f8f6f4" else shape

    def count_start_interval(self, waves: int) -> int:
        """Return the clocks between two work-groups of a compute unit: its engine starts one wave after another."""
        return self.wave_start * waves * self.units_per_engine


def load_machine(arch: Arch, **changed: int) -> TimingMachine:
    """Return the machine of a GPU. `changed` replaces clocks, to see how much they matter."""
    for table in read_toml(FILE).values():
        if arch.family in table["families"]:
            own = {key: value for key, value in table.items() if key != "families"}
            return TimingMachine(arch, **{**_read_arch(arch), **own, **changed})
    known = ", ".join(family for table in read_toml(FILE).values() for family in table["families"])
    raise InvalidValueError(f"the timeline has no clocks for the family '{arch.family}'; known are {known}")


def _read_arch(arch: Arch) -> dict[str, int]:
    """Return the numbers of the GPU's own file, which `machines.toml` may replace."""
    return {
        "memory_latency": arch.memory.latency_clocks,
        "memory_bytes": arch.memory.l1_bytes_per_clock,
        "lds_latency": arch.lds.latency_clocks,
        "lds_bytes": arch.lds.bytes_per_clock,
    }
