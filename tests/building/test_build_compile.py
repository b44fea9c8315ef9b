from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright import arch as archs
from tilewright.base.errors import InvalidValueError, ToolchainError
from tilewright.building.compile import compile_device, compile_host_syntax, extract_errors
from tilewright.building.toolchain import Toolchain

LOG = """\
In file included from kernel.hip:1:
/ck/include/ck_tile/core.hpp:7:118: error: no member named 'x' in 'a::b'
    7 | a::b::x;
/ck/include/ck_tile/other.hpp:9:1: error: no member named 'x' in 'a::b'
kernel.hip:2:10: fatal error: 'none.h' file not found
error: <unknown>:0:0: local memory (66560) exceeds limit (65536) in function 'k'
lld: error: undefined hidden symbol: __ockl_get_local_id
2 errors generated when compiling for gfx942.
"""


def test_errors_are_distinct_and_without_places() -> None:
    assert extract_errors(LOG) == (
        "no member named 'x' in 'a::b'",
        "'none.h' file not found",
        "local memory (66560) exceeds limit (65536) in function 'k'",
        "undefined hidden symbol: __ockl_get_local_id",
    )
    assert extract_errors("warning: no error\n") == ()


@pytest.fixture
def fake(tmp_path: Path) -> Toolchain:
    """A toolchain whose compiler is a script that a test writes with `becomes`."""
    bitcode = tmp_path / "bitcode"
    bitcode.mkdir()
    return Toolchain(
        kind="rocm", cxx=tmp_path / "cxx", compiler="clang version 22", objdump=tmp_path / "o",
        readelf=tmp_path / "r", bundler=None, rocm_path=tmp_path, bitcode_dir=bitcode,
        bitcode_digest="", compiler_digest="", system_digest="", ck_include=tmp_path, ck_digest="",
        hip_version="7.1.0", hip_digest="",
    )  # fmt: skip


def becomes(toolchain: Toolchain, script: str) -> None:
    toolchain.cxx.write_text(f"#!/bin/sh\n{script}\n")
    toolchain.cxx.chmod(toolchain.cxx.stat().st_mode | stat.S_IXUSR)


def test_a_crash_is_a_value(fake: Toolchain, cdna3: SimpleNamespace, tmp_path: Path) -> None:
    becomes(fake, "echo working; kill -SEGV $$")
    outcome = compile_device("", cdna3, fake, tmp_path / "k.co")
    assert (outcome.ok, outcome.path) == (False, None)
    assert outcome.log == "working\nthe compiler crashed with signal 11\n"
    assert outcome.errors == ("the compiler crashed with signal 11",)


def test_a_timeout_is_a_value_and_ends_the_children(fake: Toolchain, cdna3: SimpleNamespace, tmp_path: Path) -> None:
    becomes(fake, f"sleep 60 & echo $! > {tmp_path}/child; wait")
    outcome = compile_device("", cdna3, fake, tmp_path / "k.co", timeout_s=3)
    assert outcome.errors == ("the compiler was stopped after 3 s, its time limit",)
    assert 3 <= outcome.wall_s < 30
    child = int((tmp_path / "child").read_text())
    give_up = time.monotonic() + 10
    while _runs(child) and time.monotonic() < give_up:  # the signal is sent; a busy machine delivers it later
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_silence_and_a_missing_result_are_named(fake: Toolchain, cdna3: SimpleNamespace, tmp_path: Path) -> None:
    becomes(fake, "exit 3")
    outcome = compile_device("", cdna3, fake, tmp_path / "k.co")
    assert outcome.errors == ("the compiler ended with code 3 without an error message",)
    becomes(fake, "exit 0")
    outcome = compile_device("", cdna3, fake, tmp_path / "k.co")
    assert outcome.errors == ("the compiler ended with code 0 but wrote no code object",)


def test_hidden_inputs_do_not_reach_the_compiler(
    fake: Toolchain, cdna3: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/somewhere")
    becomes(fake, 'echo "[$CPLUS_INCLUDE_PATH][$TMPDIR][$PWD]"; cat sub/abi.h; exit 1')
    outcome = compile_device("", cdna3, fake, tmp_path / "k.co", files={"sub/abi.h": "content"})
    hidden, temporary, folder = outcome.log.splitlines()[0][1:-1].split("][")
    assert hidden == ""
    assert temporary == folder
    assert "content" in outcome.log
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".compile-")] == []


@pytest.mark.parametrize("name", ["../abi.h", "/etc/abi.h", "a/../../b.h", ""])
def test_files_stay_in_their_folder(fake: Toolchain, cdna3: SimpleNamespace, tmp_path: Path, name: str) -> None:
    becomes(fake, "exit 1")
    with pytest.raises(InvalidValueError, match="must be inside its folder"):
        compile_device("", cdna3, fake, tmp_path / "k.co", files={name: ""})


def test_the_source_cannot_be_replaced_by_a_file(fake: Toolchain, cdna3: SimpleNamespace, tmp_path: Path) -> None:
    becomes(fake, "exit 1")
    with pytest.raises(InvalidValueError, match="the name is reserved"):
        compile_device("", cdna3, fake, tmp_path / "k.co", files={"kernel.hip": ""})


def test_an_interrupt_ends_the_compiler(
    fake: Toolchain, cdna3: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    becomes(fake, f"echo $$ > {tmp_path}/pid; sleep 60")
    monkeypatch.setattr("tilewright.building.process.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compile_device("", cdna3, fake, tmp_path / "k.co")
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_vanished_compiler_is_an_error(fake: Toolchain, cdna3: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no longer exists"):
        compile_device("", cdna3, fake, tmp_path / "k.co")


KERNEL = """\
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include "number.h"
__global__ void k(unsigned long long* x, uint2* y, __half2* h)
{
    x[0] = __builtin_bit_cast(unsigned long long, make_uint2(x[1], NUMBER));
    y[0] = make_uint2(1, 2);
    h[0] = h2rcp(h[1]);
    x[2] = warpSize;
}
int on_host() { return HOST; }
"""
FILES = {"number.h": "#define NUMBER 7\n#define HOST make_uint2(1, 2).x\n"}


@pytest.mark.compile
@pytest.mark.parametrize("name", ["gfx942", "gfx1201"])
def test_the_compat_header_and_both_passes(name: str, toolchain: Toolchain, tmp_path: Path) -> None:
    arch = archs.load(name)
    outcome = compile_device(KERNEL, arch, toolchain, tmp_path / "k.co", files=FILES)
    assert (outcome.ok, outcome.errors) == (True, ()), outcome.log
    assert outcome.path == tmp_path / "k.co"
    assert outcome.cpu_s > 0
    assert compile_host_syntax(KERNEL, arch, toolchain, files=FILES).ok
    wrong = FILES["number.h"].replace("make_uint2(1, 2).x", "nothing_of_this_name")
    host = compile_host_syntax(KERNEL, arch, toolchain, files={"number.h": wrong})
    assert not host.ok
    assert "use of undeclared identifier 'nothing_of_this_name'" in host.errors


@pytest.mark.compile
def test_equal_sources_give_equal_bytes(toolchain: Toolchain, tmp_path: Path) -> None:
    arch = archs.load("gfx942")
    made = [
        compile_device(KERNEL, arch, toolchain, tmp_path / folder / "k.co", files=FILES).path
        for folder in ("one", "a-longer-name")
    ]
    first, second = (path.read_bytes() for path in made if path)
    assert first == second
    assert os.fsencode(tmp_path) not in first


@pytest.mark.compile
def test_a_refused_source_is_a_value(toolchain: Toolchain, tmp_path: Path) -> None:
    arch = archs.load("gfx942")
    (tmp_path / "k.co").write_text("what was there")
    outcome = compile_device('#include "none.h"\n', arch, toolchain, tmp_path / "k.co")
    assert outcome.errors == ("'none.h' file not found",)
    assert "kernel.hip:1:10" in outcome.log
    assert (tmp_path / "k.co").read_text() == "what was there"
