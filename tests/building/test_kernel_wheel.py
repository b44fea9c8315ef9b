"""Wheels of kernels without a compiler: their bytes, their manifests, and damaged ones."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from stores import CODE, key_of, noticed, put

from tilewright.base import knobs
from tilewright.base.errors import FileFormatError, InvalidBlobError, InvalidValueError
from tilewright.building.prebuilt.choose import describe_fit
from tilewright.building.prebuilt.installed import list_wheels
from tilewright.building.prebuilt.kernel_wheel import BLOBS, MANIFEST, BuildFacts, KernelWheel, read_wheel
from tilewright.building.prebuilt.write_wheel import WheelKernel, write_wheel
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.building.store.tiers import Tiers, open_tiers

BUILT = BuildFacts("gpu-less", "clang version 22.1", "5.2.0", "1d" * 16, "c4" * 16, "2025-11", (("probe", "form"),))


def write(folder: Path, count: int = 2, code: bytes = CODE) -> Path:
    store = Store(folder / "store")
    kernels = [WheelKernel(put(store, key_of(n), code), key_of(f"source {n}")) for n in range(count)]
    return write_wheel(folder / "dist", "tilewright-kernels-gfx942", "1.0", "gfx942", BUILT, kernels)


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel with pip itself."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target"]
    subprocess.run([*command, str(folder), str(wheel)], check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return install(write(folder), folder / "site")


def test_the_same_kernels_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert first.name == "tilewright_kernels_gfx942-1.0-py3-none-manylinux_2_17_x86_64.whl"


def test_pip_is_told_which_c_library_the_kernels_need(tmp_path: Path) -> None:
    wheel = write(tmp_path, code=b"\0GLIBC_2.3.4\0GLIBC_2.34\0GLIBC_2.4\0")
    assert wheel.name.endswith("manylinux_2_34_x86_64.whl")


@pytest.mark.parametrize(("name", "version"), [("../x", "1.0"), ("", "1.0"), ("x", "1.0+local"), ("x", "1 0")])
def test_names_that_pip_rejects_are_errors(tmp_path: Path, name: str, version: str) -> None:
    with pytest.raises(InvalidValueError, match=r"of a wheel|name a wheel"):
        write_wheel(tmp_path, name, version, "gfx942", BUILT, [])
    assert not list(tmp_path.iterdir())


def test_an_installed_wheel_is_a_tier(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv(knobs.STORE.name, str(tmp_path / "store"))
    monkeypatch.delenv(knobs.REMOTE.name, raising=False)
    wheel = next(each for each in list_wheels() if each.folder.is_relative_to(installed))
    assert (wheel.gpu, wheel.built, len(wheel.entries)) == ("gfx942", BUILT, 2)
    found = open_tiers().find_entries([key_of(0), key_of("absent")])
    assert list(found) == [key_of(0)]
    entry = found[key_of(0)]
    assert isinstance(entry, Artifact) and entry.verify_file("kernel.so").read_bytes() == CODE
    assert entry.folder.is_relative_to(tmp_path)

    monkeypatch.setenv(knobs.PREBUILT.name, "never")
    assert list_wheels() == ()
    assert open_tiers().find_entries([key_of(1)]) == {}


def copy_of(installed: Path, tmp_path: Path) -> KernelWheel:
    source = installed / "tilewright_kernels_gfx942"
    target = tmp_path / "tilewright_kernels_gfx942"
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
    return read_wheel("tilewright-kernels-gfx942", "1.0", target)


@pytest.mark.parametrize("damage", ["cut", "longer", "changed", "swapped", "missing", "link"])
def test_a_damaged_kernel_is_reported_and_counts_as_absent(installed: Path, tmp_path: Path, damage: str) -> None:
    wheel = copy_of(installed, tmp_path)
    path, other = (wheel.folder / BLOBS / key_of(n) for n in range(2))
    blob = path.read_bytes()
    if damage == "cut":
        path.write_bytes(blob[:-1])
    elif damage == "longer":
        path.write_bytes(blob + b"x")
    elif damage == "changed":
        path.write_bytes(blob[:5000] + bytes([blob[5000] ^ 1]) + blob[5001:])
    elif damage == "swapped":
        path.write_bytes(other.read_bytes())
    else:
        path.unlink()
        if damage == "link":
            path.symlink_to(other)
    tiers = Tiers(Store(tmp_path / "store"), packages=(wheel,))
    with noticed() as messages:
        found = tiers.find_entries([key_of(0), key_of(1)])
    assert list(found) == [key_of(1)]
    assert len(messages) == 1 and "damaged entry" in messages[0] and "counts as absent" in messages[0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format":1', '"format":2', "has the format 2"),
        ('"size":', '"size":-', "has the size -"),
        ('"gpu":"gfx942"', '"gpu":7', "gpu must be a text"),
        (',"gpu":"gfx942"', "", "has no 'gpu'"),
        (key_of(0), "../../../../etc/passwd", "is not a key"),
        ("{", "[", "is not JSON"),
    ],
)
def test_a_manifest_that_cannot_be_used_names_the_problem(
    installed: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    wheel = copy_of(installed, tmp_path)
    path = wheel.folder / MANIFEST
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(FileFormatError, match=said):
        read_wheel("x", "1", wheel.folder)


def test_a_store_that_cannot_be_written_does_not_lose_the_kernel(installed: Path, tmp_path: Path) -> None:
    wheel = copy_of(installed, tmp_path)
    (tmp_path / "store").write_text("a file")
    with noticed() as messages:
        found = Tiers(Store(tmp_path / "store" / "below"), packages=(wheel,)).take_packaged(wheel, key_of(0))
    assert isinstance(found, Artifact) and "for this process only" in messages[0]


def test_the_use_of_a_wheel_is_explained(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = copy_of(installed, tmp_path)
    assert describe_fit(wheel, BUILT.identity, BUILT.ck).startswith("used: the same compiler")
    assert "TILEWRIGHT_PREBUILT=same-source allows" in describe_fit(wheel, "2e" * 16, BUILT.ck)
    assert describe_fit(wheel, None, None).startswith("used: kernels with the same source; this machine has no")
    assert describe_fit(wheel, None, "d5" * 16).startswith("not used: this machine's CK tree is d5d5")
    monkeypatch.setenv(knobs.PREBUILT.name, "same-source")
    assert "made by another compiler" in describe_fit(wheel, "2e" * 16, BUILT.ck)


def test_a_wheel_has_no_code_that_pip_or_tilewright_runs(tmp_path: Path) -> None:
    with zipfile.ZipFile(write(tmp_path)) as archive:
        python = [name for name in archive.namelist() if name.endswith((".py", ".pth", ".so"))]
        assert python == ["tilewright_kernels_gfx942/__init__.py"]
        assert archive.read(python[0]).decode().count("\n") == 1


def test_a_blob_that_is_larger_than_the_manifest_says_is_not_read_whole(installed: Path, tmp_path: Path) -> None:
    wheel = copy_of(installed, tmp_path)
    small = replace(wheel, entries={key_of(0): replace(wheel.entries[key_of(0)], size=10)})
    with pytest.raises(InvalidBlobError, match="does not have the 10 bytes"):
        small.read_blob(key_of(0))
