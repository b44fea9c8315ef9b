"""`tilewright trace` on a HIP program: hot lines, idle lanes and bank conflicts."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hip_compile import GPU, ROOT, compile_program

pytestmark = pytest.mark.compile

SOURCE = Path(__file__).with_name("transpose.hip")
TRANSPOSE, SUM = "_Z9transposePKfPfi", "_Z3sumPKfPfi"


def find_line(text: str) -> int:
    """The number of the line of the program that has a text."""
    (number,) = [number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line]
    return number


def trace(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilewright", "trace", *map(str, words)]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(SOURCE, tmp_path_factory.mktemp("trace"), flags=("-gline-tables-only",))


@pytest.fixture(scope="module")
def folder(program: Path) -> Path:
    out = program.with_name("out")
    done = trace("--out", out, program)
    assert (done.returncode, done.stdout) == (0, "16384\n"), done.stderr
    assert "\ntranspose: " in f"\n{done.stderr}" and str(out / "index.html") in done.stderr
    return out


def sum_of(folder: Path, kernel: str, text: str) -> dict[str, int]:
    """The counts of the source line with a text."""
    (document,) = json.loads((folder / "profile.json").read_text())
    (found,) = [each for each in document["kernels"] if each["kernel"] == kernel]
    total: dict[str, int] = {}
    for each in found["instructions"]:
        if each["source"] is not None and each["source"][:2] == [str(SOURCE), find_line(text)]:
            for name in ("executed", "lanes", "bank_conflict_cycles", "global_read_bytes", "global_write_bytes"):
                total[name] = total.get(name, 0) + each.get(name, 0)
    return total


def test_counts_of_source_lines(folder: Path) -> None:
    matrix = 128 * 128 * 4
    load = sum_of(folder, TRANSPOSE, "tile[row][column] =")
    store = sum_of(folder, TRANSPOSE, "= tile[column][row];")
    assert load["global_read_bytes"] == store["global_write_bytes"] == 3 * matrix
    # A column of the tile is in one bank: 32 cycles for 32 lanes, instead of one. A row has no conflicts.
    assert load["bank_conflict_cycles"] == 0
    assert store["bank_conflict_cycles"] == 3 * 16 * 1024 // 32 * 31
    add = sum_of(folder, SUM, "part[t] += part[t + step];")
    assert add["lanes"] < 0.5 * 64 * add["executed"]


def test_page_and_timeline(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    assert f"transpose.hip:{find_line('= tile[column][row];')}" in page
    assert "part[t] += part[t + step];" in page
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    launches = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in launches] == ["transpose"] * 3 + ["sum"]
    assert launches[0]["args"]["kernel"] == "transpose(float const*, float*, int)"
    for before, after in itertools.pairwise(launches):
        assert before["ts"] + before["dur"] == after["ts"]


def test_estimated_stalls_have_lines_and_reasons(folder: Path) -> None:
    (document,) = json.loads((folder / "profile.json").read_text())
    found = {each["kernel"]: each["estimate"] for each in document["kernels"]}
    assert all("not measured" in each["note"] for each in found.values())
    stalled = {line["line"][1]: line["stalled"] for line in found[TRANSPOSE]["lines"] if line["line"]}
    # The bank conflicts of the column delay the LDS data that its store waits for; the row waits for memory first.
    store, load = stalled[find_line("= tile[column][row];")], stalled[find_line("tile[row][column] =")]
    assert max(store, key=store.__getitem__) == "LDS"
    assert max(load, key=load.__getitem__) == "memory"
    assert found[SUM]["loop"]["rounds"] > 1
    assert sum(found[SUM]["stalled"].values()) < found[SUM]["wave_clocks"]
    page = (folder / "index.html").read_text()
    assert page.count("a model, not measured on a GPU") == 2
    waves = json.loads((folder / "waves.json").read_text())
    assert "not measured" in waves["otherData"]["note"]
    reasons = {event["name"] for event in waves["traceEvents"] if event["ph"] == "X"}
    assert {"memory", "LDS", "barrier"} <= reasons


def test_json_and_exit_code(program: Path, tmp_path: Path) -> None:
    done = trace("--json", "--mode", "strict", "--out", tmp_path / "out", "--gpu", GPU, program)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["exit_code"] == 0
    assert "16384" in done.stderr
    (traced,) = found["programs"]
    assert [each["launches"] for each in traced["kernels"]] == [3, 1]
    assert all(each["estimate"]["block_clocks"] > 0 for each in traced["kernels"])
    failed = trace("--out", tmp_path / "other", "--gpu", GPU, "false")
    assert failed.returncode == 1
    assert "launched no kernel" in failed.stderr
