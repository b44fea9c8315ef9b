"""Inspecting takes from the store, and leaves there what it had to build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from engine import GPU, REFUSED, build, scale

import tilewright as tw
from tilewright.base import knobs
from tilewright.base.errors import CompileError
from tilewright.building.compile_job import CODE_OBJECT
from tilewright.cli.app import root

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]


def test_what_is_inspected_is_built_and_what_is_built_is_not_compiled(
    shared_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(knobs.STORE.name, str(shared_store))
    first = tw.inspect_kernel(scale(401))
    assert not first.from_store
    built = build(shared_store, [401])
    assert built.compiled == 0
    (artifact,) = built.artifacts.values()
    again = tw.inspect_kernel(scale(401))
    assert again.from_store
    assert (again.kernels, again.object_bytes, again.cpu_s) == (first.kernels, first.object_bytes, first.cpu_s)
    assert again.object_bytes == artifact.verify_file(CODE_OBJECT).stat().st_size
    assert again.cpu_s == artifact.facts["cost"]["cpu_s"] > 0

    code = tmp_path / "kernel.s"
    done = CliRunner().invoke(root, ["inspect", scale(401).slug, "--json", "--disassembly", str(code)])
    document = json.loads(done.stdout)
    assert document["from_store"]
    assert all(f"{kernel.name}:" in code.read_text() for kernel in first.kernels)


def test_a_refused_kernel_is_told_with_its_log_each_time(shared_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(knobs.STORE.name, str(shared_store))
    with pytest.raises(CompileError, match=f"does not compile for {GPU}: ") as first:
        tw.inspect_kernel(scale(REFUSED))
    with pytest.raises(CompileError, match=r"The store has this failure; .* --retry") as again:
        tw.inspect_kernel(scale(REFUSED))
    assert first.value.log == again.value.log != ""
