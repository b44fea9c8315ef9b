"""Model inputs of problems as C: fields come from the struct or from the kernel's config."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.base.errors import InvalidValueError
from tilewright.ops.cost_model.arithmetic import where
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.cost_model.traced_problem import list_known_values, write_problem_numbers
from tilewright.ops.fmha import OP as FMHA
from tilewright.ops.fmha.call import CALL
from tilewright.ops.grouped_conv import OP as CONV
from tilewright.ops.grouped_conv.call import CALL as CONV_CALL

IN_C = CModelInputs(CALL, replaced={"mode": "batch"})


def write(numbers: Any, in_c: CModelInputs = IN_C) -> list[str]:
    op = FMHA if in_c.call is CALL else CONV
    return write_problem_numbers(numbers, in_c, op.make_example())


def test_fields_are_members_of_the_struct() -> None:
    lines = write(lambda p: {"rows": p.batch * p.seqlen_q, "lse": p.lse, "turned": p.rotary_size})
    assert lines == [
        "numbers.rows = (double)args->batch * (double)args->seqlen_q;",
        "numbers.lse = (double)args->wants_lse;",
        "numbers.turned = (double)args->rotary_dim;",
    ]


def test_names_are_compared_by_their_numbers() -> None:
    lines = write(lambda p: {"a": where(p.mask == "bottom_right", 2, 1), "b": p.bias != "none"})
    assert lines == [
        "numbers.a = ((double)args->mask == 2.0) ? 2.0 : 1.0;",
        "numbers.b = (double)args->bias_kind != 0.0;",
    ]


def test_other_fields_are_those_of_the_config() -> None:
    lines = write(lambda p: {"forward": float(p.family == "forward"), "group": float(p.mode == "group")})
    assert lines == ["numbers.forward = 1.0;", "numbers.group = 0.0;"]


def test_extents_are_as_many_as_the_kernel_has_and_properties_are_those_of_the_class() -> None:
    in_c = CModelInputs(CONV_CALL, length="ndim")
    lines = write(lambda p: {"inner": p.input_size[1], "count": len(p.stride), "channels": p.group_channels[0]}, in_c)
    assert lines == [
        "numbers.inner = (double)args->input_size[1];",
        "numbers.count = 2.0;",
        "numbers.channels = floor((double)args->channels_in / (double)args->g);",
    ]
    assert write(lambda p: {"reach": p.reach[0]}, in_c) == [
        "numbers.reach = (((double)args->filter_size[0] - 1.0) * (double)args->dilation[0]) + 1.0;"
    ]


def test_a_field_that_c_does_not_have_is_an_error() -> None:
    with pytest.raises(InvalidValueError, match="total_q of fmha problems is neither in tw_fmha_args nor in configs"):
        write(lambda p: {"tokens": p.total_q})
    with pytest.raises(TypeError, match="neither true nor false"):
        write(lambda p: {"rows": max(1, p.seqlen_q)})


def test_kernels_that_know_the_same_share_a_function() -> None:
    known = [list_known_values(IN_C, FMHA.make_example(changes)) for changes in ({}, {"lse": True}, {"dtype": "bf16"})]
    assert known[0] == known[1] != known[2]


def test_conditions_on_the_arguments() -> None:
    in_c = CModelInputs(CONV_CALL, length="ndim")
    assert in_c.format_condition("c", 64) == "args->channels_in == 64"
    assert in_c.format_condition("stride", (1, 2)) == "args->ndim == 2 && args->stride[0] == 1 && args->stride[1] == 2"
    assert IN_C.format_condition("mask", "bottom_right") == "args->mask == 2"
    assert [IN_C.has_member(name) for name in ("lse", "bias", "scale", "pages", "dtype")] == [
        True,
        True,
        False,
        False,
        False,
    ]
