"""Rules that say "wrong on the device" are held against the emulated device, in strict mode.

The bad example of such a rule is built although it is illegal, and must not compute what it should; the good example
must. Problems that a fit rule refuses are refused by the built kernel, too. To see that it does well to do so, the
check is taken out of its source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from on_device import Inputs, call_of, compare, computed, device_of, list_rule_cases, outcome, use_headers_of

import tilewright as tw
from built_kernels import built_unchecked
from tilewright import arch as archs
from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.base.errors import UnsupportedError
from tilewright.dispatch.verify import verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.gemm.kinds.preshuffle import shuffle_b
from tilewright.ops.kernel import Kernel
from tilewright.ops.rule import Rule

pytestmark = pytest.mark.compile

GEMM = find_op("gemm")
assert GEMM.execution is not None
EXECUTION = GEMM.execution
RULES = [rule for rule in GEMM.rules if rule.enforced_by == "device"]
FIT_RULES = [rule for rule in GEMM.fit_rules if rule.enforced_by == "device"]
SOME = 2  # problems of each example


def two_groups(problem: Any, config: Any) -> bool:
    """An even number of steps, and a second work-group: strict mode runs its waves in the other order."""
    return problem.m * problem.n > config.block.m * config.block.n and problem.k % (2 * config.block.k) == 0


# Of some bad examples not every problem comes out wrong.
HURT: dict[str, Callable[[Any, Any], bool]] = {
    "P318": two_groups,  # whether a copy of another wave comes too late depends on the order of the waves
    "P319": lambda problem, _: problem.k_batch > 1,  # without a split there is nothing to find in the wrong place
    "T204": lambda problem, config: (
        problem.m > config.block.m
    ),  # the rows that are overwritten are those of another tile
}
# What the launcher of a kernel knows about itself and refuses by, by the name of its change in ci_kernels.CHANGES.
LIFTED = {"S507": "block_m", "S508": "least_steps", "S509": "mma_k", "S510": "unbounded_add", "S515": "add_of_4_bytes"}


def code(rule: Rule) -> str:
    return rule.code


def example(rule: Rule, fields: Any) -> Kernel:
    return GEMM.make_kernel(GEMM.make_example({k: v for k, v in fields.items() if k != "problem"}), rule.arch)


def problems(rule: Rule, config: Any) -> list[Any]:
    """The first trials, and of a kernel with split-K some that split."""
    listed = EXECUTION.trials(config, archs.load(rule.arch))
    whole = [problem for problem in listed if problem.k_batch == 1]
    split = [problem for problem in listed if problem.k_batch > 1]
    return [*whole[:SOME], *split[:SOME]]


def bad_problems(rule: Rule, config: Any) -> list[Any]:
    hurt = HURT.get(rule.code)
    if hurt is None:
        return problems(rule, config)
    return [problem for problem in EXECUTION.trials(config, archs.load(rule.arch)) if hurt(problem, config)][:SOME]


@pytest.mark.parametrize("rule", list_rule_cases(RULES, lambda rule: example(rule, rule.bad)), ids=code)
def test_the_bad_example_computes_wrongly(rule: Rule) -> None:
    kernel = example(rule, rule.bad)
    with use_headers_of(rule):
        artifact = built_unchecked(kernel)
        listed = bad_problems(rule, kernel.config) or [square_problem(kernel)]
        checks = verify(kernel, artifact, device_of(kernel), listed, mode=Mode.STRICT)
    assert len(checks) > 0
    assert {check.verdict for check in checks} <= {"wrong", "fault"}, [(c.problem, c.verdict) for c in checks]


@pytest.mark.parametrize("rule", list_rule_cases(RULES, lambda rule: example(rule, rule.good)), ids=code)
def test_the_good_example_computes_rightly(rule: Rule) -> None:
    kernel = example(rule, rule.good)
    with use_headers_of(rule):
        artifact = built_unchecked(kernel)
        checks = verify(kernel, artifact, device_of(kernel), problems(rule, kernel.config), mode=Mode.STRICT)
    assert len(checks) >= SOME
    assert [(check.problem, check.message) for check in checks if not check.ok] == []


@pytest.mark.parametrize("rule", FIT_RULES, ids=code)
@pytest.mark.deep
def test_a_problem_that_does_not_fit_is_computed_wrongly(rule: Rule) -> None:
    kernel = example(rule, rule.bad)
    fitting, other = small_problem(rule.good, kernel), small_problem(rule.bad, kernel)
    assert example(rule, rule.good) == kernel
    assert [violation.code for violation in tw.fits(kernel.config, other, kernel.arch)] == [rule.code]
    compare(kernel, LIFTED[rule.code], fitting, other, arranged(kernel))


@pytest.mark.deep
def test_a_store_beyond_the_edge_can_come_back_into_c() -> None:
    """S507: row 1 of a C with a stride of 2³¹ bytes is beyond the edge, and 2³¹ bytes more are none in 32 bits."""
    kernel = GEMM.make_kernel(GEMM.make_example(), "gfx942")
    base = {"m": 1, "n": 128, "k": 64, "dtype": "fp16", "layout": "rcr"}
    fitting, other = tw.gemm.Problem(**base), tw.gemm.Problem(**base, stride_c=2**30)
    assert [violation.code for violation in tw.fits(kernel.config, other, kernel.arch)] == ["S507"]
    compare(kernel, LIFTED["S507"], fitting, other)


def test_columns_that_cannot_be_dealt_out_are_refused() -> None:
    """S509 with permute_n: there is no order of B for a part of a block, so that there is nothing to run."""
    fields = {"variant": "preshuffle", "pipeline": "preshufflev2", "scheduler": "default", "pad_n": True}
    shapes = {"block": (64, 64, 32), "waves": (1, 2, 1), "mma": (16, 16, 16), "permute_n": True}
    kernel = GEMM.make_kernel(GEMM.make_example({**fields, **shapes}), "gfx942")
    artifact = built_unchecked(kernel)
    problem, whole = (tw.gemm.Problem(m=64, n=n, k=64, dtype="fp16", layout="rcr") for n in (96, 128))
    assert [violation.code for violation in tw.fits(kernel.config, problem, kernel.arch)] == ["S509"]
    with pytest.raises(UnsupportedError, match="permute_n deals out whole blocks"):
        call_of(kernel, artifact, problem)
    (check,) = verify(kernel, artifact, device_of(kernel), [whole], mode=Mode.STRICT)
    assert check.ok, check.message


@pytest.mark.deep
def test_three_steps_need_the_instance_without_a_loop() -> None:
    """compv4 says that 3 steps have a hot loop, and then sums 5. The launcher knows better."""
    kernel = GEMM.make_kernel(GEMM.make_example({"pipeline": "compv4"}), "gfx942")
    two, three = (tw.gemm.Problem(m=128, n=128, k=32 * steps, dtype="fp16", layout="rcr") for steps in (2, 3))
    sound, tampered = built_unchecked(kernel), built_unchecked(kernel, "unlooped")
    assert [outcome(kernel, sound, problem) for problem in (two, three)] == ["right", "right"]
    assert [outcome(kernel, tampered, problem) for problem in (two, three)] == ["right", "wrong"]


def test_bf16_is_cut_off_not_rounded() -> None:
    """Whole numbers are summed exactly in fp32, so that only the conversion is left to see."""
    (rule,) = [rule for rule in FIT_RULES if rule.code == "S510"]
    kernel = example(rule, rule.good)
    artifact = built_unchecked(kernel)
    # Long enough for sums above 2⁸, the largest up to which bf16 has all whole numbers.
    problem = tw.gemm.Problem(m=128, n=128, k=1024, dtype="bf16", layout="rcr")
    c, expected = computed(kernel, artifact, problem)
    exact = expected.astype(np.float32)
    cut = (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    rounded = exact.astype(to_numpy_dtype("bf16", archs.load(kernel.arch))).astype(np.float32)
    assert (c.get_values().astype(np.float32) == cut).all()
    assert (cut != rounded).any()


def small_problem(fields: Any, kernel: Kernel) -> Any:
    """An example's problem, with what it does not say as small as the block."""
    block = kernel.config.block  # type: ignore[attr-defined]
    sizes = {"m": block.m, "n": block.n, "k": 2 * block.k}
    return GEMM.problem_type(**{**GEMM.example_problem, **sizes, **fields.get("problem", {})})


def square_problem(kernel: Kernel) -> Any:
    """What a preshuffled kernel of a layout that it must not have takes: its B has no gaps where k = n."""
    size = kernel.config.block.n  # type: ignore[attr-defined]
    layout = kernel.config.layout  # type: ignore[attr-defined]
    return GEMM.problem_type(**{**GEMM.example_problem, "m": size, "n": size, "k": size, "layout": layout})


def arranged(kernel: Kernel) -> Callable[[Inputs], Inputs]:
    """Inputs as a kernel wants them: B in the order of its tiles, where it has one."""
    return lambda inputs: {**inputs, "b": in_order(kernel.config, inputs["b"])}


def in_order(config: Any, b: Any) -> Any:
    """B as a kernel wants it. What is no whole tile along k is made one with zeros, and cut to its size again."""
    if config.variant != "preshuffle":
        return b
    k, n = b.shape
    whole = np.zeros((-(-k // config.mma.k) * config.mma.k, n), b.dtype)
    whole[:k] = b
    return shuffle_b(config, whole).ravel(order="F")[: k * n].reshape((k, n), order="F")
