"""Triton's cache for these tests: one folder for each clone, which later runs use again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import platformdirs
import pytest


@pytest.fixture(autouse=True, scope="session")
def triton_cache() -> object:
    """Keep compiled kernels. Triton's keys contain its version, the source and the options, but not the path of the
    source, which is in the line tables: another clone would find the lines of this one."""
    clone = hashlib.sha256(str(Path(__file__).parents[2]).encode()).hexdigest()[:12]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(Path(platformdirs.user_cache_dir("tilewright-tests"), "triton", clone)))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns if it is not set
        yield
