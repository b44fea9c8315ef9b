"""The parts of an acceptance run that need no kernel: sample, process, timing checks, folder, and a missing GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tilewright import arch as archs
from tilewright.acceptance.device_client import DeviceClient
from tilewright.acceptance.folder import ResultFolder
from tilewright.acceptance.result import STAGES, AcceptanceResult, StageResult, format_hip
from tilewright.acceptance.sample import choose_sample, choose_timed_problem
from tilewright.acceptance.timing_checks import check_copy, check_kernel
from tilewright.base.errors import InvalidValueError
from tilewright.cli.app import root
from tilewright.ops import find_op, list_ops
from tilewright.ops.rule import find_violations

no_gpu = pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine may have a GPU")


@pytest.mark.parametrize("name", ["gfx942", "gfx1201"])
def test_the_sample_has_one_legal_kernel_of_each_kind(name: str) -> None:
    arch = archs.load(name)
    sample = choose_sample(arch)
    chosen = [(kernel.op, find_op(kernel.op).kind(kernel.config).name) for kernel in sample.kernels]
    missing = [(each.op, each.kind) for each in sample.missing]
    assert len(set(chosen)) == len(chosen)
    assert sorted(chosen + missing) == sorted((op.name, kind.name) for op in list_ops() for kind in op.kinds)
    for kernel in sample.kernels:
        assert find_violations(find_op(kernel.op).rules, kernel.config, arch) == []
    if name == "gfx942":
        assert missing == [("gemm_quant", "a1x128_b128x128")]  # needs CK Tile's headers since 2026-06
    assert choose_timed_problem(sample.kernels[0], arch)


def test_hip_versions_are_readable() -> None:
    assert format_hip(60342134) == "6.3.42134"
    assert format_hip(70051831) == "7.0.51831"


COPY = {"bytes": 300 << 20, "copy_us": 150.0, "events_us": 750.0, "host_us": 800.0, "clock_mhz": 1900.0}


def test_plausible_times_pass() -> None:
    checks = list(check_copy(COPY, archs.load("gfx942")))
    assert [check.name for check in checks] == ["events and host clock", "copy bandwidth", "engine clock"]
    assert all(check.ok for check in checks)
    (kernel,) = check_kernel({"us": 20.0, "estimate_us": 12.0, "problem": "m=1"})
    assert kernel.ok and list(check_kernel({"us": 20.0, "estimate_us": None})) == []


@pytest.mark.parametrize(
    ("change", "bad"),
    [
        ({"copy_us": 1.0}, "copy bandwidth"),
        ({"copy_us": 0.0}, "copy bandwidth"),
        ({"copy_us": 9000.0}, "copy bandwidth"),
        ({"events_us": 2000.0}, "events and host clock"),
        ({"clock_mhz": 9000.0}, "engine clock"),
    ],
)
def test_implausible_times_fail(change: dict[str, float], bad: str) -> None:
    checks = check_copy({**COPY, **change}, archs.load("gfx942"))
    assert [check.name for check in checks if not check.ok] == [bad]


def test_a_process_that_fails_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with DeviceClient() as client:
        unknown = client.ask("no_such_step", log)
        assert not unknown.ok and "no_such_step" in unknown.error and client.starts == 1
        refused = client.ask(
            "load_kernel", log, device="emulated:gfx942", built={"slug": "x", "store": "/n", "key": "k"}
        )
        assert not refused.ok and refused.kind and client.starts == 2
    with DeviceClient(limit_s=0.01) as slow:
        assert slow.ask("read_gpu", log, device="emulated:gfx942").kind == "timeout"
    assert "Traceback" in log.read_text()


def make_result(**stage: Any) -> AcceptanceResult:
    made = StageResult("environment", "passed", "fine", **stage)
    return AcceptanceResult("gpu:0", "2026-11-17 10:00:00", {"tilewright": "0"}, (made,))


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(InvalidValueError, match=r"thesis\.tex"):
        ResultFolder(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "important"


def test_the_folder_of_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    for summary in ("first", "second"):
        folder = ResultFolder(tmp_path / "result")
        (folder.logs / "load.log").write_text(f"{summary} from /home/somebody/x/lib.so")
        folder.write(make_result(facts={"said": summary}))
        folder.close()
    document = json.loads((tmp_path / "result" / "acceptance.json").read_text())
    assert document["stages"][0]["facts"] == {"said": "second"}
    assert document["verdict"] == f"Incomplete: 1 of {len(STAGES)} stages are done."
    assert (tmp_path / "result" / "logs" / "load.log").read_text() == "second from …/lib.so"


@no_gpu
def test_without_a_gpu_every_stage_has_a_reason(tmp_path: Path) -> None:
    done = CliRunner().invoke(root, ["acceptance", "--device", "gpu:0", "--out", str(tmp_path / "result"), "--json"])
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    assert [stage["name"] for stage in document["stages"]] == list(STAGES)
    assert [stage["verdict"] for stage in document["stages"]] == ["failed", *["skipped"] * 6]
    assert all(stage["summary"] for stage in document["stages"])
    assert "toolchain" in document["stages"][0]["facts"]
    page = (tmp_path / "result" / "acceptance.html").read_text()
    assert "Not accepted: Environment." in page
