"""The format of GPU files: types and ranges of their keys, and consistency of their numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tilewright.arch.dtypes import DTYPES, TRIPLES
from tilewright.arch.spec import parse_shape
from tilewright.base.errors import FileProblem, UnknownValueError

FAMILIES = ("cdna1", "cdna2", "cdna3", "cdna4", "rdna3", "rdna4")

# Strict: a number in quotes or a boolean is a mistake, not a number.
Count = Annotated[int, Field(ge=1, strict=True)]
CountOrNone = Annotated[int, Field(ge=0, strict=True)]
Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1, strict=True, allow_inf_nan=False)]
ShapeText = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}x[1-9][0-9]{0,3}x[1-9][0-9]{0,3}$")]
Instruction = Annotated[str, Field(pattern=r"^v_(mfma|wmma)_[a-z0-9_]+$")]


class _ArchModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Compute(_ArchModel):
    units: Count
    simds_per_unit: Count
    max_waves_per_simd: Count
    max_blocks_per_unit: Count
    max_block_threads: Count
    clock_mhz: Count
    dies: Count
    lanes_per_simd: Count
    launch_us: Positive


class _Registers(_ArchModel):
    vgprs: Count
    vgpr_granule: Count
    max_vgprs: Count
    agprs: Literal["unified", "separate", "none"]
    sgprs: CountOrNone
    sgpr_granule: Count
    max_sgprs: Count


class _Lds(_ArchModel):
    bytes: Count
    unit_bytes: Count
    granule: Count
    banks: Count
    async_copy_bytes: CountOrNone
    transpose_read_bytes: CountOrNone
    bytes_per_clock: Count
    latency_clocks: Count


class _Memory(_ArchModel):
    bandwidth_gbs: Positive
    capacity_gib: Count
    l2_bytes: Count
    mall_bytes: CountOrNone
    line_bytes: Count
    l1_bytes_per_clock: Count
    l2_channels: Count
    l2_bytes_per_clock: Count
    latency_clocks: Count
    store_cost: Positive


class _Numbers(_ArchModel):
    fp8: Literal["fnuz", "ocp"]
    halves_flushed: Annotated[bool, Field(strict=True)]
    bf16_add: Annotated[bool, Field(strict=True)]


class ArchFile(_ArchModel):
    """One GPU file as written; `load.py` turns it into an `Arch`."""

    name: Annotated[str, Field(pattern=r"^gfx[0-9a-f]{3,4}$")]
    family: str
    product: Annotated[str, Field(min_length=1)]
    wave_size: Literal[32, 64]
    matrix: Literal["mfma", "wmma"]
    waves: Annotated[list[ShapeText], Field(min_length=1)]
    compute: _Compute
    registers: _Registers
    lds: _Lds
    memory: _Memory
    numbers: _Numbers
    peak_tflops: dict[str, Positive]
    matrix_share: dict[str, Share] = {}
    mma: dict[str, dict[ShapeText, Instruction]]
    op: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Draft:
    """A file as read, with the keys that the schema rejected."""

    raw: Mapping[str, Any]
    path: Path
    broken: Collection[str]

    def is_sound(self, *places: str) -> bool:
        """Whether these keys, the tables that hold them and the values below them follow the schema."""
        return all(self._is_reachable(p) and not any(_is_below(b, p) for b in self.broken) for p in places)

    def _is_reachable(self, place: str) -> bool:
        return not any(b in ("", place) or _is_below(place, b) for b in self.broken)

    def iterate_table(self, name: str) -> Iterator[tuple[str, Any]]:
        """The entries of a table; none if the table itself is invalid."""
        if self._is_reachable(name):
            yield from self.raw[name].items()


def _is_below(place: str, other: str) -> bool:
    return place.startswith(f"{other}.")


def find_contradictions(draft: Draft) -> Iterator[FileProblem]:
    """Checks that a schema cannot express: names must be known, numbers must be consistent.

    Checks that would read an invalid value are skipped. All others run, so that one run reports all problems.
    """
    yield from _find_unknown_names(draft)
    yield from _find_foreign_instructions(draft)
    yield from _find_large_work_groups(draft)
    yield from _find_inconsistent_numbers(draft)


def _find_unknown_names(draft: Draft) -> Iterator[FileProblem]:
    raw, path = draft.raw, draft.path
    if draft.is_sound("name") and raw["name"] != path.stem:
        yield FileProblem("name", f"is {raw['name']!r} but the file is called {path.name}")
    if draft.is_sound("family"):
        yield from _check_known("family", raw["family"], "family", FAMILIES)
    for key, _ in draft.iterate_table("peak_tflops"):
        yield from _check_known(f"peak_tflops.{key}", key, "dtype", DTYPES)
    for key, _ in draft.iterate_table("mma"):
        yield from _check_known(f"mma.{key}", key, "triple of types", TRIPLES)
    yield from _find_unknown_instructions(draft)


def _find_unknown_instructions(draft: Draft) -> Iterator[FileProblem]:
    if "matrix_share" not in draft.raw or not draft.is_sound("mma"):
        return
    known = {instruction for _, table in draft.iterate_table("mma") for instruction in table.values()}
    for key, _ in draft.iterate_table("matrix_share"):
        yield from _check_known(f"matrix_share.{key}", key, "instruction of this file", known)


def _check_known(where: str, value: str, what: str, known: Collection[str]) -> Iterator[FileProblem]:
    if value not in known:
        yield FileProblem(where, str(UnknownValueError(what, value, known)))


def _find_foreign_instructions(draft: Draft) -> Iterator[FileProblem]:
    if not draft.is_sound("matrix"):
        return
    matrix = draft.raw["matrix"]
    prefix = f"v_{matrix}_"
    for key, table in draft.iterate_table("mma"):
        if not draft.is_sound(f"mma.{key}"):
            continue
        for shape, instruction in table.items():
            if not instruction.startswith(prefix):
                what = f"{instruction!r} is not a {matrix} instruction (they start with {prefix!r})"
                yield FileProblem(f"mma.{key}.{shape}", what)


def _find_large_work_groups(draft: Draft) -> Iterator[FileProblem]:
    if not draft.is_sound("waves", "wave_size", "compute.max_block_threads"):
        return
    limit = draft.raw["compute"]["max_block_threads"]
    for index, text in enumerate(draft.raw["waves"]):
        shape = parse_shape(text)
        threads = shape.m * shape.n * shape.k * draft.raw["wave_size"]
        if threads > limit:
            what = f"{text} is {threads} threads, more than compute.max_block_threads = {limit}"
            yield FileProblem(f"waves.{index}", what)


def _find_inconsistent_numbers(draft: Draft) -> Iterator[FileProblem]:
    raw = draft.raw
    if draft.is_sound("registers.vgprs", "registers.vgpr_granule"):
        vgprs, granule = raw["registers"]["vgprs"], raw["registers"]["vgpr_granule"]
        if vgprs % granule:
            what = f"{granule} does not divide registers.vgprs = {vgprs}"
            yield FileProblem("registers.vgpr_granule", what)
    if draft.is_sound("registers.vgprs", "registers.max_vgprs"):
        vgprs, most = raw["registers"]["vgprs"], raw["registers"]["max_vgprs"]
        if most > vgprs:
            what = f"{most} is more than registers.vgprs = {vgprs}"
            yield FileProblem("registers.max_vgprs", what)
    if draft.is_sound("lds.bytes", "lds.unit_bytes"):
        block, unit = raw["lds"]["bytes"], raw["lds"]["unit_bytes"]
        if block > unit:
            what = f"{block} is more than lds.unit_bytes = {unit}"
            yield FileProblem("lds.bytes", what)
