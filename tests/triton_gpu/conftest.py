"""Triton's cache for these tests: one folder, which later runs on the same machine use again."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest


@pytest.fixture(autouse=True, scope="session")
def triton_cache() -> object:
    """Keep compiled kernels. Triton's keys contain its version, the source and the options."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(Path(platformdirs.user_cache_dir("tilewright-tests"), "triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns if it is not set
        yield
