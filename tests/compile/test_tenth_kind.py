"""One more kind of attention kernel is one file, one launcher and one golden: shown in a copy of the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright

SAMPLE = Path(__file__).parent / "samples" / "tenth_kind"
pytestmark = pytest.mark.compile


@pytest.mark.deep
def test_a_tenth_kind_is_one_file_one_launcher_and_one_golden(tmp_path: Path) -> None:
    package = tmp_path / "tilewright"
    shutil.copytree(Path(tilewright.__file__).parent, package)
    shutil.copy(SAMPLE / "dot_o_o.py", package / "ops" / "fmha" / "kinds")
    shutil.copy(SAMPLE / "dot_o_o.hpp", package / "ops" / "fmha" / "launch")

    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TILEWRIGHT_STORE": str(tmp_path / "store")}
    command = [sys.executable, str(SAMPLE / "program.py")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])

    assert found["kinds"][-1] == "dot_o_o" and len(found["kinds"]) == 10
    assert found["source"] == (SAMPLE / "golden.hpp").read_text()
    assert "tilewright_fmha_dot_o_o.hpp" in found["files"]
    # Its own rule applies, and those of all kinds: the length of the block, and a field that the kind does not have.
    assert found["violations"] == ["P499", "T207", "T215"]
    assert found["members"] == ["dot_do_o", "dot_do_o", "dot_o_o", "dot_o_o"]
    assert len(found["verdicts"]) >= 16 and set(found["verdicts"]) == {"ok"}
