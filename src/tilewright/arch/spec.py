"""GPU specifications: plain values, read from one TOML file per GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.arch.ck_api import DEFAULT_API, CkApi


class Shape(NamedTuple):
    """Three integers along m, n and k; written 128x128x32."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def parse_shape(text: str) -> Shape:
    """`"128x128x32"` → Shape(128, 128, 32)."""
    m, n, k = (int(part) for part in text.split("x"))
    return Shape(m, n, k)


class Triple(NamedTuple):
    """The data types of a matrix instruction: inputs A and B, accumulator."""

    a: str
    b: str
    acc: str

    def __str__(self) -> str:
        return f"{self.a}_{self.b}_{self.acc}"


@dataclass(frozen=True, slots=True)
class Compute:
    """The units that run work-groups, and their clock.

    The waves of a work-group share one unit: a compute unit (CU) on CDNA, a work-group processor (WGP, two CUs) on
    RDNA, where kernels are compiled for WGP mode by default.
    """

    units: int  # enabled units of the product
    simds_per_unit: int
    max_waves_per_simd: int
    max_blocks_per_unit: int  # resident work-groups of more than one wave: each holds a barrier
    max_block_threads: int  # threads of the largest work-group
    clock_mhz: int  # peak engine clock
    dies: int  # dies that run kernels, each with its own L2 (XCDs); 1 for a monolithic GPU
    lanes_per_simd: int  # lanes that a SIMD computes in one clock: a wave takes wave_size / lanes_per_simd
    launch_us: float  # time of an empty kernel, one of many in a row


@dataclass(frozen=True, slots=True)
class Registers:
    """Register files of one SIMD, counted per lane for vector registers."""

    vgprs: int  # 32-bit vector registers per lane that the waves of a SIMD share
    vgpr_granule: int  # vector registers are allocated in multiples of this
    max_vgprs: int  # most architectural vector registers one wave can address
    agprs: str  # accumulation registers: "unified" with the VGPRs, "separate" equal file, or "none"
    sgprs: int  # scalar registers that the waves of a SIMD share; 0 = each wave has a fixed set
    sgpr_granule: int
    max_sgprs: int  # most scalar registers one wave can use


@dataclass(frozen=True, slots=True)
class LdsSpec:
    """Local data share of one unit, as `Compute` defines a unit."""

    bytes: int  # maximum allocation of one work-group
    unit_bytes: int  # shared by the resident work-groups of one unit
    granule: int  # allocation granularity in bytes
    banks: int
    async_copy_bytes: int  # most bytes a lane copies from memory to LDS without registers; 0 = no such copy
    transpose_read_bytes: int  # bytes a lane gets from a transposing LDS read; 0 = no such read
    bytes_per_clock: int  # reads or writes of a unit
    latency_clocks: int  # from a read to its value, in a busy unit


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """Memory and caches of the whole GPU."""

    bandwidth_gbs: float
    capacity_gib: int
    l2_bytes: int  # per die
    mall_bytes: int  # last-level cache shared by all dies (Infinity Cache); 0 = none
    line_bytes: int  # cache line of L2
    l1_bytes_per_clock: int  # reads of a unit from its own cache
    l2_channels: int  # of all dies together
    l2_bytes_per_clock: int  # of one channel
    latency_clocks: int  # from a load that hits L2 to its value, in a busy GPU
    store_cost: float  # loaded bytes that take a unit as long as one stored byte


@dataclass(frozen=True, slots=True)
class NumberSpec:
    """Number encodings of the GPU, and its atomic additions."""

    # Encoding of fp8 and bf8: "ocp" is the standard's, "fnuz" has no infinities and no minus zero. If no instruction
    # supports them, it is the encoding of CK Tile's own conversions.
    fp8: str
    halves_flushed: bool  # matrix instructions treat subnormal fp16 and bf16 numbers as zeros
    bf16_add: bool  # CK Tile's atomic add of bf16 compiles for this GPU


@dataclass(frozen=True, slots=True)
class Arch:
    """One GPU. `mma` maps data types to CK Tile's matrix tiles and their instructions."""

    name: str
    family: str
    product: str
    wave_size: int
    matrix: str  # "mfma" or "wmma"
    compute: Compute
    registers: Registers
    lds: LdsSpec
    memory: MemorySpec
    numbers: NumberSpec
    peak_tflops: Mapping[str, float]  # dense matrix rate by input dtype (TOPS for integers)
    matrix_share: Mapping[str, float]  # fraction of that rate that an instruction reaches; 1 if not listed
    waves: tuple[Shape, ...]
    mma: Mapping[Triple, Mapping[Shape, str]]
    op_tables: Mapping[str, Mapping[str, Any]]  # tables that only one op reads; the op checks them
    source: str  # path of its file
    ck: CkApi = DEFAULT_API  # of the headers that kernels for it are compiled with

    def mma_shapes(self, a: str, b: str, acc: str) -> Mapping[Shape, str]:
        """Matrix tiles for these types, with their instruction; empty if the GPU has none."""
        return self.mma.get(Triple(a, b, acc), {})

    def resolve_dtype(self, dtype: str) -> str:
        """A data type in this GPU's encoding: "fp8" is "fp8_ocp" or "fp8_fnuz"; most types have only one encoding."""
        return f"{dtype}_{self.numbers.fp8}" if dtype in ("fp8", "bf8") else dtype

    def __hash__(self) -> int:
        return hash((self.name, self.source, self.ck))
