"""`check`: every rule's answer and what would be legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from tilewright.ops import find_op, parse_kernel


def test_a_legal_config(
    run: Callable[..., Result], run_json: Callable[..., Any], settings: Callable[..., list[str]]
) -> None:
    document = run_json("check", "gemm", "--arch", "gfx942", *settings())
    assert document["legal"]
    assert document["suggestions"] == []
    assert {entry["code"] for entry in document["rules"]} == {r.code for r in find_op("gemm").rules}
    shown = run("check", "gemm", "--arch", "gfx942", *settings())
    assert shown.exit_code == 0
    assert shown.stdout.startswith(document["kernel"])
    assert "legal: " in shown.stdout


def test_a_kernel_by_name_means_the_same(run_json: Callable[..., Any], settings: Callable[..., list[str]]) -> None:
    document = run_json("check", "gemm", "--arch", "gfx942", *settings())
    assert run_json("check", document["kernel"]) == document


def test_an_illegal_config_is_explained_and_the_proposals_are_legal(
    run: Callable[..., Result], run_json: Callable[..., Any], settings: Callable[..., list[str]]
) -> None:
    options = settings(block="96x128x32")
    document = run_json("check", "gemm", "--arch", "gfx942", *options, code=1)
    failed = {entry["code"]: entry for entry in document["rules"] if not entry["passed"]}
    assert "block m = 96" in failed["T201"]["message"]
    assert failed["T201"]["fix"]
    for proposal in document["suggestions"]:
        assert run_json("check", proposal["kernel"])["legal"]
    shown = run("check", "gemm", "--arch", "gfx942", *options)
    assert shown.exit_code == 1
    assert "block: 96x128x32 → 128x128x32" in shown.stdout
    assert "Fix: " in shown.stdout


def test_settings_change_fields_of_a_named_kernel(
    run_json: Callable[..., Any], settings: Callable[..., list[str]]
) -> None:
    slug = run_json("check", "gemm", "--arch", "gfx942", *settings())["kernel"]
    changed = run_json("check", slug, "--arch", "gfx950", "-s", "pad_k=true", "-s", "vector=native", "-s", "dtype=bf16")
    kernel = parse_kernel(changed["kernel"])
    assert kernel.arch == "gfx950"
    assert (kernel.config.pad_k, kernel.config.dtype_c) == (True, "bf16")  # type: ignore[attr-defined]


def test_proposed_options_can_be_typed(run: Callable[..., Result], settings: Callable[..., list[str]]) -> None:
    bad = settings(permute_n="true")
    result = run("check", "gemm", "--arch", "gfx942", *bad)
    assert result.exit_code == 1
    assert "-s permute_n=false" in result.stdout
