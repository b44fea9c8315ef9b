"""Legal kernels of an op on every GPU, for tests of what must hold for all of them."""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

from config_samples import draw_legal, list_strata
from tilewright.arch import Arch, arch_names, load
from tilewright.ops import find_op


@functools.cache
def legal_kernels(op_name: str, arch: str, number: int) -> tuple[tuple[Any, Arch], ...]:
    """Configs that no rule refuses, of as many kinds as there are, each with its GPU."""
    op, rng, gpu = find_op(op_name), random.Random(7), load(arch)
    kinds = list_strata(op, gpu)
    rng.shuffle(kinds)
    drawn = (draw_legal(op, gpu, rng, kind) for kind in kinds)
    return tuple(itertools.islice(((config, gpu) for config in drawn if config is not None), number))


@functools.cache
def all_kernels(op_name: str, number: int) -> tuple[tuple[Any, Arch], ...]:
    """So many of each GPU."""
    return tuple(kernel for name in arch_names() for kernel in legal_kernels(op_name, name, number))
