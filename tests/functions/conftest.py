"""Functions for arrays build their kernels: here they find them in the tests' store."""

from __future__ import annotations

import pytest

from ci_kernels import STORE
from tilewright.base import knobs


@pytest.fixture(autouse=True)
def _use_shared_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(knobs.STORE.name, str(STORE.root))
