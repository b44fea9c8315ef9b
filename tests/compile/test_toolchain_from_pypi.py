"""The toolchain from PyPI in a root file system without compiler, HIP and C headers: install, build, verify."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.compile.bare_system import BareSystem, can_unshare
from tilewright.building.ck_headers import find_ck

SOURCES = Path(__file__).parents[2] / "src"
KERNELS = ("fp16_rcr_latency", "--gpu", "gfx942", "--limit", "1")
INSTALL_S, BUILD_S = 1800, 900
# 412 MB of wheels, 222 MB installed, and the store.
pytestmark = [pytest.mark.deep, pytest.mark.compile, pytest.mark.timeout(INSTALL_S + 2 * BUILD_S)]


@pytest.mark.skipif(not can_unshare(), reason="this user cannot make a mount namespace (unshare --map-root-user)")
def test_a_system_without_compiler_and_headers(tmp_path: Path) -> None:
    cache, ck = tmp_path / "cache", find_ck().parent
    cache.mkdir()
    local = [Path(folder) for folder in ("/opt/wheels", "/opt/pypi", "/opt/pypi-more") if Path(folder).is_dir()]
    system = BareSystem(tmp_path / "root", [SOURCES, cache, ck, *local])
    assert system.list_files(r"bin/.*(clang|gcc|\+\+|ld)$|/cc1|amdhip|\.h$|crt1\.o") == []
    pip = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    variables = {
        **pip,
        "PYTHONPATH": str(SOURCES),
        "TILEWRIGHT_CACHE": str(cache),
        "TILEWRIGHT_CK": str(ck),
        "OPENBLAS_NUM_THREADS": "1",
    }

    def call(*words: str, limit_s: float = BUILD_S) -> str:
        done = system.run([sys.executable, "-m", "tilewright", *words], variables, limit_s)
        if "could not be downloaded" in done.stderr:
            pytest.skip(f"the package index is not reachable: {done.stderr.strip()}")
        assert done.returncode == 0, f"{words}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    before = system.run([sys.executable, "-m", "tilewright", "doctor"], variables, BUILD_S)
    assert before.returncode == 1
    assert "tilewright toolchain install" in before.stdout
    call("toolchain", "install", limit_s=INSTALL_S)
    facts = json.loads(call("doctor", "--json"))
    assert (facts["complete"], facts["chosen"]) == (True, "pypi")
    assert "1 kernel" in call("build", *KERNELS)
    kernel = json.loads(call("build", *KERNELS, "--json"))["kernels"][0]["name"]
    inspected = json.loads(call("inspect", kernel, "--json"))
    assert "v_mfma_f32_16x16x32_f16" in json.dumps(inspected) or "v_mfma_f32_16x16x16_f16" in json.dumps(inspected)
    said = call("verify", kernel, "--device", "emulated:gfx942", "--trials", "1")
    assert "all right: 1 problem on 1 kernel" in said
    # The emulator's native engine was compiled by the same toolchain: without it, no library would be there.
    assert list((cache / "emulator").rglob("engine.so"))
