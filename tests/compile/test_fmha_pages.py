"""batch_prefill over pages of several tokens, with the CK headers of 2026: run and checked on the emulated device.

`test_truth` and `test_ck_generations` run the kernels of their samples; here are the answers of a built library, and
other kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from on_device import call_of, device_of

import tilewright as tw
from built_kernels import check_listed, in_tier_ci
from ci_kernels import STORE, format_name, read_list
from ck_trees import ABSENT, NEWER, TREES, use_tree
from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, UnsupportedError
from tilewright.building.builder import build_compile_jobs
from tilewright.building.compile_job import CompileJob
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import find_toolchain
from tilewright.codegen.render import render_unchecked
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import fmha
from tilewright.ops.fmha import Problem
from tilewright.ops.kernel import Kernel

pytestmark = [pytest.mark.compile, pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)]
_COMMON: dict[str, Any] = {
    **{"family": "batch_prefill", "mode": "group", "dtype": "fp16", "pipeline": "qr_async", "paged": True},
    **{"block": (64, 64, 32, 64, 32, 64), "waves": (4, 1, 1, 4, 1, 1), "mma": (16, 16, 16, 16, 16, 16)},
    **{"pad_q": True, "pad_k": True, "pad_hdim_q": 8, "pad_hdim_v": 8},
}
_HEAD_128: dict[str, Any] = {"block": (128, 128, 32, 128, 32, 128), "mma": (32, 32, 16, 32, 32, 16)}


def make_kernel(gpu: str = "gfx942", **fields: Any) -> Kernel:
    return fmha.OP.make_kernel(fmha.Config(**{**_COMMON, **fields}), gpu)


VECTORISED = make_kernel(page_size=16, kv_layout="vectorised", mask_form="any", lse=True)
LARGE_PAGES = make_kernel(page_size=64)
OTHERS = {
    "alibi": make_kernel(page_size=32, bias="alibi", mask_form="any", dtype="bf16", **_HEAD_128),
    "cap": make_kernel(page_size=128, soft_cap=True, **_HEAD_128),
    "dropout": make_kernel(page_size=32, kv_layout="vectorised", dropout=True),
    "elementwise": make_kernel(page_size=64, bias="elementwise", page_lookup="table", dtype="bf16"),
    "gfx90a": make_kernel("gfx90a", page_size=64, kv_layout="vectorised", mask_form="causal"),
    "gfx950": make_kernel("gfx950", page_size=64, **_HEAD_128),
}


@pytest.fixture(autouse=True)
def newer_tree() -> Iterator[str]:
    with use_tree(TREES / NEWER) as generation:
        yield generation


def build(kernel: Kernel) -> Artifact:
    if in_tier_ci() and format_name(kernel, tree=NEWER) not in {entry.name for entry in read_list()}:
        check_listed(kernel)
    unit = CompileJob(render_unchecked(kernel), find_toolchain())
    artifact = build_compile_jobs([unit], jobs=1, tiers=Tiers(STORE)).results[kernel]
    assert isinstance(artifact, Artifact), artifact
    return artifact


def make_problem(kernel: Kernel, **values: Any) -> Problem:
    fields: Any = kernel.config
    same = {name: getattr(fields, name) for name in ("family", "mode", "dtype", "lse", "page_size", "kv_layout")}
    sizes = {"batch": 3, "heads": 4, "kv_heads": 2, "seqlen_q": 17, "total_q": 40, "seqlen_k": 75, "total_k": 130}
    mask = {} if fields.mask_form == "none" else {"mask": "bottom_right"}
    return Problem(**{**same, **sizes, **mask, "hdim_q": 64, **values})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"page_size": 32}, "a page has 32 tokens, this kernel is for pages of 16"),
        ({"kv_layout": "linear"}, "kv_layout 0 and page_lookup 0"),
        ({"page_lookup": "table"}, "kv_layout 1 and page_lookup 1"),
        ({"pages": 2**22}, "the cache has 8589934592 elements, must have at most 1073741823"),
    ],
)
def test_a_library_refuses_other_pages(values: dict[str, Any], message: str) -> None:
    asked = make_problem(VECTORISED, **values)
    assert tw.fits(VECTORISED.config, asked, VECTORISED.arch) != []
    with pytest.raises(UnsupportedError, match=message):
        call_of(VECTORISED, build(VECTORISED), asked)


def test_no_tensor_may_be_missing() -> None:
    asked = make_problem(VECTORISED)
    call, tensors = call_of(VECTORISED, build(VECTORISED), asked), get_execution("fmha").tensors(asked)
    assert "last_page_lens" in {tensor.name for tensor in tensors}
    for missing in range(len(tensors)):
        addresses = [0 if i == missing else 4096 for i in range(len(tensors))]
        with pytest.raises(InvalidValueError, match="must not be null"):
            call(addresses, None)


def test_sinks_are_a_run_time_argument() -> None:
    """The same library computes problems with sinks and without, and needs the address of sinks if there are any."""
    problems = [make_problem(VECTORISED, sink_logits=sinks) for sinks in (False, True)]
    checks = verify(VECTORISED, build(VECTORISED), device_of(VECTORISED), problems, mode=Mode.STRICT)
    assert [check for check in checks if not check.ok] == []
    call = call_of(VECTORISED, build(VECTORISED), problems[1])
    names = [tensor.name for tensor in get_execution("fmha").tensors(problems[1])]
    with pytest.raises(InvalidValueError, match="sink_logits must not be null with sinks"):
        call([0 if name == "sink_logits" else 4096 for name in names], None)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "values"), [("cap", {"logits_cap": 30.0, "hdim_q": 128}), ("alibi", {"bias": "alibi", "hdim_q": 128})]
)
def test_sinks_are_refused_where_they_are_wrong(name: str, values: dict[str, Any]) -> None:
    kernel = OTHERS[name]
    asked = make_problem(kernel, **values)
    assert tw.fits(kernel.config, asked, kernel.arch) == []
    call_of(kernel, build(kernel), asked)
    with_sinks = replace(asked, sink_logits=True)
    assert tw.fits(kernel.config, with_sinks, kernel.arch) != []
    with pytest.raises(UnsupportedError, match="there are sinks, which this kernel does not have"):
        call_of(kernel, build(kernel), with_sinks)


@pytest.mark.deep
def test_sinks_with_a_cap_are_wrong() -> None:
    """The reason of S620: without the rule, results are wrong."""
    kernel = OTHERS["cap"]
    text = "!takes_sinks || D::soft_cap"
    source = render_unchecked(kernel)
    files = {name: each.replace(text, "!takes_sinks") for name, each in source.files.items()}
    assert files != source.files
    unit = CompileJob(replace(source, files=files), find_toolchain())
    artifact = build_compile_jobs([unit], jobs=1, tiers=Tiers(STORE)).results[kernel]
    assert isinstance(artifact, Artifact), artifact
    asked = make_problem(kernel, logits_cap=30.0, hdim_q=128)
    problems = [asked, replace(asked, sink_logits=True)]
    checks = verify(kernel, artifact, device_of(kernel), problems, mode=Mode.STRICT)
    assert [check.ok for check in checks] == [True, False]


@pytest.mark.deep
def test_small_heads_of_several_are_refused_in_large_pages() -> None:
    """Loads behind the last head of the last page would leave the cache; those of a single key head do not."""
    asked = make_problem(LARGE_PAGES, hdim_q=40)
    assert tw.fits(LARGE_PAGES.config, asked, LARGE_PAGES.arch) != []
    with pytest.raises(UnsupportedError, match="must be as large as the tiles"):
        call_of(LARGE_PAGES, build(LARGE_PAGES), asked)
    single = [make_problem(LARGE_PAGES, hdim_q=40, heads=3, kv_heads=1)]
    (check,) = verify(LARGE_PAGES, build(LARGE_PAGES), device_of(LARGE_PAGES), single, mode=Mode.STRICT)
    assert check.ok, check


@pytest.mark.deep
@pytest.mark.parametrize("name", OTHERS)
def test_another_kernel_is_right_on_its_trials(name: str) -> None:
    kernel = OTHERS[name]
    trials = get_execution("fmha").trials(kernel.config, archs.load(kernel.arch))
    checks = verify(kernel, build(kernel), device_of(kernel), trials, mode=Mode.STRICT)
    assert len(checks) >= 16
    assert [check for check in checks if not check.ok] == []
