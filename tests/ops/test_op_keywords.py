"""What editors and type checkers know of the package: that it is typed, and which keywords ops take."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import keywords
import tilewright as tw
from tilewright.ops import OPS

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
import tilewright as tw

space = tw.gemm.space(dtype="fp16", layout=["rcr", "rrr"], block=[(128, 128, 32)], mma="*", pad_k="*", num_d=[0, 1])
for pipeline in ["mem", "compv3"]:
    config = tw.gemm.config(variant="standard", pipeline=pipeline, block=(64, 64, 32), waves="2x2x1", pad_k=True)
tw.fmha.space(block=[(64, 64)], mode="batch", tile="*")
registry = tw.build(space, arch="gfx942")
for resources in registry.artifact(registry.kernels[0]).resources:
    reveal_type(resources.vgprs)
reveal_type(config.block)
tw.gemm.space(layuot="rcr")
tw.gemm.config(num_d="many")
tw.grouped_conv.config(block=[1, 2])
"""


def test_the_package_says_that_it_is_typed() -> None:
    """The wheel has the files of the package's folder that git knows (hatchling)."""
    marker = Path(tw.__file__).with_name("py.typed")
    listed = subprocess.run(["git", "ls-files", str(marker)], cwd=ROOT, capture_output=True, text=True, check=True)

    assert marker.is_file()
    assert listed.stdout.strip() == "src/tilewright/py.typed"
    assert 'packages = ["src/tilewright"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_functions_name_their_keywords(op: tw.ops.op.Op) -> None:
    module = getattr(tw, op.name)
    for function in (module.space, module.config):
        assert list(inspect.signature(function).parameters) == [*op.field_names, *op.shorthands]
        for name in (*op.field_names, *op.shorthands):
            assert f"    {name}: " in keywords.make_keywords_module(op)


@pytest.mark.slow
def test_a_users_program_is_checked(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run([*command, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    said: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if line.startswith("program.py:"):
            said.setdefault(int(line.split(":")[1]), line)  # the first of a line; notes follow

    assert list(said) == [9, 10, 11, 12, 13], done.stdout
    assert "Revealed type is" in said[9] and 'int"' in said[9]
    assert "tilewright.arch.spec.Shape" in said[10]
    assert 'Unexpected keyword argument "layuot" for "space"; did you mean "layout"?' in said[11]
    assert '"num_d"' in said[12] and 'expected "int"' in said[12]
    assert '"block"' in said[13]
