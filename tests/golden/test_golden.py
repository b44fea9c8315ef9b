"""Golden sources: one kernel of each kind that an op has, and some of special forms, compared letter by letter.

`pytest tests/golden --update-golden` writes them anew; review the difference like code.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from config_samples import draw_legal, list_strata
from tilewright import arch as archs
from tilewright.base.errors import IllegalConfigError
from tilewright.codegen.render import render, render_unchecked
from tilewright.ops import OPS, find_op, parse_kernel
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op

FOLDER = Path(__file__).parent
GEMM = find_op("gemm")
CONV = find_op("grouped_conv")
# Forms that are no kinds of their own: what they change in the op's example: a convolution that is forward,
# 2-D and fp16, a grouped GEMM of bf16.
FORMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "grouped_conv": {
        "forward-2d-split_image": {"split_image": True},
        "forward-2d-filter3x3": {"specialization": "filter3x3", "vector": (1, 1, 8)},
        "forward-3d-filter1x1": {"ndim": 3, "specialization": "filter1x1_pad0"},
        "forward-3d-gemm": {
            "ndim": 3,
            "vector": (8, 8, 8),
            "specialization": "filter1x1_stride1_pad0",
            "explicit_gemm": True,
        },
        "backward_data-2d": {"direction": "backward_data", "vector": (8, 8, 8)},
        "backward_data-3d": {"direction": "backward_data", "vector": (8, 8, 8), "ndim": 3},
        "backward_weight-2d-two_stage": {
            "direction": "backward_weight",
            "vector": (8, 8, 4),
            "split_k": True,
            "two_stage": True,
        },
        "backward_weight-3d-merge": {
            "direction": "backward_weight",
            "vector": (8, 8, 8),
            "ndim": 3,
            "split_k": True,
            "merge_groups": 2,
        },
    },
    "grouped_gemm": {"scaled": {"dtype_a": "fp8", "dtype_b": "fp8", "block": (128, 128, 64)}},
}


def representatives(op: Op) -> list[Kernel]:
    """For each legal combination of the op's kinds of kernels the first GPU, types and layout that have it."""
    chosen: dict[tuple[str, ...], Kernel] = {}
    for name in ("gfx942", "gfx950"):
        arch = archs.load(name)
        for fixed in list_strata(op, arch):
            kind = tuple(str(fixed[field]) for field in op.structure_fields)
            if kind in chosen:
                continue
            config = draw_legal(op, arch, random.Random(0), fixed)
            if config is not None:
                chosen[kind] = Kernel(op.name, config, name)
    return list(chosen.values())


def golden_kernels(op: Op) -> dict[Path, Kernel]:
    """The file of each golden kernel, named by its kind or its form."""
    folder = FOLDER / op.name
    kernels = {}
    for kernel in representatives(op):
        kind = "-".join(str(getattr(kernel.config, field)) for field in op.structure_fields)
        kernels[folder / f"{kind}.golden"] = kernel
    for form, changes in FORMS.get(op.name, {}).items():
        kernels[folder / f"{form}.golden"] = op.make_kernel(op.make_example(changes), "gfx942")
    return kernels


GOLDEN = {path: kernel for op in OPS for path, kernel in golden_kernels(op).items()}


def configs_of(op: Op) -> list[Any]:
    return [kernel.config for kernel in GOLDEN.values() if kernel.op == op.name]


def test_the_golden_kernels_of_gemm_cover_variants_pipelines_and_epilogues() -> None:
    seen = {(c.variant, c.pipeline, c.epilogue) for c in configs_of(GEMM)}
    single = ("mem", "compv3", "compv6")
    expected = {
        *itertools.product(("standard", "multi_d"), (*single, "compv4"), ("cshuffle", "default")),
        *itertools.product(("standard", "multi_d"), ("comp_async",), ("default",)),
        *itertools.product(("batched",), single, ("cshuffle", "default")),
        *itertools.product(("standard", "multi_d"), ("compv5",), ("default",)),
        *itertools.product(("preshuffle",), ("preshufflev2",), ("cshuffle", "default")),
    }
    assert seen == expected


def test_the_golden_kernels_of_grouped_conv_cover_directions_dimensions_and_forms() -> None:
    configs = configs_of(CONV)
    both, single = ("cshuffle", "default"), ("mem", "compv3", "compv6")
    expected = {
        *itertools.product(("forward", "backward_weight"), (*single, "compv4"), both),
        *itertools.product(("forward", "backward_weight"), ("comp_async",), ("default",)),
        *itertools.product(("backward_data",), single, both),
        ("forward", "compv5", "default"),
    }
    assert {(c.direction, c.pipeline, c.epilogue) for c in configs} == expected
    dimensions = itertools.product(("forward", "backward_data", "backward_weight"), (1, 2, 3))
    assert {(c.direction, c.ndim) for c in configs} == set(dimensions)
    for form in ("split_k", "two_stage", "split_image", "explicit_gemm"):
        assert {getattr(c, form) for c in configs} == {False, True}, form
    texts = [render(kernel).text for kernel in GOLDEN.values() if kernel.op == CONV.name]
    for adapter in ("AnyLoop<", "OfTuples<", "FirstWave<"):
        assert any(adapter in text for text in texts), adapter


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    kernel = GOLDEN[path]
    text = render(kernel).text
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    assert path.read_text() == text


def test_no_golden_file_is_left_over() -> None:
    assert set(FOLDER.glob("*/*.golden")) == set(GOLDEN)


def test_rendering_depends_on_nothing_but_the_kernel(tmp_path: Path) -> None:
    """Another process, hash seed, folder and time give the same bytes."""
    program = (
        "import sys; from tilewright.ops import parse_kernel; from tilewright.codegen.render import render\n"
        "for slug in sys.argv[1:]: sys.stdout.write(render(parse_kernel(slug)).text)"
    )
    slugs = [kernel.slug for kernel in [*GOLDEN.values()][::8]]
    here = "".join(render(parse_kernel(slug)).text for slug in slugs)
    for seed in ("0", "77"):
        environment = {"PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo", "LC_ALL": "C", "PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", program, *slugs]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == here


def test_an_illegal_kernel_is_not_rendered() -> None:
    kernel = GEMM.make_kernel(GEMM.make_example({"block": (96, 128, 32), "scheduler": "interwave"}), "gfx942")

    with pytest.raises(IllegalConfigError, match="breaks 2 rule") as caught:
        render(kernel)
    assert "T201" in str(caught.value)
    assert "P301" in str(caught.value)
    assert render_unchecked(kernel).text


def test_a_missing_template_variable_is_an_error() -> None:
    import jinja2

    from tilewright.codegen.render import _load_template

    with pytest.raises(jinja2.UndefinedError):
        _load_template(GEMM.template).render({})
