"""Ops that other packages add through an entry point, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tilewright.ops import OPS

OWN = [op.name for op in OPS]
ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "tests" / "plugin"


def run(program: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(folder) for folder in (*folders, ROOT / "src"))
    surroundings = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)


def package(folder: Path, name: str, text: str, points: str) -> Path:
    """An installed package: a module, and the folder that says what it adds."""
    (folder / f"{name}-1.0.dist-info").mkdir(parents=True)
    (folder / f"{name}.py").write_text(text)
    info = folder / f"{name}-1.0.dist-info"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tilewright.ops]\n{points}\n")
    return folder


def error(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


ASK = "from tilewright.ops import all_ops; print(*(op.name for op in all_ops()))"


def test_an_op_is_found_and_works_like_any_other() -> None:
    done = run(ASK, PLUGIN)
    assert done.stdout.split() == [*OWN, "scale"], done.stderr
    program = """
from tilewright.codegen.render import render
from tilewright.ops import kernel_of, op_named, op_of, parse_kernel
op = op_named("scale")
config = op.config(dtype="fp64", threads=128, factor=3)
kernel = kernel_of(config, "gfx90a")
assert op_of(config) is op and parse_kernel(kernel.slug) == kernel
source = render(kernel)
assert "3 * x[i * stride_x]" in source.text and list(source.files) == ["tilewright_scale.h"]
print(kernel.slug)
"""
    done = run(program, PLUGIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("scale-gfx90a-fp64-t128-x3-")


def test_without_the_package_the_op_is_unknown() -> None:
    assert run(ASK).stdout.split() == OWN
    said = error(run("from tilewright.ops import op_named; op_named('scale')"))
    assert said.endswith(f"unknown op 'scale'. Known: {', '.join(OWN)}.")


def test_an_object_that_is_no_op(tmp_path: Path) -> None:
    wrong = package(tmp_path, "wrong", "THING = 7\n", "thing = wrong:THING")
    expected = "the entry point thing = wrong:THING gives a int, not an Op"
    assert error(run(ASK, wrong)).endswith(expected)
    # Our own ops need no other package, so a broken one is in nobody's way.
    assert run("from tilewright.ops import op_named; print(op_named('gemm').name)", wrong).stdout == "gemm\n"


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    text = "import dataclasses\nfrom tilewright_scale import OP\nTWICE = dataclasses.replace(OP, name='gemm')\n"
    twice = package(tmp_path, "twice", text, "twice = twice:TWICE")
    assert error(run(ASK, PLUGIN, twice)).endswith("twice = twice:TWICE adds a second op named gemm")


def test_a_package_that_cannot_be_imported(tmp_path: Path) -> None:
    absent = package(tmp_path, "absent", "import not_there_at_all\n", "absent = absent:OP")
    assert "not_there_at_all" in error(run(ASK, absent))
