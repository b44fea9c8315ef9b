"""`tilewright acceptance` against the HIP shim in the place of a GPU's library: without defects, and with some.

The defects exist only in the process that uses the GPU. The emulated device that it is compared with is unchanged.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
from injected_runs import KERNELS, AcceptanceRun, run_with

pytestmark = pytest.mark.compile

NAMED = 3  # the defect must be among the first suspects


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> AcceptanceRun:
    """A run without a defect, on a GPU whose events measure time."""
    return run_with("timed", tmp_path_factory.mktemp("sound") / "result")


def test_a_gpu_without_defects_is_accepted(sound: AcceptanceRun) -> None:
    assert sound.code == 0, json.dumps(sound.document["stages"], indent=1)
    assert sound.document["ok"] and sound.document["complete"]
    passed = ("environment", "load", "kernel", "agreement", "verification", "timing")
    assert {name: sound.verdicts[name] for name in passed} == dict.fromkeys(passed, "passed")
    assert sound.verdicts["graph"] == "skipped" and "torch" in sound.stage("graph")["summary"]
    assert set(sound.kernels.values()) <= {"agrees", "order"} and len(sound.kernels) == len(KERNELS)
    assert sound.suspects == []


def test_the_environment_describes_the_gpu(sound: AcceptanceRun) -> None:
    gpu = sound.stage("environment")["facts"]["gpu"]
    assert gpu["arch"] == "gfx942" and gpu["units"] == 304 and gpu["memory_bytes"] > 2**30
    assert sound.document["versions"].keys() >= {"tilewright", "python", "ck_generation"}
    chosen = sound.stage("environment")["facts"]["toolchain"]
    assert any(part["name"] == "compiler" and part["toolchain"] == chosen["chosen"] for part in chosen["components"])


def test_the_folder_has_everything_and_no_private_names(sound: AcceptanceRun) -> None:
    names = {str(path.relative_to(sound.folder)) for path in sound.folder.rglob("*") if path.is_file()}
    stages = ("environment", "load", "kernel", "agreement", "verification", "timing", "graph")
    assert names == {"acceptance.json", "acceptance.html", *(f"logs/{stage}.log" for stage in stages)}
    written = json.loads((sound.folder / "acceptance.json").read_text(encoding="utf-8"))
    assert {**written, "folder": str(sound.folder)} == sound.document
    assert [each["kernel"] for each in written["kernels"]] == list(KERNELS.values())
    assert all(len(each["code_object"]["blake2b"]) == 32 for each in written["kernels"])
    for name in names:
        text = (sound.folder / name).read_text(encoding="utf-8")
        assert str(Path.home()) + "/" not in text and str(sound.folder.parent) not in text
        assert socket.gethostname() not in text.split()


@dataclass(frozen=True)
class Defect:
    """A defect, the kernels of a run, those that must be found, and the class and instruction that must be named."""

    name: str
    kernels: tuple[str, ...]
    wrong: frozenset[str]
    suspect: str = ""
    mnemonic: str = ""
    verdict: str = "disagrees"
    said: str = ""
    trials: int = 1


DEFECTS = (
    Defect(
        "exponential", ("half", "combine", "convert"), frozenset({"combine"}), "transcendental function", "v_exp_f32"
    ),
    Defect("matrix rounding", ("half", "single", "dot"), frozenset({"half"}), "matrix", "v_mfma_f32_16x16x16_f16"),
    Defect(
        "conversion",
        ("half", "single", "convert", "dot"),
        frozenset({"half", "convert"}),
        "conversion",
        "v_cvt_f16_f32",
    ),
    Defect("8-bit conversion", ("eight", "convert"), frozenset({"eight"}), "8-bit conversion", "v_cvt_pk_fp8_f32"),
    Defect("lds", ("half", "single", "convert", "dot"), frozenset({"half", "single"}), "LDS", "ds_read_b128"),
    Defect("bounds", ("half", "convert"), frozenset({"half", "convert"}), "buffer load", "buffer_load_dwordx4"),
    Defect("atomic", ("convert", "split"), frozenset({"split"}), "atomic", "buffer_atomic_pk_add_f16", trials=3),
    Defect("cross-lane", ("half", "combine", "convert"), frozenset({"combine"}), "cross-lane", "ds_bpermute_b32"),
    Defect(
        "nothing written",
        ("half", "combine"),
        frozenset({"combine"}),
        said="have the bytes of unwritten memory on the device",
    ),
    Defect("launch error", ("half", "combine"), frozenset({"combine"}), verdict="fault", said="HIP error 9"),
    Defect("crash", ("half", "combine"), frozenset({"combine"}), verdict="fault", said="died of signal 11"),
)


# Each run takes about 8 s of CPU time, so that CI has one defect of each sort: rounding, data, launch.
IN_CI = ("matrix rounding", "lds", "nothing written")
PARAMETERS = [
    pytest.param(each, marks=() if each.name in IN_CI else pytest.mark.deep, id=each.name.replace(" ", "-"))
    for each in DEFECTS
]


@pytest.mark.parametrize("defect", PARAMETERS)
def test_a_defect_is_found_and_named(defect: Defect, tmp_path: Path) -> None:
    run = run_with(defect.name, tmp_path / "result", defect.kernels, "--trials", str(defect.trials))
    assert run.code == 1 and not run.document["ok"] and run.document["complete"]
    assert {name for name, verdict in run.kernels.items() if verdict == defect.verdict} == defect.wrong
    if defect.suspect:
        named = {each["name"]: each["mnemonics"] for each in run.suspects[:NAMED]}
        assert defect.mnemonic in named.get(defect.suspect, ()), run.suspects
    rows = [row for row in run.stage("agreement")["rows"] if row["verdict"] == defect.verdict]
    assert any(defect.said in row["message"] for row in rows), rows


def test_impossible_event_times_are_found(tmp_path: Path) -> None:
    run = run_with("event times", tmp_path / "result", ("half",))
    assert run.code == 1 and run.verdicts["timing"] == "failed" and run.verdicts["agreement"] == "passed"
    assert [row["name"] for row in run.stage("timing")["rows"] if not row["ok"]] == ["copy bandwidth"]
