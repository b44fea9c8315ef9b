"""CK trees next to the project that tests compile with, in addition to the fetched one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.arch.ck_api import find_current_api
from tilewright.base.knobs import CK_PATH

TREES = Path(__file__).parents[2] / "shared" / "ck"
NEWER = "2026-06-30"
ABSENT = f"needs the CK tree {NEWER} in ../shared/ck"


@contextmanager
def use_tree(folder: Path) -> Iterator[str]:
    """Use the CK headers of a folder meanwhile; yield their generation."""
    before = os.environ.get(CK_PATH.name)
    os.environ[CK_PATH.name] = str(folder)
    try:
        yield find_current_api().generation
    finally:
        if before is None:
            del os.environ[CK_PATH.name]
        else:
            os.environ[CK_PATH.name] = before
