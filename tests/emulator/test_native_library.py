"""The engine's library as a file: compiled once, checked before it is loaded, made again when it is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.base import events, knobs
from tilewright.base.errors import StoreError
from tilewright.emulator.native import library as module

pytestmark = [pytest.mark.compile, pytest.mark.slow]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of its own, and an engine that is not optimised: 2 s instead of 20."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv(knobs.CACHE_DIR.name, str(folder))
        patch.setattr(module, "FLAGS", tuple("-O0" if flag == "-O2" else flag for flag in module.FLAGS))
        yield folder


def opened() -> tuple[module.EngineLibrary, int]:
    """The library as a new process would open it, and how often it was compiled for that."""
    compiled = []
    with events.add_listener(lambda event: compiled.append(event) if isinstance(event, events.Finished) else None):
        library = module.load_engine.__wrapped__()
    assert library is not None
    return library, len(compiled)


def test_it_is_compiled_once(cache: Path) -> None:
    library, compiled = opened()
    assert library.path.is_relative_to(cache / "emulator")
    assert compiled <= 1
    again, compiled = opened()
    assert (again.path, compiled) == (library.path, 0)


@pytest.mark.parametrize("size", [0, 100, 0.5, -1])
def test_a_damaged_library_is_never_loaded(cache: Path, size: float) -> None:
    """Half of a library is a SIGBUS when its symbols are read, none of it an error for ever."""
    path = opened()[0].path
    whole = path.read_bytes()
    path.unlink()  # this process has it loaded: the file must not change under it
    path.write_bytes(whole[:-1] + b"?" if size == -1 else whole[: int(size if size >= 1 else size * len(whole))])
    path.chmod(0o600)
    library, compiled = opened()
    assert compiled == 1
    assert library.path == path
    assert path.read_bytes() == whole


def test_a_folder_that_others_may_write_to_is_refused(cache: Path) -> None:
    opened()
    (cache / "emulator").chmod(0o777)
    try:
        with pytest.raises(StoreError, match=r"emulator belongs to .* mode 0777"):
            opened()
    finally:
        (cache / "emulator").chmod(0o700)
    assert os.access(opened()[0].path, os.R_OK)
