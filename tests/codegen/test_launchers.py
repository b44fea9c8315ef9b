"""Launchers that only some kernels of an op include: in their sources, their keys, and what is precompiled for them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from absent_toolchain import TOOLCHAIN
from ci_kernels import read_list
from tilewright.building.compile_job import CompileJob
from tilewright.building.store.local import Store
from tilewright.codegen.render import list_headers, read_included_files, read_support_files, render_unchecked
from tilewright.ops import OPS, find_op
from tilewright.ops.kernel import Kernel

SCALE, ADD = "tilewright_axpb_scale.hpp", "tilewright_axpb_add.hpp"


def kernel(step: str, threads: int = 64) -> Kernel:
    op = find_op("axpb")
    return op.make_kernel(op.make_config(step=step, threads=threads), "gfx942")


@pytest.mark.parametrize(("step", "own", "other"), [("scale", SCALE, ADD), ("add", ADD, SCALE)])
def test_a_source_has_its_own_launcher_only(staged_plugin: Path, step: str, own: str, other: str) -> None:
    source = render_unchecked(kernel(step))
    assert list(source.files) == ["tilewright_axpb.h", "tilewright_call.hpp", own]
    assert f'#include "{own}"' in source.text and other not in source.text
    assert list_headers(kernel(step)) == ("hip/hip_runtime.h", "tilewright_axpb.h", "tilewright_call.hpp", own)


def test_a_folder_of_kernels_has_all_of_them(staged_plugin: Path) -> None:
    assert set(read_support_files("axpb")) == {"tilewright_axpb.h", "tilewright_call.hpp", SCALE, ADD}


def test_a_change_in_a_launcher_changes_the_keys_of_its_kernels_only(
    staged_plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = find_op("axpb")
    changed = shutil.copy(op.launchers[ADD], tmp_path / "add.hpp")
    changed.write_text(changed.read_text() + "// more\n")
    other = replace(op, launchers={**op.launchers, ADD: changed})
    before = {step: CompileJob(render_unchecked(kernel(step)), TOOLCHAIN).key for step in ("scale", "add")}
    monkeypatch.setattr("tilewright.codegen.render.find_op", lambda _: other)
    after = {step: CompileJob(render_unchecked(kernel(step)), TOOLCHAIN).key for step in ("scale", "add")}
    assert after["scale"] == before["scale"] and after["add"] != before["add"]


def test_kinds_share_precompiled_headers(staged_plugin: Path, tmp_path: Path) -> None:
    """Their launchers are not among them: each is written next to its sources."""
    store = Store(tmp_path)
    scale, add = (CompileJob(render_unchecked(kernel(step)), TOOLCHAIN) for step in ("scale", "add"))
    for one, other in ((scale.device_headers, add.device_headers), (scale.host_headers, add.host_headers)):
        assert one.key(store) == other.key(store)
        assert not {SCALE, ADD} & set(one.texts)
    assert SCALE in scale.texts() and ADD not in scale.texts()
    assert ADD in add.texts() and SCALE not in add.texts()


@pytest.mark.parametrize("name", [op.name for op in OPS])
def test_all_kernels_of_an_op_share_precompiled_headers(name: str, tmp_path: Path) -> None:
    """In the host pass; the device pass has the same headers. What only some sources include is next to these."""
    store = Store(tmp_path)
    kernels = [entry.kernel for entry in read_list() if entry.name.startswith(f"{name}-")]
    units = [CompileJob(render_unchecked(each), TOOLCHAIN) for each in kernels]
    assert len({unit.host_headers.key(store) for unit in units}) == 1
    for unit in units:
        assert {**unit.host_headers.texts, **unit.texts()}.items() >= unit.source.files.items()


@pytest.mark.parametrize("name", [op.name for op in OPS])
def test_what_a_config_includes_is_there(name: str) -> None:
    """Of every op: its example's launchers are among its files, and all files can be read."""
    example = find_op(name).make_kernel(find_op(name).make_example(), "gfx942")
    files = read_support_files(name)
    assert set(read_included_files(example)) <= set(files) and all(files.values())
    assert len(set(list_headers(example))) == len(list_headers(example))
