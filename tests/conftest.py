"""Options and fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tilewright import ops

pytest_plugins = ["redis_server", "hip_shim_first", "time_budget", "built_kernels"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


# The machine that runs the tests may be busy compiling: how long one example takes says nothing.
settings.register_profile("tilewright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tilewright")


@pytest.fixture(scope="module")
def plugin() -> Iterator[Path]:
    """The package in tests/plugin is found like an installed one, and adds its op while the tests of a module run."""
    yield from _plugged_in("plugin")


@pytest.fixture(scope="module")
def staged_plugin() -> Iterator[Path]:
    """The same with the package in tests/staged_plugin, whose op computes its problems with two kernels."""
    yield from _plugged_in("staged_plugin")


def _plugged_in(name: str) -> Iterator[Path]:
    folder = Path(__file__).with_name(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        ops._collect_plugins.cache_clear()
        yield folder
    ops._collect_plugins.cache_clear()
