"""Kernels that do not compile, compilers that are ended, and kernels of several GPUs in one build."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from engine import (
    REFUSED,
    all_load,
    at_work_in,
    build,
    compilers_of,
    device_steps,
    heard,
    notices,
    scale,
    sound,
)

from built_kernels import in_tier_ci
from tilewright.base import knobs
from tilewright.building.builder import BuildResult, build_kernels
from tilewright.building.process import read_tool_output
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers
from tilewright.building.toolchain import find_toolchain

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]


def test_a_kernel_fails_alone_and_is_remembered(shared_store: Path) -> None:
    built = build(shared_store, [1000, REFUSED, 1001])
    assert len(built.artifacts) == 2
    assert all_load(built)
    (failure,) = built.failures.values()
    assert failure.facts["errors"] == ["static assertion failed: this kernel is meant to be refused"]
    assert re.match(r"\[device\]\nkernel\.hip:\d+:15: error: static assertion failed", failure.log)
    assert str(shared_store) not in failure.log
    used = time.process_time()
    again = build(shared_store, [1000, REFUSED, 1001])
    assert (again.compiled, again.spans) == (0, ())
    assert again.failures == built.failures
    assert time.process_time() - used < 1
    third = build(shared_store, [1000, REFUSED, 1001], retry=True)
    assert (third.compiled, device_steps(third)) == (0, 1)
    assert third.failures == built.failures
    sound(shared_store)


def test_a_failure_that_was_wrong_gives_way(shared_store: Path) -> None:
    """A failure in the store is taken at its word, until it is tried again."""
    kernel = scale(1002)
    key = next(iter(build_units(shared_store, 1002)))
    Store(shared_store).remove(key)
    Store(shared_store).put_failure(key, "it was the weather\n", {"errors": ["weather"]})
    assert isinstance(build(shared_store, [1002]).results[kernel], Failure)
    assert isinstance(build(shared_store, [1002], retry=True).results[kernel], Artifact)
    assert build(shared_store, [1002]).compiled == 0


def build_units(store: Path, factor: int) -> list[str]:
    return list(build(store, [factor]).units)


def test_a_time_limit_is_no_lasting_failure(shared_store: Path) -> None:
    build(shared_store, [1003])
    started = time.monotonic()
    built = build(shared_store, [1004, 1005], limit_s=0.05)
    assert len(built.failures) == 2
    for failure in built.failures.values():
        assert "the device pass was stopped after 0.05 s, its time limit" in failure.facts["errors"]
        assert Store(shared_store).get(failure.key) is None
    # The compiler proper is started by the one that was stopped.
    assert at_work_in(shared_store) == []
    assert time.monotonic() - started < 15
    sound(shared_store)
    assert build(shared_store, [1004, 1005]).failures == {}


@pytest.mark.parametrize(
    ("whom", "number"),
    [
        ("first", signal.SIGKILL),
        ("last", signal.SIGSEGV),
        ("last", signal.SIGTERM),
        pytest.param("last", signal.SIGKILL, marks=pytest.mark.deep),
        pytest.param("first", signal.SIGSEGV, marks=pytest.mark.deep),
        pytest.param("first", signal.SIGTERM, marks=pytest.mark.deep),
    ],
)
def test_a_compiler_that_is_killed_is_no_lasting_failure(shared_store: Path, number: signal.Signals, whom: str) -> None:
    """The first clang is the driver, the last one the compiler proper that it started."""
    build(shared_store, [1003])
    factor = 1010 + 10 * number + (whom == "first")
    done = threading.Event()
    struck: list[int] = []

    def strike() -> None:
        while not done.is_set() and not struck:
            clangs = compilers_of(os.getpid())
            if len(clangs) == 2:
                struck.append(clangs[0 if whom == "first" else 1])
                os.kill(struck[0], number)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        built = build(shared_store, [factor], jobs=1)
    finally:
        done.set()
        thread.join()
    assert struck
    (failure,) = built.failures.values()
    assert not failure.facts["lasting"], failure.log
    assert failure.facts["errors"]
    assert Store(shared_store).get(failure.key) is None
    assert at_work_in(shared_store) == []
    sound(shared_store)
    assert build(shared_store, [factor]).failures == {}


def test_headers_that_do_not_compile(ck: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that cannot precompile: said once, and the kernels are built without."""
    wrapper = tmp_path / "clang++"
    real = find_toolchain().cxx
    wrapper.write_text(
        f'#!/bin/sh\nfor word; do [ "$word" = -emit-pch ] && {{ echo "error: not today"; exit 1; }}; done\n'
        f'exec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv(knobs.CXX.name, str(wrapper))
    with heard() as listed:
        built = build(tmp_path / "store", [1, REFUSED])
    assert len(built.artifacts) == len(built.failures) == 1
    assert all_load(built)
    said = [message for message in notices(listed) if "not precompiled" in message]
    assert len(said) == 2
    assert all("not today" in message for message in said)
    sound(tmp_path / "store")


def test_several_gpus_in_one_build(shared_store: Path) -> None:
    gpus = ["gfx942", "gfx1100", *([] if in_tier_ci() else ["gfx90a"])]
    kernels = [scale(1200 + number, gpu) for gpu in gpus for number in range(2)]
    built: BuildResult = build_kernels(kernels, jobs=2, tiers=Tiers(Store(shared_store)))
    assert built.failures == {}
    assert all_load(built)
    readelf = find_toolchain().readelf
    for kernel, artifact in built.artifacts.items():
        header = read_tool_output([str(readelf), "--file-header", str(artifact.verify_file("kernel.co"))])
        assert f"{kernel.arch})" in header or f"{kernel.arch}\n" in header or f"{kernel.arch}," in header
        assert not any(f" {other}" in header for other in gpus if other != kernel.arch)
        inside = artifact.verify_file("kernel.so").read_bytes()
        assert f"hipv4-amdgcn-amd-amdhsa--{kernel.arch}".encode() in inside
        assert artifact.verify_file("kernel.co").read_bytes() in inside
