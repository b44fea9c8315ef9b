"""Words that stand for several fields of a config."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.base.errors import UnknownValueError
from tilewright.ops import OPS, find_op

CONV = find_op("grouped_conv")


def test_a_config_takes_every_shorthand() -> None:
    fields = {name: value for name, value in CONV.example.items() if not name.startswith("dtype") and name != "ndim"}
    made = tw.grouped_conv.config(**{**fields, "dtype": "fp16", "layout": "nhwgc"})
    assert made == CONV.make_example()
    with pytest.raises(UnknownValueError, match="unknown layout of grouped_conv 'nhwc'"):
        tw.grouped_conv.config(**{**fields, "dtype": "fp16", "layout": "nhwc"})


@pytest.mark.parametrize("order", [("dtype", "dtype_c"), ("dtype_c", "dtype")])
def test_what_a_field_is_given_itself_counts(order: tuple[str, str]) -> None:
    given = {"dtype": "fp16", "dtype_c": "fp32"}
    fields = find_op("gemm").expand_shorthands({name: given[name] for name in order})
    assert fields == {"dtype_a": "fp16", "dtype_b": "fp16", "dtype_acc": "fp32", "dtype_c": "fp32"}


def test_shorthands_stand_for_fields() -> None:
    for op in OPS:
        for name, short in op.shorthands.items():
            assert set(short.fields) <= set(op.field_names) and name not in op.field_names
