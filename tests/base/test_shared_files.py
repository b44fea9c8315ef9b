"""Locks between open files, whichever process has them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tilewright.base.shared_files import hold_lock, is_same_file, lock_unused, try_lock, unlock, wait_for_lock


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def test_one_exclusive_lock_or_many_shared_ones(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "lock"), opened(tmp_path / "lock")

    assert try_lock(one) and not try_lock(other) and not try_lock(other, shared=True)
    unlock(one)
    wait_for_lock(other, shared=True)
    assert try_lock(one, shared=True) and not try_lock(one)
    os.close(other)
    assert try_lock(one)
    os.close(one)


def test_a_lock_is_waited_for_up_to_the_time_limit(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with hold_lock(file, 1.0) as held:
        assert held
        before = time.monotonic()
        with hold_lock(file, 0.1) as again:
            assert not again
        assert time.monotonic() - before >= 0.1
    with hold_lock(file, 0.0) as held:
        assert held


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    program = (
        "import os, sys, time; from tilewright.base.shared_files import try_lock\n"
        "assert try_lock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)); print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        with lock_unused(file) as unused:
            assert not unused
        holder.kill()
    with lock_unused(file) as unused:
        assert unused


def test_only_a_lock_file_that_is_still_there_is_unused(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with lock_unused(file) as unused:
        assert not unused
    descriptor = opened(file)
    assert is_same_file(file, descriptor)
    file.unlink()
    assert not is_same_file(file, descriptor)
    os.close(opened(file))
    assert not is_same_file(file, descriptor)
    os.close(descriptor)
