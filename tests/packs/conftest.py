from __future__ import annotations

import pytest

from c_problems import StandIns, build_stand_ins


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    """The library of stand-in kernels, compiled once."""
    return build_stand_ins(tmp_path_factory.mktemp("stand_ins"))
