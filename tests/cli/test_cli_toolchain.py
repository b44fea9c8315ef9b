"""`doctor`, `toolchain` and `inspect`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ck_samples import write_ck_tree
from tilewright.arch.occupancy import Occupancy
from tilewright.building import ck_fetch, toolchain
from tilewright.building.ck_cache import FetchedTree
from tilewright.building.ck_headers import find_ck_component
from tilewright.building.code_object import KernelResources
from tilewright.building.components import Component
from tilewright.building.inspect import Inspection, KernelInspection
from tilewright.building.toolchain import Survey
from tilewright.cli.inspection_report import InspectionChecks, print_inspection

CXX = Component("compiler", "clang++", Path("/bin/clang++"), "clang version 22.1 (a)", "", "apt a")
NO_LLD = Component("linker", "linker", None, "", "no lld", "apt-get install lld-22")
NO_ROCM = Component("rocm", "ROCm", None, "", "/opt/rocm does not exist", "apt-get install rocm")
NO_BUNDLER = Component("bundler", "bundler", None, "", "none", "apt-get install tools", optional=True)
CK = Component("ck", "CK", Path("/ck/include"), "1.2", "", "tilewright toolchain fetch-ck")
NO_CK = Component("ck", "CK", None, "", "not fetched", "tilewright toolchain fetch-ck")


@pytest.mark.parametrize(
    ("found", "code", "texts"),
    [
        (
            Survey({"rocm": (NO_ROCM,), "gpu-less": (CXX, NO_BUNDLER)}, CK, "gpu-less", "no ROCm"),
            0,
            ["ready: the gpu-less toolchain will be used.", "apt-get install tools", "no ROCm"],
        ),
        (
            Survey({"rocm": (NO_ROCM,), "gpu-less": (CXX, NO_LLD)}, CK, None, "nothing is complete"),
            1,
            [
                "not ready:",
                "apt-get install lld-22",
                "apt-get install rocm",
                "tilewright toolchain install",
                "nothing is complete",
            ],
        ),
        (
            Survey({"rocm": (NO_ROCM,), "gpu-less": (CXX,)}, NO_CK, "gpu-less", "no ROCm"),
            1,
            ["not ready:", "tilewright toolchain fetch-ck", "CK Tile headers are missing"],
        ),
    ],
)
def test_doctor_says_what_is_used_and_how_to_get_the_rest(
    *,
    found: Survey,
    code: int,
    texts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Result],
    run_json: Callable[..., Any],
) -> None:
    if found.ck.path:
        found = replace(found, ck=replace(found.ck, path=write_ck_tree(tmp_path / "include")))
    monkeypatch.setattr(toolchain, "survey_toolchains", lambda: found)
    result = run("doctor")
    assert result.exit_code == code
    assert all(text in result.stdout for text in texts)
    document = run_json("doctor", code=code)
    assert (document["complete"], document["chosen"]) == (code == 0, found.chosen)
    assert {entry["name"]: entry["ok"] for entry in document["components"]} == {
        part.name: part.ok for part in found.components
    }


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ([], ("fetch_ck", "2025-11", False)),
        (["--tools"], ("fetch_ck", "2025-11", True)),
        (["--tree", "2025-07"], ("fetch_ck", "2025-07", False)),
        (["--folder", "/ck"], ("copy_ck", Path("/ck"), "", False)),
        (["--folder", "/ck", "--name", "mine", "--tools"], ("copy_ck", Path("/ck"), "mine", True)),
        (["--git", "URL", "--commit", "ab"], ("clone_ck", "URL", "ab", "", "", False)),
        (
            ["--git", "URL", "--commit", "ab", "--subfolder", "d", "--name", "n"],
            ("clone_ck", "URL", "ab", "d", "n", False),
        ),
    ],
)
def test_fetch_ck(
    words: list[str],
    call: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Result],
    run_json: Callable[..., Any],
) -> None:
    tree = FetchedTree("2025-11", Path("/ck/2025-11"), {"package": "p", "version": "1"}, {"include": 1200})
    calls: list[tuple[Any, ...]] = []

    def record(name: str) -> Callable[..., FetchedTree]:
        def fetch(*arguments: Any, tools: bool) -> FetchedTree:
            calls.append((name, *arguments, tools))
            return tree

        return fetch

    for name in ("fetch_ck", "copy_ck", "clone_ck"):
        monkeypatch.setattr(ck_fetch, name, record(name))
    assert run_json("toolchain", "fetch-ck", *words) == tree.to_json()
    assert calls == [call]
    shown = run("toolchain", "fetch-ck", *words).stdout
    assert "2025-11, p 1" in shown and "1,200 files in include/" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tree", "2025-07", "--folder", "/ck"], "--tree and --folder exclude each other"),
        (["--folder", "/ck", "--git", "URL", "--commit", "ab"], "--folder and --git exclude each other"),
        (["--git", "URL"], "--git needs --commit."),
        (["--commit", "ab"], "--commit needs --git."),
        (["--subfolder", "d"], "--subfolder needs --git."),
        (["--name", "n"], "--name needs --folder or --git"),
        (["--tree", "2025-07", "--name", "n"], "--name needs --folder or --git"),
        (["--tree", "2025-08"], "unknown tree '2025-08'. Did you mean '2025-07'? Known: 2025-11, 2025-07."),
    ],
)
def test_fetch_ck_rejects_options_that_exclude_each_other(
    words: list[str], message: str, run: Callable[..., Result]
) -> None:
    result = run("toolchain", "fetch-ck", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_doctor_names_the_probe_of_an_unknown_tree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    include = write_ck_tree(tmp_path / "include")
    for header in include.rglob("*.hpp"):
        header.write_text(header.read_text().replace("<typename", "<int Future_, typename"))
    ck = replace(CK, path=include)
    monkeypatch.setattr(
        toolchain,
        "survey_toolchains",
        lambda: Survey({"rocm": (NO_ROCM,), "gpu-less": (CXX,)}, ck, "gpu-less", "no ROCm"),
    )
    shown = run("doctor")
    assert shown.exit_code == 1
    assert "generation of CK Tile: unknown" in shown.stdout
    assert "unusable for gemm: the probe" in shown.stdout
    assert "has Future, compared with" in shown.stdout
    found = run_json("doctor", code=1)["ck"]
    assert found["generation"] is None
    assert "gemm" in found["unusable"]


def test_doctor_lists_the_fetched_trees(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CK", "mine")
    monkeypatch.setattr(
        toolchain,
        "survey_toolchains",
        lambda: Survey({"rocm": (NO_ROCM,), "gpu-less": (CXX,)}, find_ck_component(None), "gpu-less", "no ROCm"),
    )
    assert "fetched CK trees: none" in run("doctor").stdout
    for name in ("mine", "other", "unfinished"):
        write_ck_tree(tmp_path / "ck" / name / "include")
    for name in ("mine", "other"):
        (tmp_path / "ck" / name / "manifest.json").write_text('{"files": {"include": 1}}')
    assert "fetched CK trees: mine (current), other\n" in run("doctor").stdout
    listed = run_json("doctor")["ck_trees"]
    assert [(tree["name"], tree["current"], tree["files"]) for tree in listed] == [
        ("mine", True, {"include": 1}),
        ("other", False, {"include": 1}),
    ]
    (tmp_path / "ck" / "other" / "manifest.json").write_text("[]")
    shown = run("doctor").stdout
    assert "mine (current), other (damaged)" in shown and "must be an object" in shown
    assert "problem" in run_json("doctor")["ck_trees"][1]


def test_source_needs_no_compiler(
    run: Callable[..., Result], run_json: Callable[..., Any], settings: Callable[..., list[str]]
) -> None:
    args = ["inspect", "gemm", "--arch", "gfx942", *settings(), "--source"]
    document = run_json(*args)
    assert run(*args).stdout == document["text"]
    assert document["name"] in document["text"]


def test_an_illegal_kernel_is_not_compiled(run: Callable[..., Result], settings: Callable[..., list[str]]) -> None:
    result = run("inspect", "gemm", "--arch", "gfx942", *settings(block="96x128x32"))
    assert result.exit_code == 2
    assert "T201 block-not-covered" in result.stderr


def _kernel(name: str, spills: int) -> KernelInspection:
    resources = KernelResources(name, 136, 0, 28, spills, 0, 0, 16384, 64, 64, 256)
    occupancy = Occupancy(3, 3, "vgprs", {"vgprs": 3})
    mix = {"matrix": 32, "valu": 295, "other": 5}
    return KernelInspection(resources, occupancy, mix, {"v_mfma_x": 32}, 3556, True)


def test_the_report_of_an_inspection(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("_ZN1fILb1ELNS_4TailE2EEE", "_ZN1fILb0ELNS_4TailE0EEE")
    kernels = tuple(_kernel(name, spills) for spills, name in enumerate(names))
    inspection = Inspection("k", "gfx942", "clang 22", 1.0, 2.0, 48824, kernels)
    print_inspection(inspection, InspectionChecks(("v_mfma_x",), ("v_mfma_x",), 16384, (16384,)))
    shown = capsys.readouterr().out
    assert "true, Tail 2" in shown
    assert "false, Tail 0" in shown
    assert "✓ matrix instruction v_mfma_x, as the config names (32, 32)" in shown
    assert "✓ 16,384 bytes of LDS, as predicted" in shown
    assert "! 1 kernel spill registers to memory" in shown
    print_inspection(inspection, InspectionChecks(("v_mfma_y",), ("v_mfma_x",), 8192, (16384,)))
    shown = capsys.readouterr().out
    assert "✗ matrix instruction v_mfma_x; the config names v_mfma_y" in shown
    assert "✗ 16,384 bytes of LDS; 8,192 were predicted" in shown


@pytest.mark.compile
def test_doctor_and_inspect_for_real(settings: Callable[..., list[str]], tmp_path: Path) -> None:
    """In a process of its own, as a user runs it."""
    program = [sys.executable, "-m", "tilewright"]
    subprocess.run([*program, "doctor"], check=True, capture_output=True)
    subprocess.run([*program, "toolchain", "show", "--arch", "gfx942"], check=True, capture_output=True)
    code = tmp_path / "kernel.s"
    args = ["inspect", "gemm", "--arch", "gfx942", *settings(), "--json", "--disassembly", str(code)]
    done = subprocess.run([*program, *args], check=True, capture_output=True, text=True)
    document = json.loads(done.stdout)
    assert done.stderr == ""
    assert document["checks"]["matrix_instructions"]["ok"]
    assert document["checks"]["lds_bytes"]["ok"]
    (expected,) = document["checks"]["matrix_instructions"]["expected"]
    assert expected in code.read_text()
