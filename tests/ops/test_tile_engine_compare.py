"""Our GEMM rules beside the kernel list of CK's tile_engine: every difference has a reason."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewright.base.errors import ToolchainError

TOOL = Path(__file__).parents[2] / "tools" / "compare_tile_engine.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_tile_engine", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tool: ModuleType) -> Path:
    try:
        found: Path = tool.find_tile_engine()
    except ToolchainError as error:
        pytest.skip(f"CK's tile_engine is not here: {error}")
    return found


@pytest.fixture(scope="module")
def comparison(tool: ModuleType, folder: Path) -> Any:
    return tool.compare(folder)


@pytest.fixture(scope="module")
def document(tool: ModuleType, folder: Path) -> str:
    """The committed document, if this tile_engine is the one it was made with."""
    text: str = tool.DOCUMENT.read_text(encoding="utf-8")
    if f"`{tool.digest_folder(folder)}`" not in text:
        pytest.skip(f"{tool.DOCUMENT.name} was made with another tile_engine than {folder}")
    return text


def test_every_difference_has_a_reason(tool: ModuleType, comparison: Any) -> None:
    told = tool.format_text(comparison)
    assert comparison.unexplained == 0, told
    assert comparison.adds_up(), told
    assert comparison.both > 0, told


def test_the_list_is_the_one_that_ck_writes(document: str, comparison: Any) -> None:
    assert (comparison.raw, comparison.ck) == (622_080, 1_168)


def test_what_only_ck_lists_is_known(comparison: Any) -> None:
    refused = {row.reason for row in comparison.only_ck}
    assert refused <= {"P313"}, f"further rules refuse kernels that CK builds: {refused}"


def test_the_document_is_up_to_date(tool: ModuleType, document: str, comparison: Any) -> None:
    assert tool.format_markdown(comparison) == document, "run: tools/compare_tile_engine.py --write"


def test_a_folder_that_is_no_tile_engine(tool: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="is no tile_engine folder"):
        tool.compare(tmp_path)
