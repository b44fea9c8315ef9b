"""The tool that runs a folder of HIP programs: its list, its verdicts and its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from run_hip_programs import (
    BUILD,
    CODE,
    FAULT,
    LIMIT,
    MEMORY,
    MISSING,
    PASS,
    RAN,
    WRONG,
    Outcome,
    classify,
    format_table,
    read_programs,
)

ROOT = Path(__file__).parents[2]


def _write_list(folder: Path, text: str) -> Path:
    file = folder / "programs.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (0, "result: PASS", (PASS, "")),
        (0, "time 3 ms", (RAN, "")),
        (0, "first PASS, then FAIL", (WRONG, "")),
        (3, "PASS", (CODE, "3")),
        (None, "", (LIMIT, "5 CPU seconds")),
        (1, "x tilewright: emulated gfx942, fast mode: memory-fault: 4 bytes", (FAULT, "memory-fault: 4 bytes")),
        (1, "tilewright: emulated gfx942, fast mode: no room for 9 bytes", (MEMORY, "no room for 9 bytes")),
        (
            1,
            "tilewright: emulated gfx942, strict mode: hipFreeArray is not implemented by the emulated device: it …",
            (MISSING, "hipFreeArray"),
        ),
    ],
)
def test_verdicts(tmp_path: Path, code: int | None, text: str, expected: tuple[str, str]) -> None:
    (program,) = read_programs(_write_list(tmp_path, "[one]\nlimit_s = 5\n"))
    assert classify(program, code, text) == expected


def test_unknown_keys_of_the_list_are_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="one: unknown keys speed; known are build, fail, folder"):
        read_programs(_write_list(tmp_path, "[one]\nspeed = 5\n"))


def test_the_table_counts_outcomes_and_lists_all_but_those_that_pass() -> None:
    def make(name: str, outcome: str, detail: str = "", note: str = "") -> Outcome:
        return Outcome(name, outcome, detail, 1, 2, 3, "./main", note, "")

    table = format_table([make("a", PASS), make("b", PASS), make("c", BUILD, "no header", "theirs")])
    assert "| passes its own check | 2 |\n| does not compile | 1 |" in table
    assert table.endswith("| c | does not compile | no header | theirs |\n") and "| a |" not in table


@pytest.mark.compile
@pytest.mark.deep
def test_a_folder_is_built_and_run(tmp_path: Path) -> None:
    folder = tmp_path / "add"
    folder.mkdir()
    (folder / "add.hip").write_text((ROOT / "tests/programs/vector_add.hip").read_text())
    listed = _write_list(tmp_path, '[add]\nbuild = "hipcc add.hip -o main"\nrun = "./main 500"\npass = "0 of 500"\n')
    results, table = tmp_path / "results.jsonl", tmp_path / "table.md"
    words = [tmp_path, "--list", listed, "--results", results, "--table", table]
    command = [sys.executable, ROOT / "tools/run_hip_programs.py", *words]
    for _ in range(2):  # the second run has nothing to do
        subprocess.run([str(word) for word in command], check=True, timeout=300)
    (line,) = results.read_text().splitlines()
    assert json.loads(line)["outcome"] == PASS
    assert "| passes its own check | 1 |" in table.read_text()
