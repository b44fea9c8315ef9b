"""A toolchain for tests: the real one where it is installed, with an empty CK tree."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.base import knobs
from tilewright.building.toolchain import Toolchain, find_toolchain


@pytest.fixture
def clean_knobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No knob is set but the cache folder, which is private to the test."""
    for knob in knobs.KNOBS:
        monkeypatch.delenv(knob.name, raising=False)
    monkeypatch.setenv(knobs.CACHE_DIR.name, str(tmp_path / "cache"))
    return monkeypatch


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """The toolchain of this machine with an empty CK tree, for sources that include no CK."""
    ck = tmp_path_factory.mktemp("ck")
    (ck / "include" / "ck_tile").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(knobs.CK_PATH.name, str(ck))
        return find_toolchain()


@pytest.fixture
def cdna3() -> SimpleNamespace:
    """The facts of gfx942 that parsers and flags read."""
    return small_arch("gfx942", "unified", 64)


def small_arch(name: str, agprs: str, wave_size: int) -> SimpleNamespace:
    """A GPU reduced to what parsers and flags read."""
    return SimpleNamespace(name=name, wave_size=wave_size, registers=SimpleNamespace(agprs=agprs))
