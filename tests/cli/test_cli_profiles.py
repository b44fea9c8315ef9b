"""Profiles, filters by head size, and counts by a field: what commands offer for ops that have them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

TARGET = ("--gpu-target", "gfx942", "--dry-run")


def names(run_json: Callable[..., Any], folder: Path, *options: str) -> list[str]:
    document = run_json("generate", "fmha", "--output-dir", str(folder), *TARGET, *options)
    found: list[str] = document["kernels"]
    return found


def test_a_profile_keeps_what_an_integration_needs(run_json: Callable[..., Any], tmp_path: Path) -> None:
    everything = names(run_json, tmp_path, "--preselected", "attention_small")
    flash = names(run_json, tmp_path, "--preselected", "attention_small", "--profile", "flash")
    assert 0 < len(flash) < len(everything)
    assert all("-lse" in name for name in flash)


def test_a_profile_chooses_from_its_own_space(run_json: Callable[..., Any], tmp_path: Path) -> None:
    found = names(run_json, tmp_path, "--profile", "fp8")
    assert len(found) == 48
    assert all("-fp8" in name for name in found)
    everything = names(run_json, tmp_path, "--profile", "fp8", "--preselected", "default", "--limit", "100")
    assert len(everything) == 100


def test_filters_by_field_and_by_property(run_json: Callable[..., Any], tmp_path: Path) -> None:
    found = names(run_json, tmp_path, "--preselected", "attention_small", "--hdim-q", "192", "--datatype", "bf16")
    assert len(found) == 8
    assert all("x192-" in name and "-bf16-" in name for name in found)
    stage = names(run_json, tmp_path, "--preselected", "training", "--family", "dot_do_o", "--hdim-v", "64")
    assert len(stage) == 4


def test_unknown_profiles_are_errors(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run("generate", "fmha", "--output-dir", str(tmp_path), *TARGET, "--profile", "flush")
    assert result.exit_code == 2
    assert "Known: ck_default, flash, pytorch, aiter, fp32, fp8" in result.stderr
    result = run("generate", "gemm", "--output-dir", str(tmp_path), *TARGET, "--profile", "flash")
    assert result.exit_code == 2
    assert "gemm has no profiles" in result.stderr


def test_sets_shows_profiles(run: Callable[..., Result]) -> None:
    shown = run("sets", "--op", "fmha").stdout
    assert "profile" in shown
    assert "flash-attention" in " ".join(shown.split())
    assert "profile" not in run("sets", "--op", "gemm").stdout


def test_a_space_is_counted_by_a_field(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    args = ("space", "fmha", "--arch", "gfx942", "--set", "training")
    document = run_json(*args)
    (entry,) = document["archs"]
    assert set(entry["by"]) == {"family"}
    assert sum(entry["by"]["family"].values()) == entry["legal"]
    assert set(run_json(*args, "--by", "mode")["archs"][0]["by"]["mode"]) == {"batch", "group"}
    assert "family dq_dk_dv" in run(*args).stdout
    assert "unknown field of fmha 'modes'" in run(*args, "--by", "modes").stderr
