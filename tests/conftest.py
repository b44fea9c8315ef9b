"""Options and fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tilewright import ops

pytest_plugins = ["redis_server", "hip_shim_plugin", "time_budget", "built_kernels", "small_disks"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="update the golden files")


# A shell's background jobs ignore SIGINT, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine may be busy compiling, so examples have no deadline.
settings.register_profile("tilewright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tilewright")


@pytest.fixture(scope="module")
def plugin() -> Iterator[Path]:
    """Make the package in tests/plugin available like an installed one, for the tests of a module."""
    yield from _install_plugin("plugin")


@pytest.fixture(scope="module")
def staged_plugin() -> Iterator[Path]:
    """Make the package in tests/staged_plugin available, whose op needs two kernels for a problem."""
    yield from _install_plugin("staged_plugin")


def _install_plugin(name: str) -> Iterator[Path]:
    folder = Path(__file__).with_name(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        ops._collect_plugins.cache_clear()
        yield folder
    ops._collect_plugins.cache_clear()
