"""The HIP library of the process that runs the tests is the stand-in.

Whatever kernel library a test loads takes the HIP library that is there, and a process can have only one. So the first
test that is about compiled kernels loads the stand-in; tests of the real library have processes of their own.
"""

from __future__ import annotations

import pytest

from tilewright.runtime import hip_library


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("compile") is not None:
        hip_library.load_shim()
