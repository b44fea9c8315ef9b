"""Options and fixtures for all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


# The machine that runs the tests may be busy compiling: how long one example takes says nothing.
settings.register_profile("tilewright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tilewright")
