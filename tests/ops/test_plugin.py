"""Ops that other packages add through an entry point, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


ASK = "from tilewright.ops import list_ops; print(*(op.name for op in list_ops()))"


def test_an_op_is_found_and_works_like_any_other() -> None:
    done = run(ASK, PLUGIN)
    assert done.stdout.split() == [*OWN, "scale"], done.stderr
    program = """
from tilewright.codegen.render import render
from tilewright.ops import kernel_of, find_op, infer_op, parse_kernel
op = find_op("scale")
config = op.make_config(dtype="fp64", threads=128, factor=3)
kernel = kernel_of(config, "gfx90a")
assert infer_op(config) is op and parse_kernel(kernel.slug) == kernel
source = render(kernel)
assert "3 * x[i * stride_x]" in source.text and list(source.files) == ["tilewright_scale.h"]
print(kernel.slug)
"""
    done = run(program, PLUGIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("scale-gfx90a-fp64-t128-x3-")


def test_without_the_package_the_op_is_unknown() -> None:
    assert run(ASK).stdout.split() == OWN
    said = error(run("from tilewright.ops import find_op; find_op('scale')"))
    assert said.endswith(f"unknown op 'scale'. Known: {', '.join(OWN)}.")


FAILURES = "from tilewright.ops import list_plugin_failures; print(*list_plugin_failures(), sep='\\n')"


def test_an_object_that_is_no_op(tmp_path: Path) -> None:
    wrong = package(tmp_path, "wrong", "THING = 7\n", "thing = wrong:THING")
    assert run(FAILURES, wrong).stdout == "thing = wrong:THING of wrong 1.0: its object is a int, not an Op\n"
    assert run(ASK, wrong).stdout.split() == OWN


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    text = "import dataclasses\nfrom tilewright_scale import OP\nTWICE = dataclasses.replace(OP, name='gemm')\n"
    twice = package(tmp_path, "twice", text, "twice = twice:TWICE")
    assert run(FAILURES, PLUGIN, twice).stdout.endswith("twice 1.0: it adds a second op named gemm\n")
    assert run(ASK, PLUGIN, twice).stdout.split() == [*OWN, "scale"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import not_there_at_all\n", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("def (\n", "SyntaxError: invalid syntax"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("", "AttributeError: module 'absent' has no attribute 'OP'"),
    ],
)
def test_a_package_that_cannot_be_imported_is_in_nobodys_way(tmp_path: Path, text: str, reason: str) -> None:
    absent = package(tmp_path, "absent", text, "absent = absent:OP")
    told = f"absent = absent:OP of absent 1.0: it cannot be imported: {reason}"
    done = run(f"{ASK}; {FAILURES}; from tilewright.ops import find_op; find_op('absent')", PLUGIN, absent)
    ops, failures = done.stdout.splitlines()[:2]
    assert ops.split() == [*OWN, "scale"] and failures.startswith(told)
    assert f"unknown op 'absent'. Known: {', '.join(OWN)}, scale. Not loaded: {told}" in done.stderr


def test_commands_tell_of_a_package_that_cannot_be_imported(tmp_path: Path) -> None:
    absent = package(tmp_path, "absent", "import not_there_at_all\n", "absent = absent:OP")
    told = "absent = absent:OP of absent 1.0: it cannot be imported: ModuleNotFoundError"
    for subject in (["space", "absent", "--arch", "gfx942"], ["check", "absent", "--arch", "gfx942"]):
        done = run(f"from tilewright.cli.app import root; root.main({subject!r})", PLUGIN, absent)
        assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done.stderr
    done = run("from tilewright.cli.app import root; root.main(['sets', '--op', 'gemm', '--json'])", absent)
    assert done.returncode == 0 and told in done.stderr and json.loads(done.stdout)
    done = run("from tilewright.cli.app import root; root.main(['doctor', '--json'])", PLUGIN, absent)
    plugins = json.loads(done.stdout)["plugins"]
    assert plugins["ops"] == ["scale"] and plugins["failed"][0]["entry_point"] == "absent = absent:OP"
    done = run("from tilewright.cli.app import root; root.main(['doctor'])", PLUGIN, absent)
    assert told in done.stdout and "ops of other packages: scale" in done.stdout
