"""`tilewright verify --together`: whole problems of several kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from tilewright.cli.app import root
from tilewright.ops.kernel import Kernel

pytestmark = pytest.mark.compile

MakeKernel = Callable[..., Kernel]
DEVICE = ("--device", "emulated:gfx942")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["verify", *arguments, *DEVICE])


def test_problems_are_computed_by_as_many_kernels_as_they_need(staged: tw.Registry, axpb: MakeKernel) -> None:
    scale, add = axpb("scale"), axpb("add")
    problems = ("--problem", "step=whole,n=65,factor=1.5", "--problem", "step=add,n=64,onto=true")
    done = run(scale.slug, add.slug, "--together", *problems, "--json")
    assert done.exit_code == 0, done.output
    plans = json.loads(done.output)["plans"]
    assert [plan["verdict"] for plan in plans] == ["ok", "ok"]
    assert [plan["kernels"] for plan in plans] == [[scale.slug, add.slug], [add.slug]]
    assert plans[0]["problem"] == {"step": "whole", "n": 65, "factor": 1.5}
    told = run(scale.slug, add.slug, "--together", *problems)
    assert "step=whole n=65" in told.output and "onto=true" in told.output, "all fields, wrapped"
    assert "all right: 2 problems on 2 kernels, emulated:gfx942" in told.output


def test_a_file_of_problems(staged: tw.Registry, axpb: MakeKernel, tmp_path: Path) -> None:
    lazy, add = axpb("scale", lazy=True), axpb("add")
    listed = tmp_path / "problems.csv"
    listed.write_text("step,n,both\nwhole,10,true\nadd,10,\n")
    done = run(lazy.slug, add.slug, "--together", "--problems", str(listed))
    assert done.exit_code == 1
    assert "wrong step=whole,n=10,both=true" in done.output and "1 not ok: 2 problems" in done.output


def test_what_is_missing_is_said(staged: tw.Registry, axpb: MakeKernel) -> None:
    scale = axpb("scale")
    done = run(scale.slug, "--together", "--problem", "step=whole,n=10")
    assert done.exit_code == 1 and "lacks a kernel for stage 2" in done.output
    for wrong in ((), ("--trials", "2"), ("--problem", "step=whole,n=1", "--problems", __file__)):
        refused = run(scale.slug, "--together", *wrong)
        assert refused.exit_code != 0 and "give either --problem or --problems" in refused.output
