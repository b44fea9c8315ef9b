"""Without any extra, every public name and command loads, and commands that need an extra name it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from built_kernels import with_store

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
# Import names of the packages of extras that the product imports; mkdocs and the development tools are not.
EXTRAS = (
    "numpy",
    "ml_dtypes",
    "elftools",
    "matplotlib",
    "lightgbm",
    "scipy",
    "pyarrow",
    "duckdb",
    "ray",
    "tuf",
    "securesystemslib",
    "cryptography",
    "boto3",
    "torch",
    "transformers",
    "triton",
)
# None in `sys.modules` makes an import fail, and `find_spec` return None, as if the package were not installed.
HIDE = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"
CONFIG = "variant=standard dtype=fp16 layout=rcr block=128x128x32 waves=2x2x1 mma=32x32x8 pipeline=compv3"
# On CI's list.
KERNEL = "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b64x64x32-w2x2x1-i16x16x16"
KERNEL += "-compv3-intrawave-cshuffle-e5782f51db2c"
PROBLEM = "m=512,n=512,k=512,dtype=fp16,layout=rcr"
FIELDS = [word for field in f"{CONFIG} scheduler=intrawave epilogue=cshuffle".split() for word in ("-s", field)]


def run_hidden(program: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDE + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_hidden("from tilewright.cli import main; main()", *arguments)


def test_all_extras_are_hidden() -> None:
    """A package that is added to an extra must be added to the list above."""
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {
        re.split("[>=[]", requirement)[0]
        for extra, requirements in extras.items()
        if extra not in ("dev", "site", "toolchain")
        for requirement in requirements
        if not requirement.startswith("tilewright[")
    }
    imported = {"ml-dtypes": "ml_dtypes", "pyelftools": "elftools"}
    assert {imported.get(name, name) for name in names} <= set(EXTRAS)


def test_every_public_name_loads_or_names_its_extra() -> None:
    program = """
import tilewright as tw
for name in dir(tw):
    try:
        getattr(tw, name)
    except tw.errors.MissingExtraError as error:
        print(error)
"""
    done = run_hidden("import tilewright.errors\n" + program)
    assert done.stdout == "tilewright.verify needs numpy. Get it with: pip install 'tilewright[emulator]'\n"
    assert done.stderr == ""


def test_every_command_loads_and_has_help() -> None:
    program = """
import click
from tilewright.cli.app import root
context = click.Context(root, info_name="tilewright")
for name in root.list_commands(context):
    command = root.get_command(context, name)
    print(name, len(command.get_help(click.Context(command, info_name=name, parent=context))) > 100)
"""
    done = run_hidden(program)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) > 20
    assert all(line.endswith(" True") for line in done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "gemm", "--gpu", "gfx942", *FIELDS),
        ("space", "gemm", "--gpu", "gfx942", "--set", "fp16_rcr_essential"),
        ("sets", "fp16_rcr_essential"),
        ("rules", "R401"),
        ("arch", "show", "gfx942"),
        ("knobs",),
        ("select", "gemm", "--gpu", "gfx942", "--preselected", "fp16_rcr_essential", "--problem", PROBLEM),
    ],
    ids=lambda arguments: arguments[0],
)
def test_these_commands_need_no_extra(arguments: tuple[str, ...]) -> None:
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.compile
def test_a_kernel_is_built() -> None:
    program = "import tilewright as tw\nprint(len(tw.build([tw.parse_kernel(sys.argv[1])]).artifacts))"
    done = run_hidden(program, KERNEL, env=with_store())
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("verify", "gemm", "--device", "emulated:gfx942", *FIELDS), "emulator"),
        (("bench", "gemm", "--device", "emulated:gfx942", "--problem", "m=64,n=64,k=64", *FIELDS), "emulator"),
    ],
    ids=["verify", "bench"],
)
def test_others_name_the_extra(arguments: tuple[str, ...], extra: str) -> None:
    done = run_command(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"pip install 'tilewright[{extra}]'" in done.stderr


def test_triton_names_its_extra() -> None:
    program = """
import tilewright.triton
from tilewright.errors import MissingExtraError
try:
    tilewright.triton.use
except MissingExtraError as error:
    print(error)
"""
    done = run_hidden(program)
    assert done.stdout == "tilewright.triton.use needs triton. Get it with: pip install 'tilewright[triton]'\n"
    assert done.stderr == ""
