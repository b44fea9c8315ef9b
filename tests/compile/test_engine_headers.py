"""Headers of the machine that change under precompiled ones, and installations that share precompiled ones."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from engine import PACKAGE_ROOT, PLUGIN, answer, environment, heard, notices, scale, start

from tilewright.building.builder import BuildResult, build_compile_jobs
from tilewright.building.compile_job import make_compile_job
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import Toolchain, find_toolchain

pytestmark = [pytest.mark.compile, pytest.mark.slow, pytest.mark.usefixtures("engine")]

MARK = "\n/* revision 1 */\n"
REVISION = "revision"  # a text in this file is added to the header when the first kernel has passed the device pass
WRAPPER = """#!/bin/sh
{cxx} -isystem {folder}/include "$@" || exit
case "$*" in *--cuda-device-only*kernel.hip*) ;; *) exit 0 ;; esac
if [ -f {folder}/{revision} ]; then
  cat {folder}/{revision} >> {folder}/include/hip/hip_runtime.h
  rm {folder}/{revision}
fi
"""


@pytest.fixture
def header(tmp_path: Path) -> Path:
    """hip_runtime.h in a copy of HIP's headers."""
    shutil.copytree("/usr/include/hip", tmp_path / "include" / "hip")
    path = tmp_path / "include" / "hip" / "hip_runtime.h"
    path.write_text(path.read_text() + MARK)
    return path


@pytest.fixture
def toolchain(header: Path, tmp_path: Path) -> Toolchain:
    """The machine's toolchain, with a compiler that finds the copy first. Its key knows nothing of that copy: so it is
    with headers of the C library."""
    found = find_toolchain()
    wrapper = tmp_path / "clang++"
    wrapper.write_text(WRAPPER.format(cxx=found.cxx, folder=tmp_path, revision=REVISION))
    wrapper.chmod(0o755)
    return dataclasses.replace(found, cxx=wrapper)


def build(toolchain: Toolchain, store: Path, *factors: int) -> BuildResult:
    return build_compile_jobs(
        [make_compile_job(scale(factor), toolchain) for factor in factors], tiers=Tiers(Store(store)), jobs=1
    )


def test_headers_that_changed_are_precompiled_again(toolchain: Toolchain, header: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert build(toolchain, store, 101).warm_cpu_s > 0
    header.write_text(header.read_text() + "// a revision of the package\n")
    with heard() as listed:
        built = build(toolchain, store, 102)
    assert not built.failures, next(iter(built.failures.values())).log
    assert built.warm_cpu_s > 0
    assert len([text for text in notices(listed) if "system headers have changed" in text]) == 2
    with heard() as listed:
        assert build(toolchain, store, 103).warm_cpu_s == 0, "the new ones are kept"
    assert notices(listed) == []
    # Of the same size: the compiler itself would take the old text.
    header.write_text(header.read_text().replace(MARK, MARK.replace("1", "2")))
    assert build(toolchain, store, 104).warm_cpu_s > 0


def test_headers_that_change_during_a_build(toolchain: Toolchain, header: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    build(toolchain, store, 201)
    (tmp_path / REVISION).write_text("// a revision of the package\n")
    with heard() as listed:
        built = build(toolchain, store, 202, 203)
    assert not built.failures, next(iter(built.failures.values())).log
    assert not (tmp_path / REVISION).exists()
    assert [text for text in notices(listed) if "changed while kernels were compiled" in text]
    assert built.warm_cpu_s > 0


def test_another_installation_shares_precompiled_headers(ck: Path, tmp_path: Path) -> None:
    """As a second venv of the same user: only the folder of the package differs."""
    moved = tmp_path / "moved"
    shutil.copytree(PACKAGE_ROOT / "tilewright", moved / "tilewright")
    shutil.copytree(PLUGIN, moved, dirs_exist_ok=True)
    surroundings = environment(ck, tmp_path / "store")
    first = answer(start(surroundings, [301]))
    second = answer(start({**surroundings, "PYTHONPATH": str(moved)}, [302]))
    assert first["warm_cpu_s"] > 0
    assert (second["compiled"], second["warm_cpu_s"], second["notices"]) == (1, 0, [])
