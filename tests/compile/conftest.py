"""Stores for the tests of the build engine, and an environment in which only they are set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine import lend_headers

from small_disks import mount_disk
from tilewright.base import knobs


@pytest.fixture(scope="session")
def ck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CK tree without headers: `scale` includes none."""
    root = tmp_path_factory.mktemp("ck")
    (root / "include" / "ck_tile").mkdir(parents=True)
    return root


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has the precompiled headers after its first use. Each test builds factors of its own in it."""
    return tmp_path_factory.mktemp("shared") / "store"


@pytest.fixture(scope="module")
def engine(plugin: Path, ck: Path) -> Iterator[None]:
    """Builds in this process see the op `scale` and no knob but the CK tree."""
    with pytest.MonkeyPatch.context() as patch:
        for knob in knobs.KNOBS:
            patch.delenv(knob.name, raising=False)
        patch.setenv(knobs.CK_PATH.name, str(ck))
        yield


@pytest.fixture
def warm(shared_store: Path, engine: None) -> Callable[[Path], Path]:
    """Makes a store with precompiled headers, for tests of other things."""
    return lambda store: lend_headers(shared_store, store)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MB, enough for two precompiled headers and their copies, not for much more."""
    with mount_disk(tmp_path / "disk", "size=64m") as disk:
        yield disk
