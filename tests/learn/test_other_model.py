"""The estimate next to another tool's model: its inputs, its files, and how two rankings are compared.

AMD's files are not part of the repository. Models here are trained by the tests, on the inputs that AMD's models have;
with the variable TILEWRIGHT_TEST_CK_MODELS, a folder with copies of AMD's, theirs are read, too.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from other_models import FOLDERS, make_kernels, make_problems, write_model
from tilewright import arch as archs
from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.learn.other_model import Agreement, Comparison, OtherModel, compare_rankings, read_other_model
from tilewright.ops import grouped_conv, kernel_of
from tilewright.ops.gemm import OP as GEMM
from tilewright.ops.grouped_conv.ck_model_features import compute_features
from tilewright.ops.kernel import Kernel

OP, GPU = grouped_conv.OP, archs.load("gfx950")
MODELS = os.environ.get("TILEWRIGHT_TEST_CK_MODELS")


def compare(folder: Path, direction: str, kernels: list[Kernel] | None = None) -> Comparison:
    return compare_rankings(
        read_other_model(folder, OP), OP, GPU, kernels or make_kernels(direction), make_problems(direction)
    )


def find_agreement(folder: Path, direction: str) -> Agreement:
    (found,) = compare(folder, direction).agreements
    assert found.kind == direction
    return found


@pytest.mark.parametrize("direction", FOLDERS)
def test_a_model_like_the_estimate_agrees_with_it(direction: str, tmp_path: Path) -> None:
    found = find_agreement(write_model(tmp_path, direction, 1), direction)
    assert found.problems >= 30 and found.kernels > 5
    assert found.correlation > 0.9
    assert found.same_first > 0.8 > found.same_first_by_chance
    assert found.place < 0.05


def test_an_opposite_model_contradicts_it(tmp_path: Path) -> None:
    found = find_agreement(write_model(tmp_path, "backward_data", -1, compressed=False), "backward_data")
    assert found.correlation < -0.9 and found.same_first < 0.1 and found.place > 0.9


def test_inputs_of_a_gradient() -> None:
    """By hand: 4 images of 32x32, 128 → 256 channels in 2 groups, filter 3x3, stride 2, pad 1; block 128x64x32."""
    problem = grouped_conv.Problem(
        direction="backward_data", n=4, g=2, c=128, k=256, input_size=(32, 32), filter_size=(3, 3), stride=(2, 2),
        pad=1, dtype="bf16",
    )  # fmt: skip
    config = grouped_conv.config(
        direction="backward_data", ndim=2, dtype="bf16", block=(128, 64, 32), waves=(2, 2, 1), mma=(32, 32, 8),
        pipeline="mem", scheduler="interwave", epilogue="cshuffle", vector=(4, 8, 8),
    )  # fmt: skip
    found = compute_features(config, problem, "gfx950")
    assert (found["Ho"], found["Wo"], found["Di"], found["Do"], found["is_3d"]) == (16, 16, 1, 1, False)
    assert (found["block_size"], found["gemm_m_per_block"], found["gemm_n_per_block"]) == (128, 64, 32)
    assert (found["gemm_m_output"], found["gemm_n_output"], found["gemm_k_output"]) == (1024, 256, 576)
    assert (found["num_tiles_m"], found["num_tiles_n"], found["num_tiles_k"]) == (16, 8, 5)
    assert found["tile_eff_k"] == 0.5  # 576 = 4 * 128 + 64
    assert found["cu_utilization"] == 128 / 256
    assert found["lds_usage_ratio"] == (64 + 32) * 128 * 2 / 65536
    flops = 2 * 4 * 256 * 256 * 64 * 9
    moved = 2 * (4 * 128 * 1024 + 256 * 64 * 9 + 4 * 256 * 256)
    assert found["arithmetic_intensity"] == pytest.approx(flops / moved)
    assert (found["pipeline"], found["is_mem"], found["is_intrawave"], found["is_small_group"]) == (
        3,
        True,
        False,
        False,
    )
    assert (found["channels_per_group"], found["batch_group_product"], found["is_small_batch_grouped"]) == (64, 8, True)
    assert len(found) == 97  # of AMD's newest model; the older ones have 83 of them


def test_kernels_that_the_model_does_not_know_are_counted(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "backward_data", 1)
    others = make_kernels("backward_weight")
    half = kernel_of(grouped_conv.config(**{**_fields(others[0]), "dtype": "fp16"}), "gfx950")
    found = compare_rankings(read_other_model(folder, OP), OP, GPU, [*others, half], make_problems("backward_weight"))
    assert found.agreements == ()
    assert any("the model is for backward_data" in reason for reason in found.left_out)


def _fields(kernel: Kernel) -> dict[str, Any]:
    config: Any = kernel.config
    names = ("direction", "ndim", "block", "waves", "mma", "pipeline", "scheduler", "epilogue", "vector")
    return {name: getattr(config, name) for name in names}


def test_wrong_files_and_uses(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "forward", 1)
    model = read_other_model(folder, OP)
    assert (model.kind, model.arch, model.dtype) == ("forward", "gfx950", "bf16")
    with pytest.raises(InvalidValueError, match="was trained for gfx950, the kernels are for gfx942"):
        compare_rankings(model, OP, archs.load("gfx942"), make_kernels("forward"), make_problems("forward"))
    with pytest.raises(InvalidValueError, match="gemm knows no models of other tools"):
        read_other_model(folder, GEMM)
    unknown = OtherModel(model.name, (*model.features[1:], "gemm_k_per_block"), model.text, "gfx950", "bf16", None)
    with pytest.raises(InvalidValueError, match="inputs that are not known here: gemm_k_per_block"):
        compare_rankings(unknown, OP, GPU, make_kernels("forward"), make_problems("forward"))
    few = OtherModel(model.name, model.features[1:], model.text, "gfx950", "bf16", None)
    with pytest.raises(InvalidValueError, match=r"takes 97 inputs, but its feature_spec\.json lists 96"):
        compare_rankings(few, OP, GPU, make_kernels("forward"), make_problems("forward"))
    (folder / "model_tflops.lgbm.gz").write_bytes(b"\x1f\x8bno")
    with pytest.raises(FileFormatError, match=r"model_tflops\.lgbm\.gz"):
        read_other_model(folder, OP)
    (folder / "model_tflops.lgbm.gz").write_bytes(gzip.compress(b"tree\nversion=v9\n"))
    with pytest.raises(InvalidValueError, match="LightGBM cannot read"):
        compare(folder, "forward")
    (folder / "model_tflops.lgbm.gz").unlink()
    with pytest.raises(FileFormatError, match=r"has no model_tflops\.lgbm"):
        read_other_model(folder, OP)


@pytest.mark.skipif(MODELS is None, reason="TILEWRIGHT_TEST_CK_MODELS does not name a folder with AMD's models")
@pytest.mark.parametrize("direction", FOLDERS)
def test_a_published_model(direction: str) -> None:
    """It can be read, knows our kernels, and tells them apart. What it thinks of the estimate is no condition."""
    found = find_agreement(Path(str(MODELS)) / FOLDERS[direction], direction)
    print(found)
    assert found.problems > 0 and -1 <= found.correlation <= 1
