"""Fetching a tree from a git repository: one on this machine, with other folders and a history."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_build_ck_fetch import leftovers, make_tree

from tilewright.base.errors import ToolchainError
from tilewright.building import ck_fetch, ck_git, ck_headers

SUBFOLDER = "projects/composablekernel"


class Repository:
    """A bare repository as GitHub has them: any commit and filters are allowed."""

    def __init__(self, folder: Path) -> None:
        self.work, self.bare = folder / "work", folder / "bare.git"
        self.address = self.bare.as_uri()
        self.first = self.second = ""  # commits
        run_git(folder, "init", "--quiet", "--bare", "--initial-branch=develop", str(self.bare))
        for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
            run_git(self.bare, "config", key, "true")
        run_git(folder, "clone", "--quiet", str(self.bare), str(self.work))

    def commit(self, message: str) -> str:
        run_git(self.work, "add", "--all")
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        run_git(self.work, *author, "commit", "--quiet", "--message", message)
        run_git(self.work, "push", "--quiet", "origin", "HEAD:develop")
        return run_git(self.work, "rev-parse", "HEAD").strip()


def run_git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    made = Repository(tmp_path_factory.mktemp("repository"))
    tree = made.work / SUBFOLDER
    make_tree(tree, "// first")
    (tree / "tile_engine").mkdir()
    (tree / "tile_engine" / "gemm.py").write_text("pass")
    other = made.work / "projects" / "rocblas"
    other.mkdir()
    (other / "large.dat").write_text("large" * 1000)
    made.first = made.commit("first")
    (tree / "include" / "ck_tile" / "core.hpp").write_text("// second")
    made.second = made.commit("second")
    (tree / "include" / "ck_tile" / "core.hpp").write_text("// third")
    made.commit("third")
    return made


def test_a_commit_is_fetched(repository: Repository, clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tree = ck_fetch.clone_ck(repository.address, repository.second, f"{SUBFOLDER}/")
    assert tree.name == repository.second[:12]
    assert (tree.include / "ck_tile" / "core.hpp").read_text() == "// second"
    assert sorted(path.name for path in tree.folder.iterdir()) == ["include", "manifest.json"]
    source = json.loads((tree.folder / "manifest.json").read_text())["source"]
    assert source == {"git": repository.address, "commit": repository.second, "subfolder": SUBFOLDER}
    assert str(tree).endswith(f"{repository.address} at {repository.second[:12]}, folder {SUBFOLDER}")
    assert leftovers(tmp_path / "cache") == []
    clean_knobs.setenv("TILEWRIGHT_CK", tree.name)
    assert ck_headers.find_ck_component(None).path == tree.include


def test_two_commits_are_kept_side_by_side(repository: Repository, clean_knobs: pytest.MonkeyPatch) -> None:
    old = ck_fetch.clone_ck(repository.address, repository.first.upper(), SUBFOLDER, "old", tools=True)
    new = ck_fetch.clone_ck(repository.address, repository.second, SUBFOLDER, "new")
    texts = [(tree.include / "ck_tile" / "core.hpp").read_text() for tree in (old, new)]
    assert texts == ["// first", "// second"]
    assert old.files == {"include": 1, "tile_engine": 1}
    with pytest.raises(ToolchainError, match=f"name old is in use for another tree: .* at {repository.first[:12]}"):
        ck_fetch.clone_ck(repository.address, repository.second, SUBFOLDER, "old")


def test_only_the_headers_of_one_commit_are_transferred(
    repository: Repository, clean_knobs: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ck_git.check_out(
        repository.address, repository.second, SUBFOLDER, tmp_path, ("include",), advance=lambda detail="": None
    )
    fetched = tmp_path / "repository"
    assert run_git(fetched, "rev-list", "--count", "HEAD").strip() == "1"
    files = [str(path.relative_to(fetched)) for path in fetched.rglob("*") if path.is_file()]
    assert [name for name in files if not name.startswith(".git/")] == [f"{SUBFOLDER}/include/ck_tile/core.hpp"]
    listed = run_git(fetched, "rev-list", "--objects", "--all", "--missing=print").split()
    blobs = {
        path: f"?{run_git(repository.work, 'rev-parse', f'{repository.second}:{path}').strip()}" in listed
        for path in (
            "projects/rocblas/large.dat",
            f"{SUBFOLDER}/example/big.cpp",
            f"{SUBFOLDER}/include/ck_tile/core.hpp",
        )
    }
    assert list(blobs.values()) == [True, True, False]  # missing, missing, there


def test_threads_at_once_fetch_once(repository: Repository, clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[int] = []
    check_out = ck_git.check_out

    def count(*arguments: object) -> Path:
        calls.append(1)
        return check_out(*arguments)  # type: ignore[arg-type]

    clean_knobs.setattr(ck_git, "check_out", count)
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda _: ck_fetch.clone_ck(repository.address, repository.second, SUBFOLDER), range(3))
        assert len({tree.folder for tree in found}) == 1
    assert len(calls) == 1


def test_a_local_path_and_the_variables_of_a_hook(
    repository: Repository, clean_knobs: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clean_knobs.chdir(repository.bare.parent)
    clean_knobs.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    clean_knobs.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    tree = ck_fetch.clone_ck("bare.git", repository.second, SUBFOLDER)
    assert tree.source["git"] == str(repository.bare)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("commit", ["", "develop", "0123456", "g" * 40, "0" * 41])
def test_a_commit_that_is_not_a_complete_hash_is_rejected(clean_knobs: pytest.MonkeyPatch, commit: str) -> None:
    with pytest.raises(ToolchainError, match=f"has {len(commit)} characters, and a complete hash has 40"):
        ck_fetch.clone_ck("/nowhere", commit)


@pytest.mark.parametrize("subfolder", ["../other", "/etc", "a/../../b"])
def test_a_subfolder_outside_the_repository_is_rejected(clean_knobs: pytest.MonkeyPatch, subfolder: str) -> None:
    with pytest.raises(ToolchainError, match="must be a path inside the repository"):
        ck_fetch.clone_ck("/nowhere", "0" * 40, subfolder)


def test_errors_of_git(repository: Repository, clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = f"file://me:secret@{tmp_path}/nowhere"
    with pytest.raises(
        ToolchainError, match=r"the git address file://\*\*\*@/.*nowhere cannot be read: git ls-remote"
    ) as e:
        ck_fetch.clone_ck(address, "0" * 40)
    assert "code 128" in str(e.value) and "--folder" in str(e.value) and "secret" not in str(e.value)
    with pytest.raises(ToolchainError, match=f"does not give commit {'1' * 40}: git fetch ended with code 128.*\n"):
        ck_fetch.clone_ck(repository.address, "1" * 40, SUBFOLDER)
    with pytest.raises(ToolchainError, match=f"but no include/ck_tile. CK Tile is in --subfolder {SUBFOLDER}"):
        ck_fetch.clone_ck(repository.address, repository.first)
    with pytest.raises(ToolchainError, match="but no projects/rocblas/include/ck_tile"):
        ck_fetch.clone_ck(repository.address, repository.first, "projects/rocblas")
    assert leftovers(tmp_path / "cache") == []


def test_without_git(repository: Repository, clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_knobs.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="git is not on PATH"):
        ck_fetch.clone_ck(repository.address, repository.first, SUBFOLDER)


def test_links_are_rejected(clean_knobs: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Repository(tmp_path)
    make_tree(made.work)
    (made.work / "include" / "link").symlink_to("/etc/passwd")
    commit = made.commit("with a link")
    with pytest.raises(ToolchainError, match=f"commit {commit[:12]} of .*: include/link is a link"):
        ck_fetch.clone_ck(made.address, commit)
    assert leftovers(tmp_path / "cache") == []
