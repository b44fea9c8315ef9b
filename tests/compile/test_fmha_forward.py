"""Forward attention, run on emulated GPUs in strict mode and held against the reference.

| kernels on gfx942              | what they show                                                                      |
|--------------------------------|-------------------------------------------------------------------------------------|
| 18 of MATRIX, qr and qr_async, | {no mask, causal top-left, bottom-right, window, sinks} × {no bias, bias, ALiBi} ×  |
| fp16 and bf16                  | {LSE on, off}; rows that see no key; heads that share keys                          |
| group ×2                       | ragged lengths, sequences left out, both pipelines                                  |
| cap ×2, dropout ×2             | both pipelines; random numbers bit by bit, and the result                           |
| hdim ×4, group                 | heads of 64, 96, 128, 192×128, 256; those of MATRIX have 32                         |
| fp32, fp8 ×4                   | other types; scales of the caller; results in fp8, fp16, bf16 and fp32              |
| qs, whole_k, causal, col ×2    | other pipelines, the mask without a left end, transposed values                     |
| edge                           | lengths 1, 17 and around a tile, heads below the tile's; MATRIX has some as well    |

Other GPUs: gfx90a with qr_async, gfx1201 with qr, gfx950 with qr, both forms of qr_async_trload, and v3.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from on_device import call_of, device_of

from built_kernels import built, tiered
from tilewright import arch as archs
from tilewright.base.errors import UnsupportedError
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op, fits
from tilewright.ops.fmha import Problem
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

FMHA = find_op("fmha")
# Tiles that compile quickly; heads of 32.
SMALL: dict[str, Any] = {
    **{"family": "forward", "mode": "batch", "dtype": "fp16", "pipeline": "qr", "pad_q": True, "pad_k": True},
    **{"block": (64, 64, 16, 32, 16, 32), "waves": (4, 1, 1, 4, 1, 1), "mma": (16, 16, 16, 16, 16, 16)},
}
ASYNC: dict[str, Any] = {"pipeline": "qr_async", "pad_hdim_q": 8, "pad_hdim_v": 8}
WIDE = {"block": (64, 64, 32, 64, 32, 64)}
FP8 = {"block": (128, 64, 32, 64, 32, 64), "mma": (32, 32, 32, 32, 32, 32)}
ALL: dict[str, Any] = {"mask_form": "any", "lse": True}

# What a query sees. Queries of the second see no key where there are more of them than keys.
TOP_LEFT = {"mask": "top_left", "seqlen_q": 65, "seqlen_k": 130}
BOTTOM_RIGHT = {"mask": "bottom_right", "seqlen_q": 130, "seqlen_k": 70}
WINDOW = {"mask": "bottom_right", "window_left": 20, "window_right": 5, "seqlen_q": 65, "seqlen_k": 193}
SINK = {"mask": "top_left", "window_left": 10, "seqlen_q": 150, "seqlen_k": 150}
LATE_SINK = {"mask": "bottom_right", "window_left": 3, "window_right": 2, "seqlen_q": 70, "seqlen_k": 200}
NO_MASK = {"seqlen_q": 65, "seqlen_k": 129, "heads": 4, "kv_heads": 2, "layout": "bhsd"}
RAGGED = {"batch": 3, "total_q": 150, "total_k": 300, "seqlen_q": 100, "seqlen_k": 130, "heads": 4, "kv_heads": 2}
SHORT = {"batch": 4, "total_q": 70, "total_k": 40, "seqlen_q": 65, "seqlen_k": 17}
LENGTHS = [{"seqlen_q": n, "seqlen_k": n} for n in (1, 17, 63, 64, 65)]
DROPPED = {"p_drop": 0.2, "drop_seed": 7, "drop_offset": 3, "store_randval": True}

Case = tuple[str, dict[str, Any], list[dict[str, Any]]]


def matrix() -> Iterator[tuple[str, Case]]:
    """Every mask with every bias, with LSE and without. Pipelines and types change from one kernel to the next."""
    features = itertools.product((False, True), ("none", "elementwise", "alibi"), ("none", "any", "sink"))
    for number, (lse, bias, mask) in enumerate(features):
        changes: dict[str, Any] = {"lse": lse, "bias": bias, "dtype": "bf16" if number % 4 < 2 else "fp16"}
        if number % 2:
            changes |= ASYNC
        problems = [NO_MASK, *(LENGTHS if bias == "none" else [])]
        if mask == "any":
            changes |= {"mask_form": "any"}
            problems = [TOP_LEFT, BOTTOM_RIGHT, WINDOW]
        elif mask == "sink":
            changes |= {"mask_form": "window" if lse else "any", "sink": 5}
            problems = [SINK, LATE_SINK]
        yield f"{mask}-{bias}-{'lse' if lse else 'plain'}", ("gfx942", changes, problems)


CASES: dict[str, Case] = {
    **dict(matrix()),
    "group": (
        "gfx942",
        {**ALL, **WIDE, "mode": "group"},
        [{**RAGGED, **see} for see in ({"mask": "top_left"}, {"mask": "bottom_right", "window_left": 8})]
        + [{**SHORT, "mask": "bottom_right"}],
    ),
    "group-async": (
        "gfx942",
        {**ASYNC, "mode": "group", "bias": "alibi", "lse": True, "skip_min_seqlen_q": True},
        [RAGGED, {**SHORT, "min_seqlen_q": 2, "layout": "bhsd"}],
    ),
    "cap": ("gfx942", {**ALL, "soft_cap": True}, [{**TOP_LEFT, "logits_cap": 2.0}, {**WINDOW, "logits_cap": 30.0}]),
    "cap-async": (
        "gfx942",
        {**ASYNC, "mode": "group", "soft_cap": True},
        [{**RAGGED, "logits_cap": 5.0}],
    ),
    "dropout": (
        "gfx942",
        {"dropout": True, "lse": True},
        [
            {**NO_MASK, **DROPPED},
            {"seqlen_q": 65, "seqlen_k": 63, "p_drop": 0.5, "drop_seed": 2**40 + 5, "store_randval": True},
            {"seqlen_q": 64, "p_drop": 0.0},
        ],
    ),
    "dropout-async": (
        "gfx942",
        {**ASYNC, **ALL, "dropout": True, "block": (128, 64, 16, 32, 16, 32), "mma": (32, 32, 16, 32, 32, 16)},
        [{**TOP_LEFT, **DROPPED}, {**WINDOW, "p_drop": 0.3, "drop_seed": 1, "batch": 2}],
    ),
    "hdim-96": (
        "gfx942",
        {"block": (64, 64, 32, 128, 32, 96), "pad_hdim_v": 1},
        [{"seqlen_q": 65, "hdim_q": 96, "hdim_v": 96}],
    ),
    "hdim-128": (
        "gfx942",
        {**ALL, **ASYNC, "block": (64, 64, 32, 128, 32, 128)},
        [{**BOTTOM_RIGHT, "hdim_q": 128}, {**TOP_LEFT, "hdim_q": 104, "hdim_v": 80}],
    ),
    "hdim-192x128": (
        "gfx942",
        {"block": (64, 64, 32, 128, 32, 192), "bias": "elementwise", "dropout": True},
        [{"seqlen_q": 70, "hdim_q": 192, "hdim_v": 128, "p_drop": 0.1}],
    ),
    "hdim-256": ("gfx942", {"block": (64, 64, 32, 256, 32, 256)}, [{"seqlen_q": 70, "hdim_q": 256}]),
    "fp32": ("gfx942", {**ALL, "dtype": "fp32"}, [TOP_LEFT, WINDOW, *({**n, "mask": "top_left"} for n in LENGTHS[:2])]),
    "fp8": (
        "gfx942",
        {**FP8, "dtype": "fp8", "static_quant": True},
        [{"seqlen_q": 65, "seqlen_k": 129, "scale_p": 128.0, "scale_o": 1 / 64}],
    ),
    "fp8bf16": ("gfx942", {**ALL, **FP8, "dtype": "fp8bf16"}, [TOP_LEFT, BOTTOM_RIGHT]),
    "fp8fp32": ("gfx942", {**FP8, **ASYNC, "dtype": "fp8fp32", "lse": True}, [NO_MASK]),
    "fp8fp16": ("gfx942", {**FP8, "dtype": "fp8fp16", "mode": "group"}, [RAGGED]),
    "qs": ("gfx942", {**ALL, "pipeline": "qs"}, [TOP_LEFT, BOTTOM_RIGHT, WINDOW]),
    "whole-k": ("gfx942", {**ALL, "pipeline": "qr_whole_k"}, [TOP_LEFT, BOTTOM_RIGHT, WINDOW]),
    "causal": ("gfx942", {"mask_form": "causal", "dtype": "bf16"}, [TOP_LEFT, BOTTOM_RIGHT]),
    "col": ("gfx942", {"v_layout": "col"}, [NO_MASK, {"seqlen_q": 64, "seqlen_k": 128}]),
    "col-async": ("gfx942", {**ASYNC, "v_layout": "col", "mode": "group"}, [RAGGED]),
    "edge": (
        "gfx942",
        {"pad_hdim_q": 1, "pad_hdim_v": 1, "lse": True},
        [*LENGTHS, {"seqlen_q": 70, "hdim_q": 17, "hdim_v": 31}, {"seqlen_q": 1, "seqlen_k": 129, "hdim_q": 8}],
    ),
    "gfx90a": ("gfx90a", {**ALL, **ASYNC}, [TOP_LEFT, BOTTOM_RIGHT, WINDOW]),
    "gfx950": (
        "gfx950",
        {**ALL, "block": (64, 64, 64, 128, 32, 128), "pad_hdim_q": 1, "pad_hdim_v": 1},
        [{**WINDOW, "hdim_q": 128}, {**TOP_LEFT, "hdim_q": 50}],
    ),
    "gfx950-trload": (
        "gfx950",
        {
            **{**ALL, "pipeline": "qr_async_trload", "pad_hdim_q": 8, "pad_hdim_v": 8},
            **{"block": (64, 64, 64, 64, 32, 64), "mma": (16, 16, 32, 16, 16, 32)},
        },
        [TOP_LEFT, BOTTOM_RIGHT, WINDOW, {"mask": "top_left", "seqlen_q": 17, "hdim_q": 40}],
    ),
    "gfx950-trload-prefill": (
        "gfx950",
        {
            **{"pipeline": "qr_async_trload", "mode": "group", "lse": True},
            **{"block": (128, 64, 32, 64, 32, 64), "mma": (32, 32, 16, 32, 32, 16)},
        },
        [RAGGED],
    ),
    "gfx950-v3": (
        "gfx950",
        {
            **{"pipeline": "v3", "dtype": "bf16", "block": (256, 32, 128, 128, 32, 128)},
            **{"waves": (8, 1, 1, 8, 1, 1), "mma": (32, 32, 16, 32, 32, 16)},
        },
        [{"seqlen_q": 257, "seqlen_k": 97}, {"seqlen_q": 1, "seqlen_k": 1}, {"seqlen_q": 256, "seqlen_k": 128}],
    ),
    "gfx1201": ("gfx1201", ALL, [TOP_LEFT, BOTTOM_RIGHT, WINDOW]),
}


def kernel(name: str) -> Kernel:
    gpu, changes, _ = CASES[name]
    return FMHA.make_kernel(FMHA.config_type(**{**SMALL, **changes}), gpu)


def kernels(name: str) -> list[Kernel]:
    return [kernel(name)]


@cache
def artifact(name: str) -> Artifact:
    """The built kernel of a case."""
    return built([kernel(name)])[0]


def problem(name: str, values: dict[str, Any]) -> Problem:
    """A problem with the features that a case's kernel was compiled for."""
    config = kernel(name).config
    known = {field: getattr(config, field) for field in ("family", "mode", "dtype", "bias", "lse", "sink", "v_layout")}
    sizes = {"heads": 2, "hdim_q": config.hdim_q, "hdim_v": values.get("hdim_q", config.hdim_v)}
    return Problem(**{**known, "static_quant": config.static_quant, **sizes, **values})


def problems(name: str) -> list[Problem]:
    return [problem(name, values) for values in CASES[name][2]]


@pytest.mark.parametrize("name", tiered(CASES, kernels))
def test_a_kernel_computes_what_the_reference_does(name: str) -> None:
    made = kernel(name)
    checks = verify(made, artifact(name), device_of(made), problems(name), mode=Mode.STRICT)
    assert [str(check.problem) + ": " + check.message for check in checks if not check.ok] == []


@pytest.mark.parametrize("name", tiered((name for name, case in CASES.items() if case[0] != "gfx1201"), kernels))
def test_a_kernel_has_the_lds_that_was_predicted(name: str) -> None:
    """But on RDNA, where the compiler puts arrays of a thread into LDS as well."""
    made = kernel(name)
    (device_kernel,) = artifact(name).facts["resources"]
    assert device_kernel["lds_bytes"] == FMHA.kind(made.config).lds_bytes(made.config, archs.load(made.arch))


def test_there_are_enough_pairs() -> None:
    assert len(CASES) <= 48
    assert sum(len(problems(name)) for name in CASES) >= 70


# What a kernel cannot compute: the case, what is asked of it, and the number that its message must have.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("none-none-plain", {"seqlen_q": 64, "mask": "top_left"}, "mask 1"),
    ("none-none-plain", {"seqlen_q": 64, "lse": True}, "lse = 1"),
    ("none-none-plain", {"seqlen_q": 64, "bias": "alibi"}, "bias kind 2"),
    ("none-none-plain", {"seqlen_q": 64, "logits_cap": 2.0}, "cap"),
    ("none-none-plain", {"seqlen_q": 64, "p_drop": 0.5}, "500000"),
    ("none-none-plain", {"seqlen_q": 64, "hdim_q": 24}, "24"),
    ("none-none-plain", {"seqlen_q": 64, "hdim_q": 64}, "64"),
    ("any-none-plain", {"seqlen_q": 64}, "mask 0"),
    ("any-none-plain", {"seqlen_q": 64, "mask": "top_left", "hdim_q": 20}, "20"),
    ("sink-none-plain", {"seqlen_q": 64, "mask": "top_left", "window_left": 3, "sink": 4}, "4 sinks"),
    ("causal", {"seqlen_q": 64, "mask": "top_left", "window_left": 3}, "3 keys"),
    ("cap", {"seqlen_q": 64, "mask": "top_left"}, "cap"),
    ("group", {"mode": "batch", "seqlen_q": 64, "mask": "top_left"}, "group mode = 0"),
    ("dropout", {"seqlen_q": 64, "page_size": 16, "pages": 8}, "16 tokens"),
    ("gfx950-v3", {"seqlen_q": 256, "seqlen_k": 64}, "64"),
]


@pytest.mark.parametrize(("name", "values", "number"), tiered(REFUSED, lambda case: kernels(case[0])))
def test_a_kernel_refuses_what_it_cannot_compute(name: str, values: dict[str, Any], number: str) -> None:
    """The built kernel and the rules about problems agree, and the message has the number."""
    made, asked = kernel(name), problem(name, values)
    assert fits(made.config, asked, made.arch) != []
    with pytest.raises(UnsupportedError, match=number):
        call_of(made, artifact(name), asked)
