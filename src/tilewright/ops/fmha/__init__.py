"""Fused attention: forward, over caches, and backward."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tilewright.arch.spec import Arch
from tilewright.ops.builtin_sets import load_sets
from tilewright.ops.call_header import format_header
from tilewright.ops.execution import Execution, import_on_call
from tilewright.ops.fields import read_config
from tilewright.ops.fmha import source
from tilewright.ops.fmha.arch_table import TILE_FIELDS, list_tile_texts, list_tile_values, list_tiles, read_tile
from tilewright.ops.fmha.call import CALL
from tilewright.ops.fmha.ck_probes import CK_PROBES
from tilewright.ops.fmha.config import MODES, PAD_FIELDS, Config, get_padding_preset
from tilewright.ops.fmha.estimate import COST
from tilewright.ops.fmha.fit import FIT_RULES
from tilewright.ops.fmha.kind import compute_reference
from tilewright.ops.fmha.kinds import KINDS, PIPELINES
from tilewright.ops.fmha.portfolio_fields import list_portfolio_fields
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.profiles import PROFILES
from tilewright.ops.fmha.rules import RULES
from tilewright.ops.fmha.stages import plan_next_stage
from tilewright.ops.fmha.tensors import apply_strides, list_slots, list_tensors
from tilewright.ops.fmha.trials import list_trials
from tilewright.ops.op import Op, Shorthand
from tilewright.ops.portfolio import KernelPortfolio
from tilewright.ops.space import Space

if TYPE_CHECKING:
    from tilewright.ops.fmha.keywords import FmhaConfigKeywords, FmhaSpaceKeywords

_HERE = Path(__file__).parent


# Integer fields that distinguish kernels, with the values worth trying.
_STARS: dict[str, tuple[Any, ...]] = {
    "pad_hdim_q": (0, 1, 8),
    "pad_hdim_v": (0, 1, 8),
    "sink": (0, 4),
    "log_max_splits": (0, 3, 4, 5, 6, 7),
    "max_seqlen_q": (0, 16, 32),
    "blocks_per_cu": (0, 1, 2),
    "page_size": (1, 16, 64, 1024),
}


def _list_strata(arch: Arch) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    dtypes = dict.fromkeys(tile.dtype for tile in list_tiles(arch))
    return {
        ("family",): [(kind.name,) for kind in KINDS],
        ("mode",): [(name,) for name in MODES],
        ("dtype",): [(name,) for name in dtypes],
        ("pipeline",): [(name,) for name in PIPELINES],
    }


def _get_values(values: tuple[Any, ...], _: Arch) -> tuple[Any, ...]:
    return values


OP = Op(
    name="fmha",
    doc="fused attention, also over caches of keys and values, and its gradients",
    config_type=Config,
    problem_type=Problem,
    example={
        "family": "forward",
        "mode": "batch",
        "dtype": "fp16",
        "pipeline": "qr",
        "block": (128, 128, 32, 128, 32, 128),
        "waves": (4, 1, 1, 4, 1, 1),
        "mma": (32, 32, 16, 32, 32, 16),
        "pad_q": True,
        "pad_k": True,
    },
    example_problem={"family": "forward", "dtype": "fp16", "batch": 2, "heads": 4, "seqlen_q": 128, "hdim_q": 128},
    rules=RULES,
    fit_rules=FIT_RULES,
    stars={
        **{name: functools.partial(list_tile_values, name) for name in TILE_FIELDS},
        **{name: functools.partial(_get_values, values) for name, values in _STARS.items()},
    },
    kinds=KINDS,
    kind_field="family",
    structure_fields=("family", "pipeline"),
    strata=_list_strata,
    shorthands={
        "tile": Shorthand(TILE_FIELDS, read_tile, list_tile_texts),
        "pads": Shorthand(PAD_FIELDS, get_padding_preset),
    },
    profiles=PROFILES,
    filters={
        "datatype": "dtype",
        "layout": "v_layout",
        "variants": "family",
        "hdim_q": "hdim_q",
        "hdim_v": "hdim_v",
    },
    template=_HERE / "kernel.hip.j2",
    headers=source.HEADERS,
    ck_probes=CK_PROBES,
    support={**source.SUPPORT, **format_header(CALL)},
    launchers=source.find_launchers(KINDS),
    sets=functools.partial(load_sets, _HERE / "preselected"),
    spaces=functools.partial(load_sets, _HERE / "spaces"),
    importers={},
    execution=Execution(
        tensors=list_tensors,
        with_strides=apply_strides,
        arguments=CALL.make_arguments,
        point=CALL.make_address_setter,
        call=CALL,
        slots=list_slots,
        next_stage=plan_next_stage,
        inputs=import_on_call("tilewright.ops.fmha.inputs", "make_inputs"),
        reference=compute_reference,
        tolerance=import_on_call("tilewright.ops.fmha.tolerance", "compute_tolerance"),
        tolerance_basis=import_on_call("tilewright.ops.fmha.tolerance", "tolerance_basis"),
        trials=list_trials,
    ),
    report_fields={"tile": "block"},
    cost=COST,
    portfolio=KernelPortfolio(_HERE / "portfolio", list_portfolio_fields, matched=("family",)),
)


@OP.add_keywords
def space(**declared: Unpack[FmhaSpaceKeywords]) -> Space:
    """Return a lazy set of attention kernels: each field is a value, a list of values or "*"."""
    return Space(OP, declared)


@OP.add_keywords
def config(**values: Unpack[FmhaConfigKeywords]) -> Config:
    """Return an attention config; `tile` stands for block, waves and mma, `pads` for the four pads."""
    return read_config(Config, OP.expand_shorthands(values))


__all__ = ["OP", "Config", "Problem", "config", "space"]
