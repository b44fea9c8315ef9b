"""Built kernels of the small ops `scale` and `axpb`, and the emulated device they run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.base import knobs
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel

MakeKernel = Callable[..., Kernel]


@pytest.fixture(scope="session")
def scale_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dispatch") / "store"


@pytest.fixture(scope="module")
def scale(plugin: Path) -> MakeKernel:
    """A kernel of `scale`: 64 threads, fp32, gfx942 unless told otherwise."""

    def make(factor: int, arch: str = "gfx942", **fields: Any) -> Kernel:
        op = find_op("scale")
        return op.make_kernel(op.make_config(**{"dtype": "fp32", "threads": 64, "factor": factor, **fields}), arch)

    return make


@pytest.fixture(scope="module")
def registry(scale: MakeKernel, scale_store: Path) -> Iterator[tw.Registry]:
    """Kernels that differ in what they need: the factor tells which one ran."""
    kernels = [
        scale(2),
        scale(3, dtype="fp64"),
        scale(5, whole=True, dtype="fp64"),
        scale(7, backwards=True),
        scale(11, scratch=256),
        scale(13, "gfx90a"),
        scale(17, whole=True),
    ]
    yield from _built(kernels, scale_store)


@pytest.fixture(scope="module")
def axpb(staged_plugin: Path) -> MakeKernel:
    """A kernel of `axpb`, an op whose problems take two of them: 64 threads, gfx942."""

    def make(step: str, **fields: Any) -> Kernel:
        op = find_op("axpb")
        return op.make_kernel(op.make_config(**{"step": step, "threads": 64, **fields}), "gfx942")

    return make


@pytest.fixture(scope="module")
def staged(axpb: MakeKernel, scale_store: Path) -> Iterator[tw.Registry]:
    """Kernels for both steps. What the first one leaves in two parts, no other takes."""
    kernels = [
        axpb("scale", parts=2),
        axpb("scale"),
        axpb("scale", parts=3),
        axpb("add"),
        axpb("add", parts=3),
        axpb("scale", lazy=True),
    ]
    yield from _built(kernels, scale_store)


def _built(kernels: list[Kernel], store: Path) -> Iterator[tw.Registry]:
    """A registry of built kernels, and its surroundings for as long as tests use it."""
    with pytest.MonkeyPatch.context() as patch:
        for knob in knobs.KNOBS:
            if knob not in (knobs.CACHE_DIR, knobs.CK_PATH, knobs.ROCM_PATH, knobs.CXX):
                patch.delenv(knob.name, raising=False)
        patch.setenv(knobs.STORE.name, str(store))
        built = tw.build(kernels, jobs=1)
        assert built.failures == {}
        yield built


@pytest.fixture
def device() -> tw.Device:
    return tw.Device("emulated:gfx942")
