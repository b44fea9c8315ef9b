"""The C structs of calls: their layout, which must never change, their headers, and their values for problems."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.ops import OPS
from tilewright.ops.call_header import format_enumerator, format_header
from tilewright.ops.call_struct import CallStruct
from tilewright.ops.fmha.call import CALL as FMHA
from tilewright.ops.gemm.call import CALL as GEMM
from tilewright.ops.grouped_conv.call import CALL as CONV
from tilewright.ops.norm.problem import CALL as NORM

GOLDEN = Path(__file__).parent.parent / "golden"
CALLS = (GEMM, CONV, FMHA, NORM)
# Sizes, which only grow, and some offsets. Built packs and C programs depend on them.
SIZES = {"gemm": 264, "grouped_conv": 240, "fmha": 1152, "norm": 144}
OFFSETS = {
    "gemm": {"size": 0, "a": 8, "b": 16, "c": 24, "d": 32, "m": 96, "stride_a": 120, "stride_d": 144, "k_batch": 208},
    "grouped_conv": {"a": 8, "c": 24, "ndim": 32, "channels_in": 56, "input_size": 72, "right_pad": 192},
    "fmha": {
        "q": 8,
        "k": 48,
        "o": 128,
        "dbias": 688,
        "seqstart_q": 728,
        "group_mode": 824,
        "mask": 888,
        "last_page_lens": 1112,
    },
    "norm": {"x": 8, "y": 48, "rstd": 80, "rows": 88, "stride_x": 104, "epsilon": 136},
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.op)
def test_the_layout_stays(call: CallStruct) -> None:
    assert ctypes.sizeof(call.type) == SIZES[call.op]
    assert {name: getattr(call.type, name).offset for name in OFFSETS[call.op]} == OFFSETS[call.op]
    fields = [getattr(call.type, name) for name, *_ in call.type._fields_]
    ends = [field.offset + field.size for field in fields]
    assert [field.offset for field in fields] == [0, *ends[:-1]] and ends[-1] == SIZES[call.op]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.op)
def test_the_header(call: CallStruct, request: pytest.FixtureRequest) -> None:
    ((name, text),) = format_header(call).items()
    path = GOLDEN / call.op / name
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert path.read_text() == text
    assert max(map(len, text.splitlines())) <= 120
    (op,) = (op for op in OPS if op.name == call.op)
    assert op.support[name] == text
    body = text.split(f"typedef struct {call.name} ")[1].split("}")[0]
    declared = re.findall(r"^    [a-z_0-9* ]+ ([a-z_0-9]+)[^;]*;", body, re.MULTILINE)
    assert declared == [name for name, *_ in call.type._fields_]


def test_a_gemm_fills_the_struct() -> None:
    problem = tw.gemm.Problem(
        m=3, n=5, k=7, dtype="fp16", layout="crr", batch=2, k_batch=4, num_d=2, elementwise="MultiDAdd", stride_a=8
    )
    args = GEMM.make_arguments(problem)
    assert (args.size, args.m, args.n, args.k) == (ctypes.sizeof(GEMM.type), 3, 5, 7)
    assert (args.stride_a, args.stride_b, args.stride_c, list(args.stride_d[:3])) == (8, 5, 5, [5, 5, 0])
    assert (args.batch, args.k_batch) == (2, 4)
    assert (args.batch_stride_a, args.batch_stride_b, args.batch_stride_c) == (7 * 8, 7 * 5, 3 * 5)
    assert (args.a, args.workspace, args.workspace_size) == (None, None, 0)
    GEMM.make_address_setter(problem)(args, (16, 32, 48, 64, 80))
    assert (args.a, args.b, list(args.d[:3]), args.c) == (16, 32, [48, 64, None], 80)


def test_addresses_must_be_as_many_as_the_tensors() -> None:
    problem = tw.gemm.Problem(m=3, n=5, k=7, dtype="fp16", layout="crr")
    with pytest.raises(ValueError, match="shorter"):
        GEMM.make_address_setter(problem)(GEMM.make_arguments(problem), (16, 32))


def test_names_are_numbers_of_an_enum() -> None:
    problem = tw.fmha.Problem(
        family="forward", dtype="fp16", seqlen_q=64, hdim_q=64, mask="bottom_right", bias="alibi", lse=True
    )
    args = FMHA.make_arguments(problem)
    assert (args.mask, args.bias_kind, args.rotary, args.wants_lse) == (2, 2, 0, 1)
    assert format_enumerator(FMHA, "mask", "bottom_right") == "TW_FMHA_BOTTOM_RIGHT"
    assert format_enumerator(FMHA, "mask", "none") == "TW_FMHA_NO_MASK"
