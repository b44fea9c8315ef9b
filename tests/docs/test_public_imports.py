"""Documentation and examples import public modules only, and every public name exists."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fences import PAGES, ROOT, blocks

import tilewright
from api_page import EXTENSION, PUBLIC, list_public_names

EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def find_private_imports(text: str) -> Iterator[str]:
    """Yield the imports of Tilewright in a program that are not documented as public."""
    public = list_public_names()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            ours = [each.name for each in node.names if each.name.partition(".")[0] == "tilewright"]
            yield from (name for name in ours if name not in public)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tilewright":
            module = node.module or ""
            for each in node.names:
                if each.name not in public.get(module, ()) and f"{module}.{each.name}" not in public:
                    yield f"{module}.{each.name}"


def test_private_imports_are_found() -> None:
    found = find_private_imports(
        "import tilewright.bench.plan\nfrom tilewright.bench import Task, TaskGrid\nfrom tilewright import gemm, ops\n"
        "def f():\n    from tilewright.base.errors import PackError\n"
    )
    assert sorted(found) == [
        "tilewright.base.errors.PackError",
        "tilewright.bench.TaskGrid",
        "tilewright.bench.plan",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_import_public_modules_only(page: Path) -> None:
    found = {
        f"line {block.line}: {name}"
        for block in blocks(page)
        if block.language == "python"
        for name in find_private_imports(block.text)
    }
    assert not found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_import_public_modules_only(path: Path) -> None:
    assert not list(find_private_imports(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [*PUBLIC, *EXTENSION])
def test_public_names_exist_and_are_not_hidden_by_modules(name: str) -> None:
    module, names = importlib.import_module(name), list_public_names()[name]
    assert all(getattr(module, each) is not None for each in names)
    if hasattr(module, "__getattr__"):
        modules = {each.name for each in pkgutil.iter_modules(module.__path__)}
        assert not modules & set(names), "importing the module would hide the public name"
        assert list(names) == dir(module)


def test_packages_with_a_list_of_names_are_public() -> None:
    packages = [each.name for each in pkgutil.walk_packages(tilewright.__path__, "tilewright.") if each.ispkg]
    listed = {name for name in packages if hasattr(importlib.import_module(name), "__all__")}
    assert listed <= set(PUBLIC)


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "tilewright.torch"])  # it needs torch itself
def test_importing_a_package_does_not_need_extras(name: str) -> None:
    program = f"import sys, {name}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "pyarrow", "ray", "duckdb", "lightgbm", "matplotlib", "click"} & set(out.split())
