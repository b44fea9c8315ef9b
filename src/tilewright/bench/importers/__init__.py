"""Measurements of other tools as records of our kernels and problems.

An importer takes what is a kernel of ours, and tells of every row that is not. Times of kernels that Tilewright cannot
make stay out: a record names a kernel that can be built, chosen and run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.errors import InvalidValueError, choose
from tilewright.bench.importers import conv_gfx950, tile_engine
from tilewright.bench.importers.rows import Imported


@dataclass(frozen=True)
class Importer:
    """How files of a format are read. `read` takes a file or a folder, and options by name."""

    doc: str
    read: Callable[..., Imported]

    @functools.cached_property
    def options(self) -> tuple[str, ...]:
        """The names of the options that it takes."""
        kinds = inspect.signature(self.read).parameters.values()
        return tuple(each.name for each in kinds if each.kind is inspect.Parameter.KEYWORD_ONLY)


IMPORTERS: Mapping[str, Importer] = {
    "conv_gfx950": Importer("CK Tile's public sweep of forward convolutions on gfx950 (CSV)", conv_gfx950.read),
    "tile_engine": Importer("benchmarks of CK's tile_engine: GEMM, preshuffle, multi-D (JSON, CSV)", tile_engine.read),
}
# Public sets that are measured, but not on kernels of ours, by their folder in ../shared/data.
NOT_OURS: Mapping[str, str] = {
    "hipblaslt_mi250x_fp16_sweep": "GEMMs of Tensile: its kernels are assembly with other parameters",
    "aiter_fmoe_profile": "fused mixture of experts, which is no op of Tilewright",
    "aiter_tuned_gemm_winners": "winners only, of classic CK, assembly or Triton, without the fields of a config",
    "aiter_attention_backends": "backends by name, without the tile or any other field of a kernel",
    "miopen": "solvers of MIOpen, without the fields of a kernel; its perf-db has no times",
}


def read_foreign(name: str, path: Path | str, **options: Any) -> Imported:
    """The records of a file in the format `name`. Options that the format does not have are errors."""
    if name in NOT_OURS:
        raise InvalidValueError(f"{name} cannot be imported: {NOT_OURS[name]}. Formats: {', '.join(IMPORTERS)}.")
    importer = IMPORTERS[choose("format", name, IMPORTERS)]
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        choose(f"option of the format {name}", option, importer.options)
    return importer.read(Path(path), **given)
