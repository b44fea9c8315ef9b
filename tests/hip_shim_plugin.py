"""A pytest plugin that loads the HIP shim before the first test of compiled kernels.

A process can have only one HIP library, and every kernel library uses it. Tests of AMD's library run in separate
processes.
"""

from __future__ import annotations

import pytest

from tilewright.runtime import hip_library


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("compile") is not None:
        hip_library.load_shim()
