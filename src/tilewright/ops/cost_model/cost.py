"""An op's cost model, which ranks its kernels without measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tilewright.arch.occupancy import compute_occupancy
from tilewright.arch.spec import Arch
from tilewright.ops.cost_model.arithmetic import Number
from tilewright.ops.cost_model.model_inputs import CModelInputs

# Model inputs of a problem or of a kernel by name, read as attributes: each a `Number`.
Facts = SimpleNamespace


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """The resources of a compiled kernel according to its code object; the largest of several device kernels."""

    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int

    def count_resident_groups(self, arch: Arch, threads: int) -> float:
        """Work-groups of so many threads on a unit at once; at least one, since resources may be estimates."""
        counts = {"vgprs": self.vgprs, "agprs": self.agprs, "sgprs": self.sgprs, "lds_bytes": self.lds_bytes}
        return float(max(1, compute_occupancy(arch, **counts, block_threads=threads).blocks_per_unit))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated time of a kernel for a problem, with its breakdown.

    `terms` are microseconds by name, each the time if nothing else had to be done. `shape` has further numbers that
    describe how the work is distributed on the GPU (work-groups, rounds, utilization of the last round).
    """

    us: Number
    terms: Mapping[str, Number]
    shape: Mapping[str, Number]


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """How an op's kernel times are estimated. Names are the same for all problems and all kernels of the op.

    `estimate` and `features` use only `arithmetic`, so that they work for one kernel, columns and C. So does
    `problem_numbers`, if it is translated to C.
    """

    # Model inputs of a problem (problem).
    problem_numbers: Callable[[Any], Mapping[str, float]]
    # Model inputs of a kernel (config, arch, resources of its code object or None); a flag is 0 or 1.
    kernel_numbers: Callable[[Any, Arch, ResourceUse | None], Mapping[str, float]]
    # The estimate from the model inputs of problem and kernel (problem, kernel, arch).
    estimate: Callable[[Facts, Facts, Arch], Estimate]
    # The features of a learned model, by name (problem, kernel, estimate, arch). A change of names or meaning needs a
    # new `features_version`.
    features: Callable[[Facts, Facts, Estimate, Arch], Mapping[str, Number]]
    features_version: int = 1
    # How `problem_numbers` is translated to C. Without it packs keep the order of their kernels.
    in_c: CModelInputs | None = None
