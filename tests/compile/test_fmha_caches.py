"""Attention over caches, run and checked on the emulated device: splitkv and combine, pagedkv, appendkv, batch_prefill.

Caches have ragged lengths, the empty one too, and pages in any order. Lengths are 1, 17 and just around the tiles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from on_device import call_of

import tilewright as tw
from built_kernels import built, tiered
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, UnsupportedError
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import Check, verify, verify_plan
from tilewright.emulator.launch import Mode
from tilewright.ops import fmha
from tilewright.ops.fmha import Problem
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

GPU = "gfx942"
_ATTENTION: dict[str, Any] = {
    "block": (64, 64, 32, 64, 32, 64),
    "waves": (4, 1, 1, 4, 1, 1),
    "mma": (16, 16, 16, 16, 16, 16),
    "pad_q": True,
    "pad_k": True,
}
_PIPELINES = {
    "splitkv": "qr",
    "pagedkv": "qr_pagedkv",
    "combine": "combine",
    "appendkv": "appendkv",
    "batch_prefill": "qr_async",
}
_FIELDS: dict[str, dict[str, Any]] = {
    "splitkv": {**_ATTENTION, "uneven_splits": True},
    "pagedkv": {**_ATTENTION, "paged": True},
    "combine": {"block": (32, 64), "pad_q": True, "log_max_splits": 3},
    "appendkv": {"block": (64, 64, 64, 64), "pad_q": True, "pad_k": True},
    "batch_prefill": {**_ATTENTION, "pad_hdim_q": 8, "pad_hdim_v": 8, "paged": True},
}
# 4 waves side by side, and the scores shuffled through LDS: for few queries.
_NWARP = {"pipeline": "qr_nwarp_sshuffle", "block": (16, 64, 32, 64, 32, 64), "waves": (1, 4, 1, 1, 4, 1)}
_LARGE = {"block": (64, 64, 32, 128, 32, 128)}
_SMALL_PAGES = {"block": (64, 16, 32, 64, 16, 64)}


def kernel(family: str, gpu: str = GPU, **fields: Any) -> Kernel:
    common = {"family": family, "mode": "batch", "dtype": "fp16", "pipeline": _PIPELINES[family]}
    return fmha.OP.make_kernel(fmha.Config(**{**common, **_FIELDS[family], **fields}), gpu)


# By what tells them apart.
KERNELS = {
    "splitkv": kernel("splitkv"),
    "splitkv-mask": kernel("splitkv", mask_form="any"),
    "splitkv-sink-group": kernel("splitkv", mode="group", mask_form="any", sink=5),
    "splitkv-paged": kernel("splitkv", paged=True, mask_form="any", **_SMALL_PAGES),
    "splitkv-paged-group": kernel("splitkv", mode="group", paged=True, bias="alibi"),
    "splitkv-nwarp": kernel("splitkv", bias="elementwise", **_NWARP),
    "splitkv-nwarp-merged": kernel("splitkv", paged=True, merge_heads=True, **_NWARP),
    "splitkv-cap": kernel("splitkv", dtype="bf16", soft_cap=True, **_LARGE),
    "combine": kernel("combine", lse=True),
    "combine-group": kernel("combine", mode="group", block=(16, 64), log_max_splits=7),
    "combine-bf16": kernel("combine", dtype="bf16", block=(32, 128)),
    "pagedkv": kernel("pagedkv", lse=True, **_SMALL_PAGES),
    "pagedkv-mask": kernel("pagedkv", mask_form="any", bias="elementwise", pad_hdim_q=1, pad_hdim_v=1),
    "pagedkv-group": kernel("pagedkv", mode="group", mask_form="any", sink=3, lse=True, skip_min_seqlen_q=True),
    "appendkv": kernel("appendkv", dtype="bf16", paged=True),
    "appendkv-interleaved": kernel("appendkv", rotary="interleaved", paged=True),
    "appendkv-half": kernel("appendkv", rotary="half"),
    "batch_prefill": kernel("batch_prefill", mask_form="any", lse=True),
    "batch_prefill-group": kernel("batch_prefill", mode="group", mask_form="causal"),
}


def problem(made: Kernel, **values: Any) -> Problem:
    """A problem of a kernel's types and features: 3 sequences, 2 query heads for each of the 2 key heads."""
    fields: Any = made.config
    same = ("family", "mode", "dtype", "bias", "lse", "sink", "rotary", "static_quant")
    common: dict[str, Any] = {name: getattr(fields, name) for name in same}
    common |= {"batch": 3, "heads": 4, "kv_heads": 2, "seqlen_q": 17, "hdim_q": fields.hdim_q or fields.hdim_v}
    common["logits_cap"] = 15.0 if fields.soft_cap else 0.0
    if fields.mask_form != "none":
        common["mask"] = "bottom_right"
    if fields.mode == "group":
        common |= {"total_q": 2 * values["seqlen_q"] + 1, "total_k": 2 * values["seqlen_k"] + 3}
    return Problem(**{**common, **values})


def _splitkv(made: Kernel) -> list[Problem]:
    """1, 2 and 7 parts: of a length that they divide, of one that they do not, and of fewer keys than parts."""
    fields: Any = made.config
    pages = {"page_size": 2 * fields.tile["n0"]} if fields.paged else {}
    listed = [
        problem(made, num_splits=1, seqlen_q=64, seqlen_k=128, **pages),
        problem(made, num_splits=2, seqlen_q=65, seqlen_k=129, layout="bhsd", **pages),
        problem(made, num_splits=7, seqlen_q=17, seqlen_k=150, **pages),
        problem(made, num_splits=7, seqlen_q=1, seqlen_k=5, batch=2 if fields.mode == "batch" else 3, **pages),
    ]
    if fields.mask_form != "none":
        listed += [
            problem(made, num_splits=2, seqlen_q=63, seqlen_k=100, mask="top_left", **pages),
            problem(made, num_splits=7, seqlen_q=40, seqlen_k=190, window_left=30, window_right=4, **pages),
        ]
    return listed


def _combine(made: Kernel) -> list[Problem]:
    listed = [problem(made, num_splits=parts, seqlen_q=17, seqlen_k=40) for parts in (1, 2, 7)]
    most = 1 << made.config.log_max_splits
    return [*listed, problem(made, num_splits=most, seqlen_q=1 if most < 100 else 3, seqlen_k=200, layout="bhsd")]


def _pagedkv(made: Kernel) -> list[Problem]:
    """Pages as large as a tile, and larger."""
    fields: Any = made.config
    n0 = fields.tile["n0"]
    small = {"hdim_q": 48, "hdim_v": 40} if fields.pad_hdim_q else {}
    listed = [
        problem(made, seqlen_q=65, seqlen_k=150, page_size=n0),
        problem(made, seqlen_q=17, seqlen_k=64, page_size=64, layout="bhsd", **small),
        problem(made, seqlen_q=1, seqlen_k=129, page_size=4 * n0, kv_heads=4),
    ]
    if fields.mask_form != "none":
        listed.append(problem(made, seqlen_q=70, seqlen_k=140, page_size=n0, window_left=20, window_right=0))
        listed.append(problem(made, seqlen_q=64, seqlen_k=17, page_size=n0))
    if fields.skip_min_seqlen_q:
        listed.append(problem(made, seqlen_q=64, seqlen_k=65, page_size=n0, min_seqlen_q=1))
    return listed


def _appendkv(made: Kernel) -> list[Problem]:
    """More new tokens than a tile has, as many, and one; heads rotated whole and in part."""
    fields: Any = made.config
    pages = {"page_size": 64} if fields.paged else {}
    turned = {"rotary_dim": 32} if fields.rotary != "none" else {}
    return [
        problem(made, seqlen_q=70, seqlen_k=200, seqlen_new=70, mask="bottom_right", **pages),
        problem(made, seqlen_q=1, seqlen_k=129, seqlen_new=1, layout="bhsd", **pages),
        problem(made, seqlen_q=17, seqlen_k=150, seqlen_new=64, mask="bottom_right", **pages, **turned),
    ]


def _batch_prefill(made: Kernel) -> list[Problem]:
    fields: Any = made.config
    listed = [
        problem(made, seqlen_q=65, seqlen_k=130, page_size=1),
        problem(made, seqlen_q=17, seqlen_k=64, page_size=1, layout="bhsd", hdim_q=48, hdim_v=40),
        problem(made, seqlen_q=1, seqlen_k=63, page_size=1, mask="top_left"),
    ]
    if fields.mask_form == "any":
        # The window of the last rows begins behind the first tile of keys.
        listed.append(problem(made, seqlen_q=100, seqlen_k=200, page_size=1, window_left=30, window_right=2))
    return listed


_PROBLEMS = {
    "splitkv": _splitkv,
    "combine": _combine,
    "pagedkv": _pagedkv,
    "appendkv": _appendkv,
    "batch_prefill": _batch_prefill,
}


def problems(made: Kernel) -> list[Problem]:
    family: str = made.config.family
    return _PROBLEMS[family](made)


def device(made: Kernel) -> tw.Device:
    return tw.Device(f"emulated:{archs.load(made.arch).name}")


def wrong(checks: list[Check]) -> list[str]:
    return [f"{check.problem}: {check.verdict}: {check.message}" for check in checks if not check.ok]


def named(*names: str) -> list[Kernel]:
    return [KERNELS[name] for name in names]


JOINED = [("splitkv-mask", "combine"), ("splitkv-sink-group", "combine-group")]
NEEDING_TENSORS = ["splitkv-paged", "combine", "pagedkv-group", "appendkv-half", "batch_prefill-group"]


def test_there_are_problems_enough() -> None:
    assert len(KERNELS) <= 22
    assert sum(len(problems(made)) for made in KERNELS.values()) >= 60


@pytest.mark.parametrize("name", tiered(KERNELS, named))
def test_a_kernel_computes_what_it_should(name: str) -> None:
    made = KERNELS[name]
    (artifact,) = built([made])
    listed = problems(made)
    checks = verify(made, artifact, device(made), listed, mode=Mode.STRICT)
    assert len(checks) == len(listed)
    assert wrong(checks) == []


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize(("first", "second"), tiered(JOINED, lambda pair: named(*pair)))
def test_parts_are_joined(first: str, second: str, parts: int) -> None:
    """Both kernels, one after the other, as a forward problem asks for them."""
    split, joined = KERNELS[first], KERNELS[second]
    artifacts = dict(zip((split, joined), built([split, joined]), strict=True))
    asked = problem(split, family="forward", num_splits=parts, seqlen_q=65, seqlen_k=100, lse=joined.config.lse)
    checks = verify_plan(artifacts, device(split), [asked, replace(asked, layout="bhsd")], mode=Mode.STRICT)
    assert wrong(checks) == []


@pytest.mark.parametrize("name", tiered(KERNELS, named))
def test_lds_is_what_the_compiler_reserves(name: str) -> None:
    """batch_prefill has a second kernel, which copies the list of pages and has none."""
    made = KERNELS[name]
    (artifact,) = built([made])
    reserved = max(each["lds_bytes"] for each in artifact.facts["resources"])
    assert reserved == fmha.OP.kind(made.config).lds_bytes(made.config, archs.load(made.arch))


REFUSED = {
    "more parts than combine joins": (
        "combine",
        {"num_splits": 9, "seqlen_k": 40},
        "9 parts, this kernel joins 1 to 8",
    ),
    "a page that ends inside a tile": ("pagedkv", {"page_size": 24, "seqlen_k": 40}, "24 tokens, must be a multiple"),
    "pages smaller than a tile": (
        "appendkv",
        {"page_size": 32, "seqlen_k": 40, "seqlen_new": 4},
        "32 tokens, must have at least n0 = 64",
    ),
    "pages of several tokens": (
        "batch_prefill",
        {"page_size": 2, "seqlen_k": 40},
        "2 tokens, this kernel is for pages",
    ),
    "a rotated part across the middle of a thread's elements": (
        "appendkv-half",
        {"rotary_dim": 24, "seqlen_k": 40, "seqlen_new": 4},
        "rotary_dim is 24, must be a multiple of 16",
    ),
    "a cap that was not built in": ("splitkv", {"num_splits": 2, "seqlen_k": 40, "logits_cap": 1.0}, "a cap of scores"),
}


@pytest.mark.parametrize("what", tiered(REFUSED, lambda what: named(REFUSED[what][0])))
def test_the_library_refuses(what: str) -> None:
    name, values, message = REFUSED[what]
    made = KERNELS[name]
    (artifact,) = built([made])
    asked = problem(made, **values)
    assert tw.fits(made.config, asked, made.arch) != []
    with pytest.raises(UnsupportedError, match=message):
        call_of(made, artifact, asked)


@pytest.mark.parametrize("name", tiered(NEEDING_TENSORS, named))
def test_no_tensor_may_be_missing(name: str) -> None:
    """Every input and output that a problem has, one after the other."""
    made = KERNELS[name]
    (artifact,) = built([made])
    asked = problems(made)[0]
    call, tensors = call_of(made, artifact, asked), get_execution("fmha").tensors(asked)
    needed = [i for i, tensor in enumerate(tensors) if tensor.name != "seqlens_k" or made.config.family == "appendkv"]
    for missing in needed:
        addresses = [0 if i == missing else 4096 for i in range(len(tensors))]
        with pytest.raises(InvalidValueError, match="must not be null"):
            call(addresses, None)


@pytest.mark.parametrize("name", tiered(["splitkv-paged", "pagedkv-group"], lambda name: named(name, "combine")))
def test_a_registry_runs_what_a_framework_asks_for(name: str) -> None:
    """A forward problem with pages, and with parts where the kernel has them."""
    made = KERNELS[name]
    kernels = [made, KERNELS["combine"]] if made.config.family == "splitkv" else [made]
    artifacts = dict(zip(kernels, built(kernels), strict=True))
    parts = {"num_splits": 3} if made.config.family == "splitkv" else {}
    asked = problem(made, family="forward", lse=True, seqlen_q=20, seqlen_k=90, page_size=64, **parts)
    registry, gpu, execution = tw.Registry(tuple(kernels), artifacts), device(made), get_execution("fmha")
    inputs = execution.inputs(asked, 1, gpu.arch)
    expected = execution.reference(asked, inputs, gpu.arch)
    with gpu.emulating(mode=Mode.STRICT):
        found = registry.run(asked, *inputs.values(), device=gpu)
    allowed = execution.tolerance(made.config, asked, inputs, expected, gpu.arch)
    for tensor, result in zip(("o", "lse"), found, strict=True):
        values, wanted = np.asarray(result, np.float64), expected[tensor]
        with np.errstate(invalid="ignore"):  # an infinity less itself
            off = np.where(values == wanted, 0.0, np.abs(values - wanted))
        assert (off <= allowed[tensor].limit).all()
