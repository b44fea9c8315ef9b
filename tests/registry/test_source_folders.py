"""`tw.generate` and `tw.wrap`: what the commands of these names do, from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.base.errors import InvalidValueError


def test_sources_of_sets_and_of_filtered_kernels(tmp_path: Path) -> None:
    made = tw.generate(tw.kernels("gemm", "gfx942", variant="preshuffle"), tmp_path / "kernels", jobs=1)
    assert (made.kernels, made.removed) == (15, 0)
    listed = json.loads((tmp_path / "kernels" / "manifest.json").read_text())["kernels"]
    assert {entry["config"]["variant"] for entry in listed} == {"preshuffle"}
    again = tw.generate("fp16_rcr_latency", str(tmp_path / "kernels"), ["gfx942", "GFX950"], jobs=1)
    assert (again.kernels, again.removed) == (12, 15)
    with pytest.raises(InvalidValueError, match="the limit is 5"):
        tw.generate("fp16_rcr_latency", tmp_path, "gfx942", limit=5)


def test_wrappers_and_build_files(tmp_path: Path) -> None:
    tw.generate("fp16_rcr_latency", tmp_path / "kernels", "gfx942", jobs=1)
    flags = ["-mllvm", "-enable-noalias-to-md-conversion=0"]
    made = tw.wrap(tmp_path / "kernels", tmp_path / "wrappers", ["ninja", "cmake"], toolchain="rocm", flags=flags)
    assert len(made.wrappers) == 6
    assert {"build.ninja", "CMakeLists.txt"} <= set(made.written)
    assert " ".join(flags) in (tmp_path / "wrappers" / "build.ninja").read_text()
    with pytest.raises(InvalidValueError, match="a compiler flag is a line of printable characters"):
        tw.wrap(tmp_path / "kernels", tmp_path / "wrappers", toolchain="rocm", flags=["-D\n"])
    with pytest.raises(InvalidValueError, match="a library's name consists of"):
        tw.wrap(tmp_path / "kernels", tmp_path / "wrappers", library="a b")
