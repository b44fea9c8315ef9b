"""Each seeded bug is reported with its source lines; the corrected kernel is silent."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable

import pytest
from bug_cases import BugCase, compile_cases, make_device, read_cases, run_cases

from tilewright.base.errors import InvalidValueError
from tilewright.emulator import CheckFault, Extent, Finding, Launch, Mode

Found = dict[str, list[Finding]]
# There a release at the scope of the work-group waits for stores as one at the scope of the device does.
SAME_CODE_ON_RDNA = {"last_group_block_fence", "flag_release_scope"}
FILES = sorted({case.file for case in read_cases().values()})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, bool], Found]:
    folder = tmp_path_factory.mktemp("bugs")

    def run_file(file: str, gpu: str, fixed: bool) -> Found:
        cases = [case for case in read_cases().values() if case.file == file]
        return run_cases(make_device(gpu), compile_cases(file, gpu, fixed, folder), cases)

    return run_file


def _is_reported(case: BugCase, findings: list[Finding]) -> bool:
    return any(
        finding.name == case.finding
        and case.lines <= {place.source.line for place in finding.places if place.source is not None}
        for finding in findings
    )


def _check(found: Found, gpu: str) -> None:
    known = SAME_CODE_ON_RDNA if gpu.startswith(("gfx11", "gfx12")) else set()
    missed = {name for name, findings in found.items() if not _is_reported(read_cases()[name], findings)}
    assert missed <= known, {name: list(map(str, found[name])) for name in missed - known}


def test_there_are_bugs_of_every_kind() -> None:
    kinds = Counter(case.finding for case in read_cases().values())
    assert len(read_cases()) >= 60 and kinds["race"] >= 30
    assert set(kinds) == {
        *("race", "uninitialized-read", "divergent-barrier", "spin", "memory-fault", "lds-fault", "misaligned-access")
    }


@pytest.mark.parametrize("file", FILES)
def test_every_bug_is_reported(run: Callable[[str, str, bool], Found], file: str) -> None:
    _check(run(file, "gfx942", False), "gfx942")


@pytest.mark.parametrize("file", FILES)
def test_corrected_kernels_are_silent(run: Callable[[str, str, bool], Found], file: str) -> None:
    assert {name: list(map(str, found)) for name, found in run(file, "gfx942", True).items() if found} == {}


@pytest.mark.deep
@pytest.mark.parametrize("gpu", ["gfx90a", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("file", FILES)
def test_other_gpus(run: Callable[[str, str, bool], Found], file: str, gpu: str) -> None:
    _check(run(file, gpu, False), gpu)
    assert {name: list(map(str, found)) for name, found in run(file, gpu, True).items() if found} == {}


def test_both_modes_find_missing_barriers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In fast mode too; only missing waits need strict mode."""
    code = compile_cases("lds_cases.hip", "gfx942", False, tmp_path_factory.mktemp("modes"))
    cases = [read_cases()[name] for name in ("reverse", "halo", "raw_barrier")]
    found = run_cases(make_device("gfx942"), code, cases, Mode.FAST)
    assert [_is_reported(case, found[case.name]) for case in cases] == [True, True, False]


def test_findings_are_raised_without_a_handler(tmp_path_factory: pytest.TempPathFactory) -> None:
    device = make_device("gfx942")
    module = device.load(compile_cases("lds_cases.hip", "gfx942", False, tmp_path_factory.mktemp("raised")))
    out = device.memory.allocate(4 * 4096, "out")
    device.memory.fill(out, 1, 4 * 4096)
    launch = Launch(Extent(1), Extent(256), struct.pack("QQQQi", out, out, out, out, 1000))
    with pytest.raises(CheckFault, match="race: 4 bytes") as raised:
        device.launch(module.kernels["reverse"], launch, checks="races")
    assert raised.value.findings[0].kernel == "reverse"
    with pytest.raises(InvalidValueError, match="native engine"):
        device.launch(module.kernels["reverse"], launch, checks="races", engine="numpy")
    device.launch(module.kernels["reverse"], launch)
