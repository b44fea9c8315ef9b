"""Ctrl-C in the middle of a build."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine import answer, at_work_in, environment, eventually, sound, start, swept_and_sound

from built_kernels import in_tier_ci
from tilewright.building.store.local import Store

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]

FACTORS = list(range(1, 6 if in_tier_ci() else 9))


def _headers_begun(store: Path) -> bool:
    return any("-emit-pch" in command for command in at_work_in(store))


def _one_kernel_built(store: Path) -> bool:
    return len(list(store.glob("v1/entries/*/*/kernel.so"))) >= 1


@pytest.mark.parametrize(
    ("when", "whom"),
    [
        (_headers_begun, "process"),
        (_one_kernel_built, "group"),
        pytest.param(_headers_begun, "group", marks=pytest.mark.deep),
        pytest.param(_one_kernel_built, "process", marks=pytest.mark.deep),
    ],
)
def test_interrupts(ck: Path, tmp_path: Path, whom: str, when: object, warm: Callable[[Path], Path]) -> None:
    store = tmp_path / "store"
    if when is not _headers_begun:
        warm(store)
    process = start(environment(ck, store), FACTORS)
    assert callable(when)
    eventually(lambda: when(store), 60)
    asked = time.monotonic()
    if whom == "group":  # as a terminal does
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=30)
    took = time.monotonic() - asked
    assert (process.returncode, complaints) == (130, "interrupted\n")
    assert took < 2.5, "headers or kernels were compiled to the end first"
    assert at_work_in(store) == []
    swept_and_sound(store)
    done = len(list(store.glob("v1/entries/*/*/kernel.so")))
    found = answer(start(environment(ck, store), FACTORS))
    assert found["compiled"] == len(FACTORS) - done
    assert all("name" in entry for entry in found["results"].values())
    assert len(list(Store(store).list_keys())) == len(FACTORS) + 2  # and the headers of both passes
    sound(store)
