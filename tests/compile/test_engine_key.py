"""The key in processes of their own: what surrounds a process does not change it, a header of CK does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from engine import PACKAGE_ROOT, PLUGIN, environment

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]

PROGRAM = """
from tilewright.building.toolchain import find_toolchain
from tilewright.building.compile_job import make_compile_job
from tilewright.ops import find_op
op = find_op("scale")
kernel = op.make_kernel(op.make_config(dtype="fp32", threads=64, factor=7), "gfx942")
print(make_compile_job(kernel, find_toolchain()).key)
"""


def key(surroundings: dict[str, str], folder: Path) -> str:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=surroundings, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("one_by_one", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_what_surrounds_a_process_does_not_matter(ck: Path, tmp_path: Path, one_by_one: bool) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(PACKAGE_ROOT / "tilewright", moved / "tilewright")
    shutil.copytree(PLUGIN, moved, dirs_exist_ok=True)
    other_ck = tmp_path / "other-ck"
    shutil.copytree(ck, other_ck)
    plain = environment(ck, tmp_path / "store")
    expected = key(plain, tmp_path)
    changes: list[dict[str, str]] = [
        {"HOME": str(tmp_path), "USER": "somebody", "LOGNAME": "somebody"},
        {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"},
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "2", "TILEWRIGHT_CACHE": str(tmp_path / "cache"), "TILEWRIGHT_STORE": str(tmp_path / "s")},
        {"PYTHONPATH": str(moved)},
        {"TILEWRIGHT_CK": str(other_ck)},
        {"CPATH": str(tmp_path), "SOURCE_DATE_EPOCH": "1"},
    ]
    if one_by_one:
        assert [change for change in changes if key({**plain, **change}, tmp_path) != expected] == []
        assert key(plain, Path("/")) == expected
    else:
        together = {name: value for change in changes for name, value in change.items()}
        assert key({**plain, **together}, Path("/")) == expected


def test_a_header_and_the_compiler_matter(ck: Path, tmp_path: Path) -> None:
    mine = tmp_path / "ck"
    shutil.copytree(ck, mine)
    keys = [key(environment(mine, tmp_path / "store"), tmp_path)]
    header = mine / "include" / "ck_tile" / "new.hpp"
    for text in ("", "a", "b"):
        header.write_text(text)
        os.utime(header, (1e9, 1e9))
        keys.append(key(environment(mine, tmp_path / "store"), tmp_path))
    real = shutil.which("clang++-22") or shutil.which("clang++")
    assert real is not None
    for remark in ("", "# another program\n"):
        wrapper = tmp_path / "clang++"
        wrapper.write_text(f'#!/bin/sh\n{remark}exec {real} "$@"\n')
        wrapper.chmod(0o755)
        keys.append(key(environment(mine, tmp_path / "store", TILEWRIGHT_CXX=str(wrapper)), tmp_path))
    assert len(set(keys)) == len(keys)
