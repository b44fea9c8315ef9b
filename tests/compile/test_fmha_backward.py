"""Gradients of attention on the emulated device: each of the three kernels by itself, and plans of all three.

Lengths are 1, 17 and just around the tiles. dq, dk and dv of a plan come from q, k, v, o, lse and d_o.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from on_device import call_of

import tilewright as tw
from built_kernels import built, tiered
from tilewright import arch as archs
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.errors import UnsupportedError
from tilewright.building.store.artifact import Artifact
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.poisoned_tensor import PoisonedTensor
from tilewright.dispatch.verify import Check, verify, verify_plan
from tilewright.emulator.launch import Mode
from tilewright.ops import fmha
from tilewright.ops.fmha import Config, Problem
from tilewright.ops.fmha.kind import find_kind
from tilewright.ops.fmha.stages import plan_next_stage
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

GPU = "gfx942"
_SIDE_BY_SIDE = (1, 4, 1, 4, 1, 1, 1, 4, 1)  # four waves along the keys, then along the elements of a head
_MMA = (16, 16, 32, 16, 16, 16, 16, 16, 32)
_KR, _IGLP = {"pipeline": "kr_ktr_vr"}, {"pipeline": "kr_ktr_vr_iglp"}


def tiles(m0: int, n0: int, hdim: int) -> dict[str, Any]:
    """Tiles with all of a head in one step, which is what the pipelines take."""
    waves = _SIDE_BY_SIDE if hdim >= 64 else (*_SIDE_BY_SIDE[:6], 2, 2, 1)
    return {"block": (m0, n0, hdim, m0, hdim, m0, 32, hdim, hdim), "waves": waves, "mma": _MMA}


def kernel(family: str, gpu: str = GPU, **fields: Any) -> Kernel:
    common = {"family": family, "mode": "batch", "dtype": "fp16", "pipeline": family}
    return fmha.OP.make_kernel(Config(**{**common, **fields}), gpu)


def pads(step: int) -> dict[str, int]:
    return {"pad_hdim_q": step, "pad_hdim_v": step}


def dot_do_o(**fields: Any) -> Kernel:
    return kernel("dot_do_o", **{"block": (64, 128), "pad_q": True, "pad_hdim_v": 1, **fields})


def convert_dq(**fields: Any) -> Kernel:
    return kernel("convert_dq", **{"block": (128, 32, 64, 128), "pad_q": True, "pad_hdim_q": 1, **fields})


_DROPOUT = {"dropout": True, "store_randval": True}
_BIAS = {"bias": "elementwise", "bias_gradient": True}
GROUP = {"mode": "group"}
# By what tells them apart. What comes before and after takes heads of up to 128 elements.
FIRST = {
    "fp16": dot_do_o(),
    "bf16": dot_do_o(dtype="bf16", pad_hdim_v=0),
    "group": dot_do_o(**GROUP),
}
LAST = {
    "fp16": convert_dq(),
    "bf16-deterministic": convert_dq(dtype="bf16", deterministic=True, pad_hdim_q=0),
    "group": convert_dq(**GROUP),
    "group-deterministic": convert_dq(deterministic=True, **GROUP),
}
GRADIENTS = {
    "plain": kernel("dq_dk_dv", **_IGLP, **tiles(16, 64, 64), **pads(8)),
    "mask": kernel("dq_dk_dv", **_KR, **tiles(32, 64, 32), **pads(1), mask_form="any"),
    "deterministic": kernel(
        "dq_dk_dv", **_IGLP, **tiles(16, 64, 128), dtype="bf16", mask_form="causal", deterministic=True
    ),
    "bias": kernel("dq_dk_dv", **_KR, **tiles(32, 128, 64), **pads(8), **_BIAS),
    "alibi": kernel("dq_dk_dv", **_IGLP, **tiles(16, 64, 64), bias="alibi", mask_form="any"),
    "dropout": kernel("dq_dk_dv", **_IGLP, **tiles(32, 64, 64), **pads(8), **_DROPOUT),
    "group": kernel("dq_dk_dv", **_KR, **tiles(32, 64, 64), **pads(8), **_BIAS, **GROUP, mask_form="any"),
    "group-deterministic": kernel("dq_dk_dv", **_IGLP, **tiles(32, 64, 64), **GROUP, dropout=True, deterministic=True),
    "sink": kernel("dq_dk_dv", **_IGLP, **tiles(16, 64, 64), mask_form="any", sink=3),
}
# One kernel each, without what comes before and after.
OTHERS = {
    "gfx90a": kernel("dq_dk_dv", "gfx90a", **_KR, **tiles(16, 64, 64), **pads(8), mask_form="window"),
    "trload": kernel("dq_dk_dv", "gfx950", pipeline="trload_kr_ktr_vr", **tiles(32, 64, 64), mask_form="any"),
    "trload-few-queries": kernel(
        "dq_dk_dv",
        "gfx950",
        **{**tiles(32, 32, 64), "pipeline": "trload_qr_qtr_dor", "waves": (1,) * 9},
        mask_form="any",
        max_seqlen_q=32,
    ),
}


def problem(made: Kernel, family: str = "", **values: Any) -> Problem:
    """A problem of a kernel's types and features: two sequences of two heads, or three in group mode."""
    fields: Any = made.config
    same = ("mode", "dtype", "bias", "sink", "bias_gradient", "deterministic", "store_randval")
    common: dict[str, Any] = {name: getattr(fields, name) for name in same}
    common |= {"family": family or fields.family, "batch": 2, "heads": 2}
    common |= {"hdim_q": fields.hdim_q or fields.hdim_v, "hdim_v": fields.hdim_v or fields.hdim_q}
    if fields.mask_form != "none":
        common["mask"] = "top_left"
    if fields.dropout:
        common |= {"p_drop": 0.3, "drop_seed": 1234, "drop_offset": 11}
    if fields.mode == "group":
        common |= {"batch": 3, "total_q": 2 * values["seqlen_q"] + 1, "total_k": 2 * values["seqlen_k"] + 1}
    if fields.deterministic:
        common["dq_parts"] = -(-values["seqlen_k"] // fields.tile["n0"])
    return Problem(**{**common, **values})


def problems(name: str, made: Kernel, family: str) -> list[Problem]:
    """What a kernel computes: whole tiles, around them, and what tells it apart."""
    fields: Any = made.config
    m0, n0 = fields.block[:2]
    sizes = [(m0, n0), (m0 - 1 if fields.max_seqlen_q else 2 * m0 + 1, n0 + 1), (1, 1), (17, 17)]
    return [problem(made, family, seqlen_q=q, seqlen_k=k) for q, k in sizes] + [
        problem(made, family, **values) for values in _TOLD_APART.get(name, ())
    ]


_WINDOWS = (
    {"seqlen_q": 40, "seqlen_k": 100, "mask": "bottom_right"},
    {"seqlen_q": 70, "seqlen_k": 50, "mask": "bottom_right"},  # the first 20 queries see nothing
    {"seqlen_q": 70, "seqlen_k": 140, "window_left": 10, "window_right": 3},
    {"seqlen_q": 20, "seqlen_k": 200, "window_left": 5},  # keys that no query sees
)
_TOLD_APART: dict[str, tuple[dict[str, Any], ...]] = {
    "plain": (
        {"seqlen_q": 33, "seqlen_k": 70, "heads": 4, "kv_heads": 2},
        {"seqlen_q": 15, "seqlen_k": 63, "heads": 4, "kv_heads": 1, "layout": "bhsd"},
        {"seqlen_q": 20, "seqlen_k": 65, "hdim_q": 40, "hdim_v": 56},
        {"seqlen_q": 20, "seqlen_k": 65, "hdim_q": 48, "hdim_v": 8, "heads": 4, "kv_heads": 2, "scale": 0.3},
    ),
    "mask": (*_WINDOWS, {"seqlen_q": 33, "seqlen_k": 70, "hdim_q": 31, "hdim_v": 17, "heads": 6, "kv_heads": 3}),
    "deterministic": (
        {"seqlen_q": 70, "seqlen_k": 150, "heads": 4, "kv_heads": 2},
        {"seqlen_q": 70, "seqlen_k": 150, "mask": "bottom_right"},
    ),
    "bias": (
        {"seqlen_q": 33, "seqlen_k": 150, "heads": 4, "kv_heads": 2},
        {"seqlen_q": 31, "seqlen_k": 129, "hdim_q": 24, "layout": "bhsd"},
    ),
    "alibi": ({"seqlen_q": 40, "seqlen_k": 100, "mask": "bottom_right"}, _WINDOWS[2]),
    "dropout": (
        {"seqlen_q": 40, "seqlen_k": 130, "heads": 4, "kv_heads": 2, "p_drop": 0.5},
        {"seqlen_q": 40, "seqlen_k": 130, "p_drop": 0.0},
    ),
    "group": (*_WINDOWS, {"seqlen_q": 40, "seqlen_k": 100, "heads": 4, "kv_heads": 2, "layout": "bhsd"}),
    "group-deterministic": (
        {"seqlen_q": 40, "seqlen_k": 140, "heads": 4, "kv_heads": 2},
        # One of the sequences has all tokens: the others have no queries, or no keys.
        {"seqlen_q": 40, "seqlen_k": 140, "total_q": 40, "total_k": 300},
        {"seqlen_q": 40, "seqlen_k": 70, "total_q": 90, "total_k": 70},
    ),
    "sink": (_WINDOWS[2], _WINDOWS[3]),
    "trload": (_WINDOWS[2], {"seqlen_q": 70, "seqlen_k": 70, "heads": 4, "kv_heads": 2}),
    "trload-few-queries": (
        {"seqlen_q": 32, "seqlen_k": 150, "mask": "bottom_right"},
        {"seqlen_q": 20, "seqlen_k": 150, "window_left": 5},  # keys behind the last query, too
        {"seqlen_q": 20, "seqlen_k": 100, "heads": 4, "kv_heads": 2},
    ),
    "gfx90a": ({"seqlen_q": 70, "seqlen_k": 140, "window_left": 10, "window_right": 3, "heads": 4, "kv_heads": 2},),
}


def faults(checks: list[Check]) -> list[str]:
    return [f"{check.problem}: {check.verdict} {check.message}" for check in checks if not check.ok]


def checked(made: Kernel, listed: list[Problem]) -> list[str]:
    (artifact,) = built([made])
    return faults(verify(made, artifact, tw.Device(f"emulated:{made.arch}"), listed, mode=Mode.STRICT))


def stages(whole: Problem) -> Iterator[Problem]:
    """The problems of the three kernels."""
    chosen: tuple[Any, ...] = ()
    while (stage := plan_next_stage(whole, chosen)) is not None:
        yield stage
        chosen = (*chosen, None)


@pytest.mark.parametrize("name", tiered(FIRST, lambda name: [FIRST[name]]))
def test_sums_of_output_times_gradient(name: str) -> None:
    made = FIRST[name]
    sizes = [{"hdim_v": hdim} for hdim in (128, 64, 17)] if made.config.pad_hdim_v else [{}]
    listed = [
        problem(made, seqlen_q=q, seqlen_k=q, hdim_q=128, p_drop=0.25, **size, layout=layout)
        for q, layout in ((64, "bshd"), (65, "bhsd"), (17, "bshd"), (1, "bshd"))
        for size in sizes
    ]
    assert checked(made, listed) == []


@pytest.mark.parametrize("name", tiered(LAST, lambda name: [LAST[name]]))
def test_sums_are_converted(name: str) -> None:
    made = LAST[name]
    sizes = [{"hdim_q": hdim} for hdim in (128, 64, 17)] if made.config.pad_hdim_q else [{}]
    listed = [
        problem(made, seqlen_q=q, seqlen_k=k, **size, layout=layout)
        for q, k, layout in ((32, 64, "bshd"), (33, 130, "bhsd"), (17, 300, "bshd"), (1, 1, "bshd"))
        for size in sizes
    ]
    assert checked(made, listed) == []


@pytest.mark.parametrize("name", tiered(GRADIENTS, lambda name: [GRADIENTS[name]]))
def test_gradients(name: str) -> None:
    """The kernel between the two by itself: also what it leaves between the stages."""
    made = GRADIENTS[name]
    assert checked(made, [list(stages(whole))[1] for whole in problems(name, made, "backward")]) == []


@pytest.mark.parametrize("name", tiered(OTHERS, lambda name: [OTHERS[name]]))
def test_gradients_on_other_gpus(name: str) -> None:
    made = OTHERS[name]
    assert checked(made, problems(name, made, "dq_dk_dv")) == []


def stages_of(name: str) -> list[Kernel]:
    """The kernels of a gradient. Those of the ends are whichever fit."""
    return [*FIRST.values(), GRADIENTS[name], *LAST.values()]


@pytest.mark.parametrize("name", tiered(GRADIENTS, stages_of))
def test_plans(name: str) -> None:
    kernels = stages_of(name)
    artifacts = dict(zip(kernels, built(kernels), strict=True))
    listed = problems(name, GRADIENTS[name], "backward")
    assert faults(verify_plan(artifacts, tw.Device(f"emulated:{GPU}"), listed, mode=Mode.STRICT)) == []


@pytest.mark.parametrize("name", tiered([*GRADIENTS, *OTHERS], lambda name: [{**GRADIENTS, **OTHERS}[name]]))
def test_lds_is_what_the_compiler_allocates(name: str) -> None:
    made = {**GRADIENTS, **OTHERS}[name]
    (artifact,) = built([made])
    allocated = max(each["lds_bytes"] for each in artifact.facts["resources"])
    assert find_kind(made.config).lds_bytes(made.config, archs.load(made.arch)) == allocated


def test_refused() -> None:
    """What the built kernel says to problems that it would compute wrongly."""
    made = GRADIENTS["plain"]
    (artifact,) = built([made])
    fitting = problem(made, seqlen_q=17, seqlen_k=70)
    call_of(made, artifact, fitting)
    others: list[dict[str, Any]] = [
        {"hdim_q": 65},
        {"hdim_q": 20},
        {"mask": "top_left"},
        {"bias": "alibi"},
        {"p_drop": 0.1},
        {"deterministic": True},
        {"dq_parts": 2},
        {"logits_cap": 30.0},
        {"store_randval": True},
        {"mode": "group", "total_q": 17, "total_k": 70},
    ]
    for changed in others:
        with pytest.raises(UnsupportedError):
            call_of(made, artifact, replace(fitting, **changed))


def outputs(made: Kernel, artifact: Artifact, whole: Problem, *, turned: bool) -> dict[str, bytes]:
    """What a kernel writes, with waves in one order or the other."""
    device, execution = tw.Device(f"emulated:{made.arch}"), get_execution(made.op)
    given = execution.inputs(whole, 1, device.arch)
    call, listed = call_of(made, artifact, whole), execution.tensors(whole)
    placed = [
        PoisonedTensor(tensor, to_numpy_dtype(tensor.dtype, device.arch), given.get(tensor.name)) for tensor in listed
    ]
    buffers = [device.allocate(each.nbytes, each.tensor.name) for each in placed]
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_from(each.memory)
    with device.make_current(), device.emulating(mode=Mode.STRICT, turned=turned):
        call([buffer.address for buffer in buffers], None)
        device.synchronize()
    for buffer, each in zip(buffers, placed, strict=True):
        buffer.copy_to(each.after)
    return {each.tensor.name: each.get_values().tobytes() for each in placed if each.tensor.output}


@pytest.mark.deep
def test_results_repeat() -> None:
    """Sums in a fixed order are the same bits, whatever the order of the waves."""
    made = GRADIENTS["deterministic"]
    (artifact,) = built([made])
    whole = problem(made, seqlen_q=40, seqlen_k=150)
    assert outputs(made, artifact, whole, turned=False) == outputs(made, artifact, whole, turned=True)
