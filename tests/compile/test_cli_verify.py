"""`tilewright verify` on an emulated device, with kernels that are right and ones that are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from built_kernels import STORE, built
from tilewright.base import knobs
from tilewright.base.errors import InvalidValueError
from tilewright.cli.app import root
from tilewright.cli.problems import read_problem
from tilewright.dispatch.poisoned_tensor import POISON, PoisonedTensor
from tilewright.dispatch.verify import Check, verify
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.execution import Tensor
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.problem_text import format_problem
from tilewright.runtime.device import Device

pytestmark = pytest.mark.compile

GEMM = find_op("gemm")
DEVICE = "emulated:gfx942"
CONFIG = tw.gemm.config(
    variant="standard",
    dtype="fp16",
    layout="rcr",
    block=(64, 64, 32),
    waves=(2, 2, 1),
    mma=(32, 32, 8),
    pipeline="compv3",
    scheduler="intrawave",
    epilogue="default",
)
KERNEL = tw.kernel_of(CONFIG, "gfx942")


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are found where other tests keep theirs."""
    monkeypatch.setenv(knobs.STORE.name, str(STORE.root))
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    yield


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["verify", *arguments])


def checks(kernel: Kernel, *texts: str, mode: Mode = Mode.STRICT) -> list[Check]:
    (artifact,) = built([kernel])
    problems = [read_problem(GEMM, kernel.config, text) for text in texts]
    return verify(kernel, artifact, Device(DEVICE), problems, mode=mode)


def test_a_right_kernel_passes_its_trials() -> None:
    result = run(KERNEL.slug, "--device", DEVICE, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    (kernel,) = document["kernels"]
    trials = GEMM.execution.trials(CONFIG, tw.load("gfx942"))  # type: ignore[union-attr]
    assert (document["device"], kernel["name"], len(kernel["checks"])) == (DEVICE, KERNEL.slug, len(trials))
    for check, problem in zip(kernel["checks"], trials, strict=True):
        assert (check["verdict"], check["message"]) == ("ok", "")
        assert 0 <= check["share"] < 0.7 and check["error_ulps"] < 1
        assert 0 <= check["error_rel"] < 0.002 and check["error_abs"] >= check["error_rel"]
        assert check["share"] == check[f"{check['bound']}_share"] == max(check["element_share"], check["rms_share"])
        text = ",".join(f"{name}={value}" for name, value in check["problem"].items())
        assert read_problem(GEMM, CONFIG, text) == problem
        padded = [
            -(-size // tile) * tile for size, tile in zip((problem.m, problem.n, problem.k), CONFIG.block, strict=True)
        ]
        assert check["counters"]["matrix_flops"] == 2 * np.prod(padded)


def test_the_table_and_the_exit_code() -> None:
    fine = run(KERNEL.slug, "--device", DEVICE, "--trials", "1", "--mode", "fast")
    assert fine.exit_code == 0
    assert "m=311 n=256 k=128" in fine.stdout and "all right: 1 problem on 1 kernel" in fine.stdout
    other = run(KERNEL.slug, "--device", DEVICE, "--problem", "m=64,n=65,k=64", "--problem", "m=1,n=64,k=32")
    assert other.exit_code == 1
    assert "S503" in other.stdout and "1 not ok:" in other.stdout


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel held against a reference that leaves one term of each sum out."""
    execution = GEMM.execution
    assert execution is not None

    def short(problem: Any, inputs: Any, arch: Any) -> Any:
        less = {**inputs, "a": inputs["a"].copy()}
        less["a"][..., 0] = 0
        return execution.reference(problem, less, arch)

    changed: Op = replace(GEMM, execution=replace(execution, reference=short))
    monkeypatch.setattr("tilewright.dispatch.plan.find_op", lambda _: changed)
    (check,) = checks(KERNEL, "m=64,n=64,k=64")
    assert check.verdict == "wrong" and check.share > 1 and check.error_ulps > 1
    assert f"c[{check.worst[0]}, {check.worst[1]}] is" in check.message and "elements are wrong" in check.message


def test_memory_that_is_too_short_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """C ends a row too early: the last store goes beyond it."""
    execution = GEMM.execution
    assert execution is not None

    def cut(problem: Any) -> Any:
        *inputs, c = execution.tensors(problem)
        return (*inputs, replace(c, shape=(problem.m - 1, problem.n)))

    changed = replace(GEMM, execution=replace(execution, tensors=cut))
    monkeypatch.setattr("tilewright.dispatch.plan.find_op", lambda _: changed)
    (check,) = checks(KERNEL, "m=64,n=64,k=32")
    assert (check.verdict, check.counters) == ("fault", None)
    assert "memory-fault" in check.message


def test_strict_and_fast_count_the_same() -> None:
    (strict,) = checks(KERNEL, "m=65,n=128,k=96")
    (fast,) = checks(KERNEL, "m=65,n=128,k=96", mode=Mode.FAST)
    assert strict.counters is not None and fast.counters is not None
    assert strict.counters.matrix_flops == fast.counters.matrix_flops == 2 * 128 * 128 * 96
    assert strict.counters.global_read_bytes == fast.counters.global_read_bytes


def test_a_set_and_an_op_with_settings(tmp_path: Path) -> None:
    fields = "variant=standard dtype=fp16 layout=rcr block=64x64x32 waves=2x2x1 mma=32x32x8 pipeline=compv3"
    words = f"{fields} scheduler=intrawave epilogue=default".split()
    options = [word for pair in words for word in ("-s", pair)]
    by_fields = run("gemm", "--device", DEVICE, "--trials", "1", "--json", *options)
    assert [k["name"] for k in json.loads(by_fields.stdout)["kernels"]] == [KERNEL.slug]
    pairs = dict(word.split("=") for word in words)
    text = "\n".join(f'{name} = "{value}"' for name, value in pairs.items())
    file = tmp_path / "mine.toml"
    file.write_text(f'op = "gemm"\nname = "mine"\ndoc = "One."\narchs = ["gfx942"]\n\n[[space]]\n{text}\n')
    by_file = run(str(file), "--device", DEVICE, "--trials", "1", "--json")
    assert [k["name"] for k in json.loads(by_file.stdout)["kernels"]] == [KERNEL.slug]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((KERNEL.slug,), "no device is given"),
        ((KERNEL.slug, "--device", "emulated:gfx90a"), "is a kernel for gfx942"),
        ((KERNEL.slug, "--device", "emulated:gfx94"), "unknown device"),
        (("fp16_rcr_essentia", "--device", DEVICE), "Did you mean 'fp16_rcr_essential'"),
        ((KERNEL.slug, "--device", DEVICE, "--problem", "m=3"), "does not give n, k"),
        ((KERNEL.slug, "--device", DEVICE, "--problem", "m=3,n=4,k=5,q=6"), "unknown field of a gemm problem"),
        ((KERNEL.slug, "--device", DEVICE, "--problem", "m=3,n"), "FIELD=VALUE"),
    ],
)
def test_what_cannot_be_meant(arguments: tuple[str, ...], what: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert what in result.stderr


def test_problems_are_written_as_they_are_read() -> None:
    problem = tw.gemm.Problem(m=3, n=64, k=32, dtype="fp16", layout="rcr", stride_c=72, k_batch=2)
    text = format_problem(problem, CONFIG)
    assert text == "m=3,n=64,k=32,k_batch=2,stride_c=72"
    assert read_problem(GEMM, CONFIG, text) == problem


def test_gaps_and_inputs_are_watched() -> None:
    kind = np.dtype(np.float16)
    out = PoisonedTensor(Tensor("c", "fp16", (2, 3), (4, 1), output=True), kind, None)
    assert out.nbytes == 7 * 2 and set(out.memory) == {POISON} and out.find_untouched().all()
    np.ndarray((2, 3), kind, out.after, strides=(8, 2))[...] = 1
    assert out.describe_stray_writes() == "" and not out.find_untouched().any() and (out.get_values() == 1).all()
    out.after[6] = 0  # in the gap after the first line
    assert out.describe_stray_writes() == "gaps between the lines of c were written: 1 elements, the first at offset 3"
    given = PoisonedTensor(Tensor("a", "fp16", (2, 3), (1, 2)), kind, np.ones((2, 3), kind))
    assert given.describe_stray_writes() == ""
    given.after[0] = 1
    assert "the input a was changed" in given.describe_stray_writes()


def test_a_kernel_of_another_gpu_is_refused() -> None:
    (artifact,) = built([KERNEL])
    with pytest.raises(InvalidValueError, match="is a kernel for gfx942"):
        verify(KERNEL, artifact, Device("emulated:gfx90a"), [])
