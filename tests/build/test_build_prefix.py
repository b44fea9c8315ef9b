"""Precompiled headers: their key, and the headers of the machine that they were made of. Nothing is compiled here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_build_key import TOOLCHAIN, gemm

from tilewright.base import knobs
from tilewright.building import flags
from tilewright.building.flags import COMPAT_COPY
from tilewright.building.prefix import HeadersRead
from tilewright.building.store.local import Store
from tilewright.building.unit import unit_of


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(knobs.CACHE_DIR.name, str(tmp_path / "cache"))


def test_the_folder_of_the_package_is_in_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    before = unit_of(gemm(), TOOLCHAIN)
    prefixes = (before.device_prefix, before.host_prefix)
    keys, kernel_key = [prefix.key(store) for prefix in prefixes], before.key
    package = str(flags.COMPAT.parent)
    assert not [word for prefix in prefixes for word in prefix.command(store) if package in word]
    monkeypatch.setattr(flags, "COMPAT", Path(shutil.copy(flags.COMPAT, tmp_path)))
    after = unit_of(gemm(), TOOLCHAIN)
    assert [prefix.key(store) for prefix in (after.device_prefix, after.host_prefix)] == keys
    flags.COMPAT.write_text("#define ANOTHER\n")
    changed = unit_of(gemm(), TOOLCHAIN)
    assert changed.device_prefix.texts[COMPAT_COPY] == "#define ANOTHER\n"
    assert not {changed.device_prefix.key(store), changed.host_prefix.key(store)} & set(keys)
    assert changed.key != kernel_key


def test_headers_of_the_machine_are_found_in_a_list_for_make(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    prefix = unit_of(gemm(), TOOLCHAIN).device_prefix
    odd = [tmp_path / name for name in ("plain.h", "a b.h", "a#b.h", "a$b.h", "a:b.h")]
    for path in odd:
        path.write_text("")
    listed = " \\\n  ".join(str(path).replace(" ", "\\ ").replace("#", "\\#").replace("$", "$$") for path in odd)
    ours = f"{prefix.folder(store)}/prefix.hpp {TOOLCHAIN.ck_include}/ck_tile/core.hpp"
    read = prefix.headers_read(store, f"prefix.pch: {ours} \\\n  {listed}\n")
    assert read.paths == tuple(odd)
    assert read.unchanged


def test_headers_read_are_compared_by_content(tmp_path: Path) -> None:
    header = tmp_path / "a.h"
    header.write_text("1")
    read = HeadersRead((header,), "")
    assert not read.unchanged
    known = HeadersRead.of_text(HeadersRead((header,), "x").text())
    assert known == HeadersRead((header,), "x")
    assert known.changed_since(header.stat().st_ctime - 1)
    assert not known.changed_since(header.stat().st_ctime)
    assert HeadersRead((header,), "").changed_since(header.stat().st_ctime), "one was gone when they were digested"
    header.unlink()
    assert not known.unchanged
