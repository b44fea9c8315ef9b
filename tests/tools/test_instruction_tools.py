"""The tools that decode code objects and count instructions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "emulator"))

from assembled import assemble  # noqa: E402

pytestmark = pytest.mark.compile


def run_tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / name), *arguments]
    return subprocess.run(command, text=True, capture_output=True, check=False)


def test_unknown_instructions_are_counted_by_reason(tmp_path: Path) -> None:
    for gpu, body in (
        ("gfx942", "v_mov_b32 v0, v1\nv_mov_b32 v2, v3\ns_endpgm"),
        ("gfx90a", "v_screen_partition_4se_b32 v0, v1\ns_endpgm"),
    ):
        (tmp_path / gpu).mkdir()
        (tmp_path / gpu / "kernel.co").write_bytes(assemble(body, gpu))
    done = run_tool("decode_code_objects.py", str(tmp_path))
    assert done.returncode == 1
    assert "gfx942: 1 files, 1 loaded, 1 with only known instructions, 1 of them native" in done.stdout
    assert "gfx90a: 1 files, 1 loaded, 0 with only known instructions" in done.stdout
    assert "1 × unknown-instruction: 'v_screen_partition_4se_b32'" in done.stdout


def test_a_path_without_a_gpu_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kernel.co").write_bytes(b"")
    done = run_tool("decode_code_objects.py", str(tmp_path))
    assert done.returncode == 2
    assert "names no emulated GPU" in done.stderr


@pytest.mark.parametrize("options", [("--gpu", "gfx942"), pytest.param((), marks=pytest.mark.deep)])
def test_the_page_has_the_current_tables(options: tuple[str, ...]) -> None:
    done = run_tool("instruction_coverage.py", "--check", *options)
    assert done.returncode == 0, done.stderr
