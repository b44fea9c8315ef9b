"""Element-wise operations of one's own: they are read, rendered, computed and bounded, and mistakes are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.arch.number_formats import Floats
from tilewright.base import knobs
from tilewright.base.errors import FileFormatError, InvalidValueError, KnobError, UnknownValueError
from tilewright.ops.gemm import elementwise
from tilewright.ops.tolerance import Tolerance

TEXT = """
name = "HardSwish"
cpp = "return x * fminf(fmaxf(x + 3.f, 0.f), 6.f) / 6.f;"
reference = "tests.ops.test_own_operations:compute_hard_swish"
slope = 1.5
error_ulps = 3.0
"""
CONFIG: dict[str, Any] = {
    **{"variant": "multi_d", "dtype": "fp16", "layout": "rcr", "block": "128x128x64", "waves": "2x2x1"},
    **{"mma": "32x32x16", "pipeline": "compv3", "scheduler": "intrawave", "epilogue": "cshuffle"},
    **{"elementwise": "HardSwish", "num_d": 1},
}
SIZES: dict[str, Any] = {"m": 4, "n": 8, "k": 8, "dtype": "fp16", "layout": "rcr", "num_d": 1}


def compute_hard_swish(x: Floats) -> Floats:
    return x * np.clip(x + 3.0, 0.0, 6.0) / 6.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(knobs.ELEMENTWISE_PATH.name, str(tmp_path))
    (tmp_path / "hard_swish.toml").write_text(TEXT)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_kernel_has_the_code_in_its_source() -> None:
    kernel = tw.kernel_of(tw.gemm.config(**CONFIG), "gfx942")
    assert "-opHardSwish-d1-" in kernel.slug and tw.parse_kernel(kernel.slug) == kernel
    text = tw.render(kernel).text
    assert "return x * fminf(fmaxf(x + 3.f, 0.f), 6.f) / 6.f;" in text and "element_wise::HardSwish" not in text
    problem = tw.gemm.Problem(**SIZES, elementwise="HardSwish")
    assert "opHardSwish" in tw.Registry.of([kernel]).select(problem, "gfx942", built=False, pad=True).best.kernel.slug


@pytest.mark.usefixtures("folder")
def test_the_reference_and_its_tolerance() -> None:
    product, d = np.array([[-5.0, 1.0]]), np.array([[1.0, 2.0]])
    assert elementwise.apply("HardSwish", product, [d]).tolist() == [[0.0, 3.0]]
    exact = Tolerance(np.zeros((1, 2)), np.zeros((1, 2)))
    found = elementwise.compute_error("HardSwish", product, [d], exact, integers=False)
    assert 0 < found.limit[0, 1] <= 1.01 * (3 * 3) * 2.0**-23


def test_it_is_unknown_without_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(knobs.ELEMENTWISE_PATH.name)
    with pytest.raises(UnknownValueError, match="unknown elementwise 'HardSwish'"):
        tw.gemm.config(**CONFIG)
    monkeypatch.setenv(knobs.ELEMENTWISE_PATH.name, str(folder / "nowhere"))
    with pytest.raises(KnobError, match="the folder does not exist"):
        tw.gemm.config(**CONFIG)
    assert tw.gemm.config(**{**CONFIG, "elementwise": "Relu"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"HardSwish"', '"squared relu"'), "name must be letters and digits after a capital letter"),
        (("return ", ""), "cpp must be the body of a function"),
        ((":compute", "."), "reference must look like my_package:my_function"),
        (("slope = 1.5", "slope = -1"), "slope must be a number of at least 0, got -1"),
        (("slope = 1.5", "slop = 1.5"), "an operation has no slope"),
    ],
)
def test_mistakes_in_a_file(change: tuple[str, str], said: str, folder: Path) -> None:
    (folder / "hard_swish.toml").write_text(TEXT.replace(*change))
    with pytest.raises(FileFormatError, match=said):
        tw.gemm.config(**CONFIG)


def test_names_that_are_taken(folder: Path) -> None:
    (folder / "again.toml").write_text(TEXT)
    with pytest.raises(FileFormatError, match="another file has an operation HardSwish, too"):
        tw.gemm.config(**CONFIG)
    (folder / "again.toml").write_text(TEXT.replace("HardSwish", "Relu"))
    with pytest.raises(KnobError, match="has an operation Relu, which CK Tile has, too"):
        tw.gemm.config(**CONFIG)


def test_a_reference_that_is_not_there(folder: Path) -> None:
    (folder / "hard_swish.toml").write_text(TEXT.replace("compute_hard_swish", "nothing"))
    with pytest.raises(InvalidValueError, match=r"the reference .*:nothing of the operation HardSwish cannot be"):
        elementwise.apply("HardSwish", np.ones((1, 1)), [np.ones((1, 1))])
