"""`cache`: listing, showing, checking and cleaning the store."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright.base.digest import digest_text
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import Notice, emit, report_task
from tilewright.building.store.local import Store
from tilewright.cli import progress as progress_module
from tilewright.cli.app import root
from tilewright.cli.cache import format_age, format_size, resolve_key

KEYS = [digest_text(str(number)) for number in range(3)]
DAY = 86400


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Two artifacts, of 1 and 3 days, and a failure of today."""
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    store = Store()
    for number, size in ((0, 5000), (1, 3000)):
        store.put_content(KEYS[number], "artifact", {"kernel.so": b"x" * size}, {"slug": f"gemm-{9 - number}"})
        then = time.time() - (1 + 2 * number) * DAY
        os.utime(store.layout.entry_folder(KEYS[number]), (then, then))
    store.put_failure(KEYS[2], "\n".join(f"line {n}" for n in range(30)), {"slug": "gemm-z"})
    return store


def test_ls_is_sorted_by_last_use(store: Store, run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    listed = run_json("cache", "ls")
    assert [entry["key"] for entry in listed] == [KEYS[2], KEYS[0], KEYS[1]]
    assert [entry["kind"] for entry in listed] == ["failure", "artifact", "artifact"]
    assert listed[1]["kernel"] == "gemm-9"
    shown = run("cache", "ls").stdout
    assert "4.9 KiB" in shown or "5.1 KiB" in shown
    assert "1 d" in shown
    assert shown.splitlines()[-1].startswith("3 entries, ")


@pytest.mark.parametrize("columns", [80, 120])
def test_a_long_name_leaves_the_other_columns_in_a_terminal(
    columns: int, store: Store, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were squeezed to nothing once, and `cache show` had no key to take."""
    key, name = digest_text("long"), "gemm-gfx942-" + "x" * 150
    store.put_content(key, "artifact", {"kernel.so": b"x" * 5000}, {"slug": name})
    line = next(line for line in run("cache", "ls").stdout.splitlines() if "gemm-gfx942-" in line)
    assert line.startswith(key[:12]) and line.endswith(name)  # not cut in a pipe
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    with contextlib.redirect_stdout(shown), pytest.raises(SystemExit):
        root.main(["cache", "ls"], prog_name="tilewright")
    line = next(line for line in shown.getvalue().splitlines() if "gemm-gfx942-" in line)
    assert line.startswith(key[:12]) and "KiB" in line and " s " in line and "built" in line
    assert len(line) <= columns and line.endswith("…")


@pytest.mark.parametrize(("order", "first"), [("size", 0), ("name", 1), ("age", 0), ("use", 2)])
def test_ls_in_other_orders(store: Store, run_json: Callable[..., Any], order: str, first: int) -> None:
    assert run_json("cache", "ls", "--sort", order, "--limit", "1")[0]["key"] == KEYS[first]


def test_ls_of_a_store_that_does_not_exist(
    run: Callable[..., Result], run_json: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "none"))
    assert run_json("cache", "ls") == []
    assert run("cache", "ls").stdout == "0 entries, 0 B\n"
    assert run("cache", "verify").exit_code == 0
    assert run("cache", "gc").exit_code == 0
    assert not (tmp_path / "none").exists()


def test_ls_with_an_unknown_order(store: Store, run: Callable[..., Result]) -> None:
    result = run("cache", "ls", "--sort", "sise")
    assert result.exit_code == 2
    assert "unknown order 'sise'. Did you mean 'size'?" in result.stderr


def test_show(store: Store, run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    document = run_json("cache", "show", KEYS[0][:10])
    assert document["key"] == KEYS[0]
    assert document["files"]["kernel.so"]["size"] == 5000
    assert document["facts"] == {"slug": "gemm-9"}
    shown = run("cache", "show", KEYS[0]).stdout
    assert document["files"]["kernel.so"]["blake2b"] in shown
    assert "gemm-9" in shown
    failed = run("cache", "show", KEYS[2]).stdout
    assert "line 19\n… and 10 more lines" in failed
    assert run_json("cache", "show", KEYS[2])["log"].endswith("line 29")


def test_show_of_what_is_not_there_or_not_clear(store: Store, run: Callable[..., Result]) -> None:
    assert "unknown key 'zz'" in run("cache", "show", "zz").stderr
    result = run("cache", "show", "")
    assert result.exit_code == 2
    assert "3 keys begin with" in result.stderr
    assert KEYS[1] in result.stderr
    with pytest.raises(InvalidValueError, match="2 keys begin with"):
        resolve_key("ab", ["abc", "abd", "b"])


def test_show_of_a_damaged_entry(store: Store, run: Callable[..., Result]) -> None:
    (store.layout.entry_folder(KEYS[0]) / "kernel.so").unlink()
    result = run("cache", "show", KEYS[0])
    assert result.exit_code == 2
    assert "kernel.so is missing" in result.stderr


def test_verify(store: Store, run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    assert run_json("cache", "verify")["findings"] == []
    assert run("cache", "verify").stdout == f"good: 3 entries in {store.root}\n"
    (store.layout.entry_folder(KEYS[0]) / "kernel.so").write_bytes(b"y" * 5000)
    document = run_json("cache", "verify", code=1)
    assert [(f["kind"], f["key"]) for f in document["findings"]] == [("wrong digest", KEYS[0])]
    result = run("cache", "verify")
    assert result.exit_code == 1
    assert "1 finding in 3 entries" in result.stdout
    assert "--remove" in result.stdout
    assert set(store.list_keys()) == set(KEYS)
    result = run("cache", "verify", "--remove")
    assert result.exit_code == 1
    assert "moved 1 to" in result.stdout
    assert result.stderr.startswith("note: ")
    assert set(store.list_keys()) == set(KEYS[1:])
    assert run("cache", "verify").exit_code == 0


def test_gc(store: Store, run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    args = ("cache", "gc", "--max-age", "2d")
    assert [entry["key"] for entry in run_json(*args, "--dry-run")["removed"]] == [KEYS[1]]
    assert "would be removed  1 entry" in run(*args, "--dry-run").stdout
    assert set(store.list_keys()) == set(KEYS)
    assert "removed    1 entry" in run(*args).stdout
    assert set(store.list_keys()) == {KEYS[0], KEYS[2]}
    document = run_json("cache", "gc", "--max-size", "1K")
    assert [(entry["key"], entry["reason"]) for entry in document["removed"]] == [(KEYS[0], "size")]
    assert (document["kept"], list(store.list_keys())) == (1, [KEYS[2]])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--max-size", "10X"), "'10X' is not a size. Write a number with B, K, M, G or T (bytes, KiB, MiB, GiB, TiB)"),
        (("--max-size", "10"), "'10' is not a size. Write a number with B, K, M, G or T"),
        (("--max-size", "-1"), "'-1' is not a size."),
        (("--max-size", f"{'9' * 400}T"), "is not a size."),
        (("--max-age", f"{'9' * 400}d"), "is not an age."),
        (("--max-age", "30"), "'30' is not an age. Write a number with s, m, h, d or w: 30d."),
    ],
)
def test_limits_that_are_none(store: Store, run: Callable[..., Result], args: tuple[str, ...], message: str) -> None:
    result = run("cache", "gc", *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert set(store.list_keys()) == set(KEYS)


@pytest.mark.parametrize("limit", [("--max-size", "10B"), ("--max-age", "0s")])
def test_gc_asks_before_all_entries_go(
    store: Store, run: Callable[..., Result], run_json: Callable[..., Any], limit: tuple[str, str]
) -> None:
    result = run("cache", "gc", *limit)
    assert result.exit_code == 2
    assert f"all 3 entries of {store.root} (" in result.stderr
    assert "Pass --yes to remove them, or --dry-run to list them." in result.stderr
    assert set(store.list_keys()) == set(KEYS)
    assert len(run_json("cache", "gc", *limit, "--dry-run")["removed"]) == 3
    assert len(run_json("cache", "gc", *limit, "--yes")["removed"]) == 3
    assert list(store.list_keys()) == []
    assert run("cache", "gc", *limit).exit_code == 0, "nothing is left that could go"


def test_gc_asks_on_a_terminal(store: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tilewright", "cache", "gc", "--max-size", "10B"]
    for answer, kept in (("n\n", 3), ("y\n", 0)):
        master, slave = os.openpty()
        try:
            os.write(master, answer.encode())
            done = subprocess.run(command, stdin=slave, capture_output=True, text=True, check=False)
        finally:
            os.close(slave)
            os.close(master)
        assert "Remove them? [y/N]" in done.stdout + done.stderr
        assert (done.returncode == 0) == (kept == 0)
        assert len(list(store.list_keys())) == kept


def test_path(
    store: Store, run: Callable[..., Result], run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("cache", "path").stdout == f"{store.root}\n"
    assert run_json("cache", "path")["remote"] is None
    monkeypatch.setenv("TILEWRIGHT_REMOTE", "folder:/srv/kernels")
    assert run_json("cache", "path")["remote"] == "folder:/srv/kernels"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("patience", [0.0, 60.0], ids=["with a bar", "before any bar"])
def test_a_notice_is_shown_on_a_terminal_too(patience: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress_module, "PATIENCE_S", patience)
    with contextlib.redirect_stderr(Terminal()) as shown, progress_module.report_progress(), report_task("weaving", 2):
        time.sleep(0.1 if patience == 0 else 0)
        emit(Notice("[bold] the thread is thin"))
    assert "note:" in shown.getvalue()
    assert "[bold] the thread is thin" in shown.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_a_notice_is_shown_without_a_terminal(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_module.report_progress(as_json=as_json):
        emit(Notice("the thread is thin"))
    assert capsys.readouterr() == ("", "note: the thread is thin\n")


def test_numbers_for_people() -> None:
    assert [format_size(n) for n in (0, 1023, 1536, 10 * 2**30)] == ["0 B", "1023 B", "1.5 KiB", "10.0 GiB"]
    assert [format_age(s) for s in (-5, 59, 90, 7200, 3 * DAY)] == ["0 s", "59 s", "2 min", "2 h", "3 d"]
