"""Models as another tool would train them: LightGBM files, made to agree with the estimate or to contradict it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from tilewright import arch as archs
from tilewright.ops import grouped_conv
from tilewright.ops.grouped_conv.ck_model_features import compute_features
from tilewright.ops.grouped_conv.gfx950_times import TILES, make_labelled_kernel
from tilewright.ops.kernel import Kernel
from tilewright.select.portfolio import predict_times

OP, GPU = grouped_conv.OP, archs.load("gfx950")
FOLDERS = {
    "backward_data": "grouped_conv_bwd_data_bf16_gfx950",
    "backward_weight": "grouped_conv_bwd_weight_bf16_gfx950",
    "forward": "grouped_conv_forward_bf16_gfx950",
}


def make_kernels(direction: str) -> list[Kernel]:
    return [make_labelled_kernel(*tile, pipeline="compv3", direction=direction) for tile in TILES]


def _get_config(kernel: Kernel) -> Any:
    return kernel.config


def make_problems(direction: str) -> list[Any]:
    return [
        grouped_conv.Problem(
            direction=direction, n=n, c=c, k=k, input_size=(size, size), filter_size=(3, 3), pad=1, dtype="bf16"
        )
        for n in (1, 8, 64)
        for c, k in ((64, 64), (64, 256), (512, 128))
        for size in (7, 14, 28, 56)
    ]


def write_model(folder: Path, direction: str, sign: float, *, compressed: bool = True) -> Path:
    """A model that was trained to agree with the estimate, or with sign -1 to contradict it."""
    kernels, problems = make_kernels(direction), make_problems(direction)
    us = predict_times(OP, GPU, kernels, problems)
    rows, rates = [], []
    for problem, times in zip(problems, us, strict=True):
        for kernel, time in zip(kernels, times, strict=True):
            if not np.isnan(time):
                rows.append(
                    [float(value) for value in compute_features(_get_config(kernel), problem, "gfx950").values()]
                )
                rates.append(-sign * np.log(time))
    names = list(compute_features(_get_config(kernels[0]), problems[0], "gfx950"))
    options = {"objective": "regression", "num_leaves": 63, "min_data_in_leaf": 2, "verbose": -1, "num_threads": 1}
    data = lightgbm.Dataset(np.array(rows), rates, feature_name=names)
    text = lightgbm.train({**options, "deterministic": True, "seed": 1}, data, 60).model_to_string()
    made = folder / FOLDERS[direction]
    made.mkdir(parents=True)
    spec = {"op_type": "grouped_conv", "dtype": "bf16", "arch": "gfx950", "feature_names": names}
    (made / "feature_spec.json").write_text(json.dumps(spec))
    if compressed:
        (made / "model_tflops.lgbm.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (made / "model_tflops.lgbm").write_text(text)
    return made
