"""`tilewright verify --problems`: kernels run on the problems of a file that are of their kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import tilewright as tw
from built_kernels import STORE
from tilewright.base import knobs
from tilewright.cli.app import root

pytestmark = pytest.mark.compile

CONFIG = tw.gemm.config(
    variant="standard",
    dtype="fp16",
    layout="rcr",
    block=(64, 64, 32),
    waves=(2, 2, 1),
    mma=(32, 32, 8),
    pipeline="compv3",
    scheduler="intrawave",
    epilogue="default",
)
LIST = """\
m,n,k,dtype,layout
64,64,32,fp16,rcr
64,64,32,bf16,rcr
65,128,64,fp16,rcr
64,64,32,fp16,rrr
64,65,32,fp16,rcr
"""


def test_each_kernel_gets_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(knobs.STORE.name, str(STORE.root))
    path = tmp_path / "shapes.csv"
    path.write_text(LIST)
    kernel = tw.kernel_of(CONFIG, "gfx942")
    idle = tw.kernel_of(replace(CONFIG, layout="crr"), "gfx942")
    words = ["verify", kernel.slug, idle.slug, "--device", "emulated:gfx942", "--mode", "fast"]
    result = CliRunner().invoke(root, [*words, "--problems", str(path), "--json"])
    document = json.loads(result.stdout)
    (tried,) = document["kernels"]
    assert tried["name"] == kernel.slug
    assert [check["verdict"] for check in tried["checks"]] == ["ok", "ok", "unsupported"]
    assert [check["problem"] for check in tried["checks"]] == [
        {"m": 64, "n": 64, "k": 32},
        {"m": 65, "n": 128, "k": 64},
        {"m": 64, "n": 65, "k": 32},
    ]
    assert document["untried"] == {"kernels": [idle.slug], "problems": 2}
    assert result.exit_code == 1  # one problem is not supported
    shown = CliRunner().invoke(root, [*words, "--problems", str(path)])
    assert "not run, since no problem is of their kind: 1 kernel\n" in shown.stderr
    assert "not tried, since no kernel is of their kind: 2 problems\n" in shown.stderr
