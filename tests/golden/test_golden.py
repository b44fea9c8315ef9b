"""Golden sources: one kernel of each variant × pipeline × epilogue, compared letter by letter.

`pytest tests/golden --update-golden` writes them anew; review the difference like code.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright import arch as archs
from tilewright.base.errors import IllegalConfigError
from tilewright.codegen.render import render, render_unchecked
from tilewright.ops import OPS, op_named, parse_kernel
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.sampling import draw_legal, strata

FOLDER = Path(__file__).parent
GEMM = op_named("gemm")


def representatives(op: Op) -> list[Kernel]:
    """For each legal combination of the op's kinds of kernels the first GPU, types and layout that have it."""
    chosen: dict[tuple[str, ...], Kernel] = {}
    for name in ("gfx942", "gfx950"):
        arch = archs.load(name)
        for fixed in strata(op, arch):
            kind = tuple(str(fixed[field]) for field in op.kinds)
            if kind in chosen:
                continue
            config = draw_legal(op, arch, random.Random(0), fixed)
            if config is not None:
                chosen[kind] = Kernel(op.name, config, name)
    return list(chosen.values())


def golden_path(kernel: Kernel) -> Path:
    kinds = op_named(kernel.op).kinds
    return FOLDER / kernel.op / ("-".join(str(getattr(kernel.config, k)) for k in kinds) + ".golden")


KERNELS = [k for op in OPS for k in representatives(op)]


def test_the_golden_kernels_cover_variants_pipelines_and_epilogues() -> None:
    seen = {(k.config.variant, k.config.pipeline, k.config.epilogue) for k in KERNELS}  # type: ignore[attr-defined]
    single = ("mem", "compv3", "compv6")
    expected = {
        *itertools.product(("standard", "multi_d"), (*single, "compv4"), ("cshuffle", "default")),
        *itertools.product(("standard", "multi_d"), ("comp_async",), ("default",)),
        *itertools.product(("batched",), single, ("cshuffle", "default")),
        *itertools.product(("standard", "multi_d"), ("compv5",), ("default",)),
        *itertools.product(("preshuffle",), ("preshufflev2",), ("cshuffle", "default")),
    }
    assert seen == expected


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: golden_path(k).stem)
def test_golden(kernel: Kernel, request: pytest.FixtureRequest) -> None:
    path = golden_path(kernel)
    text = render(kernel).text
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    assert path.read_text() == text


def test_no_golden_file_is_left_over() -> None:
    assert set(FOLDER.glob("*/*.golden")) == {golden_path(k) for k in KERNELS}


def test_rendering_depends_on_nothing_but_the_kernel(tmp_path: Path) -> None:
    """Another process, hash seed, folder and time give the same bytes."""
    program = (
        "import sys; from tilewright.ops import parse_kernel; from tilewright.codegen.render import render\n"
        "for slug in sys.argv[1:]: sys.stdout.write(render(parse_kernel(slug)).text)"
    )
    slugs = [k.slug for k in KERNELS[:6]]
    here = "".join(render(parse_kernel(slug)).text for slug in slugs)
    for seed in ("0", "77"):
        environment = {"PYTHONHASHSEED": seed, "TZ": "Asia/Tokyo", "LC_ALL": "C", "PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", program, *slugs]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == here


def test_an_illegal_kernel_is_not_rendered() -> None:
    kernel = GEMM.kernel(GEMM.example_config({"block": (96, 128, 32), "scheduler": "interwave"}), "gfx942")

    with pytest.raises(IllegalConfigError, match="breaks 2 rule") as caught:
        render(kernel)
    assert "T201" in str(caught.value)
    assert "P301" in str(caught.value)
    assert render_unchecked(kernel).text


def test_a_missing_template_variable_is_an_error() -> None:
    import jinja2

    from tilewright.codegen.render import _template

    with pytest.raises(jinja2.UndefinedError):
        _template(GEMM.template).render({})
