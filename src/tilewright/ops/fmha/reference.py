"""The reference results of an attention problem, in float64.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from tilewright.arch.spec import Arch
from tilewright.ops.fmha import families, reference_backward, reference_caches, reference_forward
from tilewright.ops.fmha.problem import Problem

_Reference = Callable[[Problem, Mapping[str, NDArray[Any]], Arch], dict[str, NDArray[Any]]]
_FAMILIES: dict[str, _Reference] = {
    families.FORWARD: reference_forward.compute_forward,
    families.PAGEDKV: reference_forward.compute_forward,
    families.BATCH_PREFILL: reference_forward.compute_forward,
    families.SPLITKV: reference_forward.compute_splitkv,
    families.COMBINE: reference_forward.compute_combine,
    families.APPENDKV: reference_caches.compute_appendkv,
    families.DOT_DO_O: reference_backward.compute_dot_do_o,
    families.DQ_DK_DV: reference_backward.compute_dq_dk_dv,
    families.CONVERT_DQ: reference_backward.convert_dq,
    families.BACKWARD: reference_backward.compute_backward,
}


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, NDArray[Any]]:
    """Return outputs by name from inputs by name. Outputs are not rounded to their types."""
    return _FAMILIES[problem.family](problem, given, arch)
