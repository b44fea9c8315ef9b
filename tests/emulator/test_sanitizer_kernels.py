"""Kernels that compute correctly have no findings; one that a rule rejects for a race has it."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from built_kernels import built_unchecked
from ci_kernels import read_list
from tilewright.arch import load
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op, find_violations, parse_kernel
from tilewright.ops.kernel import Kernel

# Rule P323: both waves of a batched compv5 kernel store C.
BOTH_STORE = (
    "gemm-gfx942-batched-fp16-fp16-fp32-fp16-rcr-b64x64x32-w1x1x2-i32x32x16-compv5-intrawave-default-wg2-6ed88b14b1be"
)


def _list_kernels() -> list[Any]:
    """The valid kernels of CI's list. CI checks one of each op and GPU, split-K first; the others are `deep`."""
    seen: set[tuple[str, str]] = set()
    cases: list[Any] = []
    for entry in sorted(read_list(), key=lambda entry: ("splitk" not in entry.name, entry.name)):
        kernel = entry.kernel
        if (
            entry.tree
            or "+" in entry.name
            or find_violations(find_op(kernel.op).rules, kernel.config, load(kernel.arch))
        ):
            continue
        kind = (kernel.op, kernel.arch)
        cases.append(pytest.param(kernel, id=kernel.slug, marks=(pytest.mark.deep,) if kind in seen else ()))
        seen.add(kind)
    return cases


def _verify_checked(kernel: Kernel, checks: str = "all") -> list[Check]:
    device = tw.Device(f"emulated:{kernel.arch}")
    problems = get_execution(kernel.op).trials(kernel.config, device.arch)[:2]
    with device, device.emulating(checks=checks):
        return verify(kernel, built_unchecked(kernel), device, problems, 1, Mode.STRICT)


@pytest.mark.compile
@pytest.mark.parametrize("kernel", _list_kernels())
def test_correct_kernels_have_no_findings(kernel: Kernel) -> None:
    # CK Tile's sorting has lanes without an expert, which read LDS that nobody wrote, and ignore the values.
    checks = _verify_checked(kernel, "races,barriers,progress" if kernel.op == "moe_sorting" else "all")
    assert checks and all(check.ok for check in checks), [check.message for check in checks]


@pytest.mark.compile
def test_a_read_of_lds_that_nobody_wrote_is_found_although_its_value_is_ignored() -> None:
    sorting = next(entry.kernel for entry in read_list() if entry.name.startswith("moe_sorting-gfx942-tile1-6"))
    assert "uninitialized-read: 4 bytes" in _verify_checked(sorting)[0].message


@pytest.mark.compile
def test_a_race_is_found_in_a_kernel_that_rules_reject() -> None:
    checks = _verify_checked(parse_kernel(BOTH_STORE))
    assert all("race: 2 bytes" in check.message and "writes before" in check.message for check in checks)
