"""`tilewright build --cluster`: errors before anything is built. tests/bench/test_build_cluster.py runs clusters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

WORDS = ("build", "fp16_rcr_essential", "--gpu", "gfx942", "--limit", "1", "--cluster")


@pytest.mark.parametrize(("option", "value"), [("--jobs", "2"), ("--trace", "trace.json")])
def test_options_for_this_machine_are_rejected(option: str, value: str, run: Callable[..., Result]) -> None:
    done = run(*WORDS, "local", option, value)
    assert (done.exit_code, f"{option} is for this machine only" in done.stderr) == (2, True)


def test_without_a_shared_store_nothing_is_built(run: Callable[..., Result], tmp_path: Path, monkeypatch) -> None:
    """Also on one machine: the command never builds without the cluster that it was told to use."""
    pytest.importorskip("ray", reason="needs the extra `cluster`")
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    done = run(*WORDS, "local")
    assert (done.exit_code, "none is set. Set TILEWRIGHT_REMOTE to a folder" in done.stderr) == (2, True)
    monkeypatch.setenv("TILEWRIGHT_REMOTE", f"folder:{tmp_path}")
    monkeypatch.setenv("TILEWRIGHT_REMOTE_MODE", "read")
    done = run(*WORDS, "local")
    assert (done.exit_code, f"folder:{tmp_path} is only read here" in done.stderr) == (2, True)


def test_without_ray_the_extra_is_named(run: Callable[..., Result], monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = run(*WORDS, "auto")
    assert done.exit_code == 2
    assert "a cluster needs ray. Get it with: pip install 'tilewright[cluster]'" in done.stderr


@pytest.mark.compile
def test_without_a_cluster_nothing_is_built(run: Callable[..., Result], tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("ray", reason="needs the extra `cluster`")
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TILEWRIGHT_REMOTE", f"folder:{tmp_path}")
    done = run(*WORDS, "127.0.0.1:1")
    assert (done.exit_code, "no Ray cluster at '127.0.0.1:1'" in done.stderr) == (2, True)
    assert "ray start --head" in done.stderr
    assert run(*WORDS, "somewhere").exit_code == 2
