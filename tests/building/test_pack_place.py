"""Where a pack may go: over nothing, an empty folder, or an older pack; whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pack_parts import small_pack

from tilewright.base.errors import PackError
from tilewright.building.pack.manifest import MANIFEST, read_pack
from tilewright.building.pack.write import create_private_sibling, install_pack, require_replaceable


def draft_in(private: Path) -> Path:
    small_pack(private / "pack")
    return private / "pack"


def test_a_pack_goes_to_a_new_folder_and_over_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for target in (tmp_path / "new" / "deep", tmp_path / "empty"):
        with create_private_sibling(target) as private:
            install_pack(draft_in(private), target)
        assert read_pack(target).name == "mine"
        assert sorted(path.name for path in target.parent.glob(".*")) == []


def test_an_older_pack_is_replaced_even_if_it_is_damaged(tmp_path: Path) -> None:
    target = tmp_path / "pack"
    small_pack(target)
    (target / "lib/libgfx90a.so").write_text("damaged")
    with create_private_sibling(target) as private:
        install_pack(draft_in(private), target)

    read_pack(target)
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    with pytest.raises(PackError, match=r"not overwritten: it has 1 file\(s\), and it is not a pack"):
        require_replaceable(tmp_path)


@pytest.mark.parametrize("manifest", ['{"schema":1,"support":[],"kernels":[]}', '{"schema":2}', "hello"])
def test_a_folder_with_another_manifest_is_refused(manifest: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(manifest)

    with pytest.raises(PackError, match="not a pack that this version"):
        require_replaceable(tmp_path)


def test_a_pack_with_files_of_others_is_refused_by_their_names(tmp_path: Path) -> None:
    small_pack(tmp_path)
    (tmp_path / "build").mkdir()
    require_replaceable(tmp_path)
    (tmp_path / "build" / "mine.o").write_text("x")
    (tmp_path / "build" / "link").symlink_to(tmp_path)

    with pytest.raises(PackError, match=r"2 file\(s\) in it do not belong to the pack: build/link, build/mine\.o"):
        require_replaceable(tmp_path)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pack").write_text("x")

    with pytest.raises(PackError, match="it is not a folder"):
        require_replaceable(tmp_path / "pack")


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with (
        pytest.raises(PackError, match=r"cannot write a pack, .*file: .* Name a folder that this user can write"),
        create_private_sibling(tmp_path / "file" / "pack"),
    ):
        pass


def test_a_failure_leaves_the_older_pack_and_no_rest(tmp_path: Path) -> None:
    target = tmp_path / "pack"
    older = small_pack(target)
    with pytest.raises(ZeroDivisionError), create_private_sibling(target) as private:
        draft_in(private)
        print(1 / 0)

    assert read_pack(target) == older
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


def test_of_many_writers_one_wins_and_none_fails(tmp_path: Path) -> None:
    target = tmp_path / "pack"

    def write() -> None:
        for _ in range(10):
            with create_private_sibling(target) as private:
                install_pack(draft_in(private), target)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write) for _ in range(4)]:
            done.result()

    read_pack(target)
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


# Takes the draft away in the very moment when the older pack is out of its place.
THIEF = """
import shutil, sys
from pathlib import Path
from tilewright.building.pack.write import create_private_sibling, install_pack

target = Path(sys.argv[1])

def steal(event, words):
    if event == "os.rename" and Path(words[1]).name.startswith("replaced-"):
        shutil.rmtree(draft)

with create_private_sibling(target) as private:
    draft = private / "pack"
    shutil.copytree(target, draft)
    sys.addaudithook(steal)
    install_pack(draft, target)
"""


def test_a_draft_that_vanishes_brings_the_older_pack_back(tmp_path: Path) -> None:
    target = tmp_path / "pack"
    older = small_pack(target)
    done = subprocess.run([sys.executable, "-c", THIEF, target], capture_output=True, text=True, check=False)

    assert "PackError: cannot write a pack" in done.stderr
    assert read_pack(target) == older
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]
