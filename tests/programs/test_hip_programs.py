"""HIP programs on the emulated device: output and exit code, faults, parts of HIP, and what is not implemented."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hip_compile import ROOT, Run

from tilewright.base.knobs import EMULATOR_MODES

pytestmark = pytest.mark.compile

Compiled = Callable[[str], Path]


@pytest.mark.parametrize("mode", EMULATOR_MODES)
def test_vector_add(emulate: Run, compiled: Compiled, tmp_path: Path, mode: str) -> None:
    report = tmp_path / "report.json"
    done = emulate("--mode", mode, "--report", report, "--", compiled("vector_add.hip"), 1000)
    assert (done.returncode, done.stdout, done.stderr) == (0, "gfx942\n0 of 1000 are wrong\n", "")
    said = json.loads(report.read_text())
    assert (said["gpu"], said["mode"], said["errors"], said["not_implemented"]) == ("gfx942", mode, [], {})
    assert said["program"] == [str(compiled("vector_add.hip")), "1000"]
    (kernel,) = said["kernels"]
    assert kernel["launches"] == 1 and kernel["counters"]["global_write_bytes"] == 4000
    assert [each["bytes"] for each in said["not_freed"]] == [4000]


@pytest.mark.parametrize("mode", EMULATOR_MODES)
def test_a_fault_is_reported_and_returned(emulate: Run, compiled: Compiled, tmp_path: Path, mode: str) -> None:
    report = tmp_path / "report.json"
    done = emulate("--mode", mode, "--report", report, compiled("vector_add.hip"), 1000, 990)
    told = "hipErrorIllegalAddress: a kernel accessed memory that is not allocated\n"
    assert (done.returncode, done.stdout) == (3, f"gfx942\n{told}")
    assert f"tilewright: emulated gfx942, {mode} mode: memory-fault: 4 bytes at 0x" in done.stderr
    assert "0 bytes past the end of an allocation" in done.stderr
    assert "work-group 3, wave 3, lane 30" in done.stderr and "kernel: add\n" in done.stderr
    assert [error["name"] for error in json.loads(report.read_text())["errors"]] == ["memory-fault"]


def test_parts_of_hip(emulate: Run, compiled: Compiled, tmp_path: Path) -> None:
    parts = ("devices", "symbols", "memory", "streams", "graphs", "occupancy", "grid_barrier")
    done = emulate("--mode", "strict", compiled("features.hip"), *parts)
    assert done.stdout.splitlines() == [f"{part}: right" for part in parts]
    assert done.returncode == 7
    refused = [line for line in done.stderr.splitlines() if line.startswith("tilewright")]
    assert refused == [], "only errors of the emulated device are printed, not statuses that programs ask for"


def test_services(emulate: Run, compiled: Compiled) -> None:
    parts = ("kernel_malloc", "volumes", "pools", "virtual_memory", "graph_nodes", "run_time_compiler")
    done = emulate("--mode", "strict", compiled("services.hip"), *parts)
    assert done.stdout.splitlines() == [f"{part}: right" for part in parts]
    assert (done.returncode, done.stderr) == (7, "")


def test_functions_that_are_not_implemented_are_named(emulate: Run, compiled: Compiled, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    done = emulate("--report", report, compiled("features.hip"), "missing")
    assert (done.returncode, done.stdout) == (7, "missing: right\n")
    (line,) = done.stderr.splitlines()
    assert line.endswith("hipFreeArray is not implemented by the emulated device: it returns hipErrorNotSupported")
    assert json.loads(report.read_text())["not_implemented"] == {"hipFreeArray": 2}


def test_faults_of_kernels_from_the_cache(emulate: Run, compiled: Compiled) -> None:
    """A kernel that an earlier process has lowered gives the same message, but for addresses in memory."""
    first, second = (emulate(compiled("vector_add.hip"), 1000, 990).stderr for _ in range(2))
    assert first.splitlines()[1:] == second.splitlines()[1:]
    assert "instruction at" in second and "work-group 3, wave 3, lane 30" in second


@pytest.mark.parametrize("mode", EMULATOR_MODES)
def test_kernels_print(emulate: Run, compiled: Compiled, mode: str) -> None:
    done = emulate("--mode", mode, compiled("features.hip"), "print")
    text = "a text of more than fifty-six bytes, so that it takes two packets"
    before, *said, after, right = done.stdout.splitlines()
    assert (before, after, right) == ("before", "after", "print: right")
    # HIP states no order between the lines of work-groups, and the host may answer the second one first.
    ordered = sorted(said, key=lambda line: "block 1" in line)
    assert ordered == [f"thread {t} of block {b}: {text} {t * 0.5:5.2f} -1 %" for b in (0, 1) for t in (0, 1, 2)]
    assert done.stderr == ""


def test_a_failed_assertion_stops_the_kernel(emulate: Run, compiled: Compiled) -> None:
    done = emulate(compiled("features.hip"), "assertion")
    assert (done.returncode, done.stdout) == (7, "assertion: right\n")
    assert done.stderr.count("Device-side assertion `int(threadIdx.x) < n' failed") == 4
    assert "trap: the kernel stopped itself" in done.stderr


def test_processes_of_a_script_are_emulated(emulate: Run, compiled: Compiled, tmp_path: Path) -> None:
    program, report = compiled("vector_add.hip"), tmp_path / "report.jsonl"
    done = emulate("--gpu", "gfx942", "--report", report, "sh", "-c", f"{program} 100 && {program} 200; exit 5")
    assert done.stdout.count("are wrong") == 2 and done.stdout.count("\n0 of") == 2
    assert done.returncode == 5
    sizes = [json.loads(line)["program"][1] for line in report.read_text().splitlines()]
    assert sizes == ["100", "200"]


def test_variables_for_other_tools(emulate: Run, compiled: Compiled) -> None:
    printed = emulate("--gpu", "gfx942", "--environment", "--json")
    variables = json.loads(printed.stdout)
    assert set(variables) == {"LD_PRELOAD", "LD_LIBRARY_PATH", "TILEWRIGHT_EMULATE"}
    done = subprocess.run(
        [compiled("vector_add.hip")], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "gfx942\n0 of 1000 are wrong\n"), done.stderr
    exported = emulate("--gpu", "gfx942", "--environment").stdout
    shell = f"{exported}\n{compiled('vector_add.hip')} 10"
    said = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert said == "gfx942\n0 of 10 are wrong\n"


def test_starting_imports_no_slow_modules(emulate: Run, compiled: Compiled) -> None:
    """NumPy takes longer to import than the rest of the start; with a kept kernel, neither process needs it."""
    emulate(compiled("vector_add.hip"))  # keeps the kernel
    command = emulate("--gpu", "gfx942", "--environment", "--json", PYTHONPROFILEIMPORTTIME="1")
    variables = {**os.environ, **json.loads(command.stdout), "PYTHONPROFILEIMPORTTIME": "1"}
    program = subprocess.run([compiled("vector_add.hip")], env=variables, capture_output=True, text=True, check=True)
    slow = {"numpy", "pydantic", "torch", "elftools", "tomllib", "csv", "rich", "secrets", "tilewright.cli.progress"}
    for said, expected in ((command.stderr, "tilewright.cli.app"), (program.stderr, "tilewright.emulator.device")):
        imported = {line.rpartition("|")[2].strip() for line in said.splitlines()}
        assert expected in imported
        assert not slow & imported
    assert "click" not in {line.rpartition("|")[2].strip() for line in program.stderr.splitlines()}


def test_the_gpu_is_that_of_the_program(emulate: Run, compiled: Compiled, tmp_path: Path) -> None:
    other = emulate("--gpu", "gfx90a", compiled("vector_add.hip"))
    assert other.returncode == 1
    assert "bad-code-object: it is for gfx942, but this is an emulated gfx90a" in other.stderr
    unknown = emulate("--gpu", "gfx906", compiled("vector_add.hip"))
    assert unknown.returncode == 2 and "gfx906" in unknown.stderr and "gfx942" in unknown.stderr
    unclear = emulate("true")
    assert unclear.returncode == 2 and "--gpu is needed:" in unclear.stderr and "names no GPU" in unclear.stderr
    absent = emulate("--gpu", "gfx942", tmp_path / "absent")
    assert absent.returncode == 2 and "is not a program" in absent.stderr
    assert emulate("--gpu", "gfx942").returncode == 2
    assert "--json needs --environment" in emulate("--gpu", "gfx942", "--json", "true").stderr


def test_a_python_program_uses_its_own_interpreter(emulate: Run) -> None:
    text = """
import ctypes
hip = ctypes.CDLL("libamdhip64.so")
count, address = ctypes.c_int(), ctypes.c_void_p()
assert hip.hipGetDeviceCount(ctypes.byref(count)) == 0
assert hip.hipMalloc(ctypes.byref(address), ctypes.c_size_t(100)) == 0
print(count.value, bool(address.value))
"""
    done = emulate("--gpu", "gfx1100", "--", sys.executable, "-c", text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 True\n", "")


def test_ctest_runs_programs(emulate: Run, compiled: Compiled, tmp_path: Path) -> None:
    """The recipe of docs/hip-programs.md."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(tests NONE)\nenable_testing()\n"
        f"set(EMULATE {sys.executable} -m tilewright emulate --gpu gfx942 --mode strict --)\n"
        f"add_test(NAME good COMMAND ${{EMULATE}} {compiled('vector_add.hip')} 300)\n"
        f"add_test(NAME bad COMMAND ${{EMULATE}} {compiled('vector_add.hip')} 300 299)\n"
    )
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    build = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build")]
    subprocess.run(build, check=True, capture_output=True)
    test = ["ctest", "--test-dir", str(tmp_path / "build"), "--output-on-failure"]
    done = subprocess.run(test, env=surroundings, capture_output=True, text=True, check=False)
    assert "50% tests passed, 1 tests failed out of 2" in done.stdout
    assert "memory-fault: 4 bytes at" in done.stdout
