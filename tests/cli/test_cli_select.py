"""`select`: the kernel that is taken, and with --explain why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import tilewright as tw
from tilewright.ops import find_op, parse_kernel
from tilewright.select.tuned import TunedEntry, TunedTable, write_tuned

SET = ("select", "gemm", "--gpu-target", "gfx942", "--preselected", "fp16_rcr_essential")
ASKED = ("--problem", "m=4096,n=4096,k=4096,dtype=fp16,layout=rcr")
PROBLEM = tw.gemm.Problem(m=4096, n=4096, k=4096, dtype="fp16", layout="rcr")


def test_kernel_and_reason_by_default(run: Callable[..., Result]) -> None:
    result = run(*SET, *ASKED)
    assert (result.exit_code, result.stderr) == (0, "")
    slug, why = result.stdout.splitlines()
    best = tw.Registry.of(list(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"))).select(
        PROBLEM, "gfx942", built=False
    )
    assert parse_kernel(slug) == best.best.kernel
    assert why == f"  {best.best.why}" and "µs" in why


def test_explain_shows_steps_terms_reasons_and_who_cannot(run: Callable[..., Result]) -> None:
    result = run(*SET[:3], "gfx942", *ASKED, "--explain", "--top", "2")
    assert result.exit_code == 0
    text = result.stdout
    for part in ("tuned table  none given", "support ", "estimate ", "learned ", "matrix", "memory", "launch"):
        assert part in text
    assert text.count("\n  1. gemm-gfx942-") == 1 and "\n  2. gemm-" in text and "\n  3. " not in text
    assert "rejected, the nearest first" in text and "more" in text


def test_json_has_the_whole_list(run_json: Callable[..., Any]) -> None:
    (stage,) = run_json(*SET, *ASKED, "--top", "99")["stages"]
    assert stage["problem"]["m"] == 4096 and stage["can"] == len(stage["choices"])
    times = [choice["us"] for choice in stage["choices"]]
    assert times == sorted(times) and stage["choices"][0]["terms"]["matrix"] > 0
    assert list(stage["steps"]) == ["tuned table", "support", "estimate", "learned"]


def test_several_kernels_are_explained_stage_by_stage(run_json: Callable[..., Any]) -> None:
    text = (
        "family=forward,mode=batch,dtype=fp16,batch=1,heads=4,kv_heads=1,seqlen_q=1,seqlen_k=4096,hdim_q=128,hdim_v=128,"
        "num_splits=4"
    )
    options = ("--gpu-target", "gfx942", "--preselected", "decode", "--problem", text)
    stages = run_json("select", "fmha", *options)["stages"]
    assert [stage["problem"]["family"] for stage in stages] == ["splitkv", "combine"]


def test_a_measured_winner(run_json: Callable[..., Any], tmp_path: Path) -> None:
    kernels = list(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"))
    write_tuned(TunedTable([TunedEntry(kernels[-1], PROBLEM, 12.5)]), tmp_path / "tuned.json")
    (stage,) = run_json(*SET, *ASKED, "--tuned", str(tmp_path / "tuned.json"))["stages"]
    assert stage["choices"][0]["kernel"] == kernels[-1].slug and stage["choices"][0]["us"] == 12.5


def test_a_winner_that_cannot_be_taken_is_told(run: Callable[..., Result], tmp_path: Path) -> None:
    winner = list(find_op("gemm").sets()["fp16_rcr_compute"].kernels("gfx942"))[-1]
    write_tuned(TunedTable([TunedEntry(winner, PROBLEM, 12.5)]), tmp_path / "tuned.json")
    told = run(*SET, *ASKED, "--limit", "1", "--tuned", str(tmp_path / "tuned.json")).output
    assert "tuned table: " in told and "not one of the candidates" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--problem", "m=4096"), "does not give n, k"),
        (("--problem", "m=4096,n=4096,k=4096,dtype=fp8,layout=rcr"), "none of 10 kernels for gfx942 supports"),
        ((*ASKED, "--no-bundles", "--bundle", "."), "give one of them"),
    ],
)
def test_errors(run: Callable[..., Result], options: tuple[str, ...], said: str) -> None:
    result = run(*SET, *options)
    assert result.exit_code == 2 and said in result.stderr


def test_advice_is_in_shell_terms(run: Callable[..., Result]) -> None:
    result = run(*SET, "--problem", "m=100,n=100,k=100")
    assert result.exit_code == 2
    assert "whose result is cut: use --pad." in result.stderr and "pad=True" not in result.stderr
    assert run(*SET, "--problem", "m=100,n=100,k=100", "--pad").exit_code == 0
