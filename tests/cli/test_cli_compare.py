"""`tilewright compare`: the estimate next to a model that this test trains."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from other_models import make_kernels, write_model


def test_the_command_says_that_it_is_an_opinion(tmp_path: Path, run: Callable[..., Result]) -> None:
    folder = write_model(tmp_path, "backward_data", 1)
    problems = tmp_path / "shapes.csv"
    problems.write_text(
        "direction,n,c,k,input_size,filter_size,pad,dtype\n"
        "backward_data,8,64,64,28x28,3x3,1,bf16\nbackward_data,64,64,256,14x14,3x3,1,bf16\n"
    )
    kernels = [kernel.slug for kernel in make_kernels("backward_data")]
    shown = run("compare", str(folder), *kernels, "--problems", str(problems))
    assert shown.exit_code == 0, shown.output
    assert "backward_data" in shown.output and "No time of a GPU is in it" in shown.output
    listed = run("compare", str(folder), *kernels, "--problems", str(problems), "--json")
    (found,) = json.loads(listed.stdout)["agreements"]
    assert (found["kind"], found["problems"]) == ("backward_data", 2)
