"""Check out CK's tree at one commit of a git repository, without its history and its other folders.

rocm-libraries holds dozens of projects, and CK Tile's headers are a few hundred files in one of them. So one commit is
fetched (`--depth=1`) without contents (`--filter=blob:none`), and a sparse checkout then fetches the contents of the
headers alone. Servers that do not support filters send the whole commit.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from tilewright.base.errors import ToolchainError
from tilewright.base.events import Advance
from tilewright.building.ck_cache import HEADERS
from tilewright.building.package_index import remove_password
from tilewright.building.process import run_command

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # SHA-1, SHA-256
_TIMEOUT_S = 900.0
_NOT_FOUND = 127  # the code of env(1) for a program that is not on PATH
# Set by git for its hooks. They would make git work on the repository of the caller.
_HIDDEN = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX",
)  # fmt: skip


def check_commit(commit: str) -> str:
    """Return the commit in lower case; `ToolchainError` unless it is a complete hash, which always means the same."""
    if _COMMIT.fullmatch(commit.lower()) is None:
        raise ToolchainError(
            f"the commit {commit!r} has {len(commit)} characters, and a complete hash has 40 hexadecimal digits. "
            "Branches and tags can move; `git ls-remote ADDRESS` lists their commits."
        )
    return commit.lower()


def check_subfolder(subfolder: str) -> str:
    """Return the path of a folder in a repository without needless slashes; `ToolchainError` if it leads out of it."""
    path = PurePosixPath(subfolder)
    if path.is_absolute() or ".." in path.parts:
        raise ToolchainError(f"the subfolder {subfolder!r} must be a path inside the repository, without '..'.")
    return "" if str(path) == "." else str(path)


def check_out(
    address: str, commit: str, subfolder: str, folder: Path, parts: Collection[str], advance: Advance
) -> Path:
    """Check out the folders `parts` of the tree in `subfolder` at `commit`; return the tree's folder below `folder`."""
    said = remove_password(address)
    repository = folder / "repository"
    try:
        _run_git(folder, "ls-remote", "--quiet", "--", address, "HEAD")
    except ToolchainError as error:
        raise ToolchainError(
            f"the git address {said} cannot be read: {error}\nCheck it with `git ls-remote {said}`. If you have a "
            "checkout already, give its folder with --folder."
        ) from error
    advance("address read")
    _run_git(folder, "init", "--quiet", "--template=", repository.name)
    _run_git(repository, "remote", "add", "--", "origin", address)
    try:
        _run_git(repository, "fetch", "--quiet", "--depth=1", "--no-tags", "--filter=blob:none", "origin", commit)
    except ToolchainError as error:
        raise ToolchainError(
            f"{said} does not give commit {commit}: {error}\nCompare it with `git ls-remote {said}`. A commit that was "
            "never pushed, or that a force-push removed, cannot be fetched."
        ) from error
    advance("commit fetched")
    prefix = f"{subfolder}/" if subfolder else ""
    _require_tree(repository, f"commit {commit[:12]} of {said}", prefix, parts)
    _run_git(repository, "sparse-checkout", "set", *(f"{prefix}{part}" for part in parts))
    _run_git(repository, "checkout", "--quiet", commit)
    tree = repository / subfolder
    if link := next((path for part in parts for path in (tree / part).rglob("*") if path.is_symlink()), None):
        raise ToolchainError(f"commit {commit[:12]} of {said}: {link.relative_to(repository)} is a link")
    advance("checked out")
    return tree


def _require_tree(repository: Path, what: str, prefix: str, parts: Collection[str]) -> None:
    """Raise `ToolchainError` if the fetched commit lacks the tree, with the subfolders that have one."""
    folders = set(_run_git(repository, "ls-tree", "-r", "-d", "--name-only", "-z", "FETCH_HEAD").split("\0"))
    headers = f"{HEADERS}/ck_tile"
    needed = [f"{prefix}{headers}", *(f"{prefix}{part}" for part in parts)]
    absent = next((path for path in needed if path not in folders), None)
    if absent is None:
        return
    others = sorted(path.removesuffix(headers).rstrip("/") or "." for path in folders if path.endswith(headers))
    advice = f"CK Tile is in --subfolder {' or '.join(others)}." if others else "It does not have CK Tile at all."
    raise ToolchainError(f"{what} has {len(folders):,} folders, but no {absent}. {advice}")


def _run_git(folder: Path, *arguments: str) -> str:
    """Run git in `folder`: without questions for a password, and without hooks."""
    hidden = [word for name in _HIDDEN for word in ("-u", name)]
    command = ["/usr/bin/env", *hidden, "GIT_TERMINAL_PROMPT=0", "git", "-c", "core.hooksPath=/dev/null", *arguments]
    done = run_command(command, folder=folder, timeout_s=_TIMEOUT_S)
    if done.timed_out:
        raise ToolchainError(f"git {arguments[0]} did not end within {_TIMEOUT_S:g} s")
    if done.code == _NOT_FOUND:
        raise ToolchainError("git is not on PATH. Install it.")
    if done.code != 0:
        raise ToolchainError(f"git {arguments[0]} ended with code {done.code}: {remove_password(done.output.strip())}")
    return done.output
