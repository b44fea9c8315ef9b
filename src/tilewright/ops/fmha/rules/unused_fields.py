"""Rules on fields that a family does not use: they must keep their defaults."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arch.spec import Arch
from tilewright.ops.fields import list_fields
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import USED
from tilewright.ops.fmha.rules.all_families import COMBINE_EXAMPLE
from tilewright.ops.rule import Rejection, rule

_OPTIONAL = {name: field.default for name, field in list_fields(Config).items() if not field.required}


def _check_unused(names: Sequence[str], config: Config) -> Rejection | None:
    for name in names:
        value = getattr(config, name)
        if value != _OPTIONAL[name] and name not in USED[config.family]:
            return Rejection(f"{config.family} does not use {name} = {value}", name, _OPTIONAL[name])
    return None


_PADS = ("pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v")


@rule(
    "T214",
    "unused-pad",
    reads=("family", *_PADS),
    enforced_by="tilewright",
    good={},
    bad={**COMBINE_EXAMPLE, "pad_k": True},
)
def check_unused_pads(config: Config, arch: Arch) -> Rejection | None:
    """A pad that the family does not use must not be set.

    Why: two configs that differ only in this field would be the same kernel under two names.

    Fix: leave the field out.
    """
    return _check_unused(_PADS, config)


_FEATURES = ("mask_form", "sink", "bias", "lse", "soft_cap", "dropout", "store_randval", "static_quant", "v_layout")


@rule(
    "T215",
    "unused-feature",
    reads=("family", *_FEATURES),
    enforced_by="tilewright",
    good={"dropout": True},
    bad={"store_randval": True},
)
def check_unused_features(config: Config, arch: Arch) -> Rejection | None:
    """A feature of the scores or the result that the family does not use must keep its default.

    Why: as for pads, each kernel must have one name.

    Fix: leave the field out.
    """
    return _check_unused(_FEATURES, config)


_OTHERS = tuple(name for name in _OPTIONAL if name not in (*_PADS, *_FEATURES, "waves", "mma"))


@rule(
    "T216",
    "unused-option",
    reads=("family", *_OTHERS),
    enforced_by="tilewright",
    good={"blocks_per_cu": 2},
    bad={"rotary": "half"},
)
def check_unused_options(config: Config, arch: Arch) -> Rejection | None:
    """An option of caches, gradients or scheduling that the family does not use must keep its default.

    Why: as for pads, each kernel must have one name.

    Fix: leave the field out.
    """
    return _check_unused(_OTHERS, config)
