"""`arch`, `knobs`, `rules` and `sets`: what is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tilewright import arch as gpus
from tilewright.arch.load import DATA
from tilewright.ops import OPS
from tilewright.ops import space as space_module
from tilewright.ops.op import Op


def test_list_has_every_gpu(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    assert [entry["name"] for entry in run_json("arch", "list")] == list(gpus.arch_names())
    shown = run("arch", "list").stdout
    assert all(name in shown for name in gpus.arch_names())


def test_show_has_tiles_with_their_instructions(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    document = run_json("arch", "show", "gfx942")
    spec = gpus.load("gfx942")
    assert document["lds"]["bytes"] == spec.lds.bytes
    assert len(document["mma"]) == sum(len(shapes) for shapes in spec.mma.values())
    shown = run("arch", "show", "gfx942").stdout
    for entry in document["mma"]:
        assert entry["instruction"] in shown


def test_a_good_gpu_file(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    file = str(DATA / "gfx942.toml")
    assert run_json("arch", "check", file)["problems"] == []
    assert run("arch", "check", file).stdout == f"good: {file} describes gfx942\n"


def test_all_problems_of_a_gpu_file(run: Callable[..., Result], run_json: Callable[..., Any], tmp_path: Path) -> None:
    text = (DATA / "gfx942.toml").read_text()
    file = tmp_path / "gfx942.toml"
    file.write_text(text.replace("wave_size =", "wave_sizes =").replace("banks =", "bank ="))
    document = run_json("arch", "check", str(file), code=1)
    places = {problem["where"] for problem in document["problems"]}
    assert {"wave_size", "wave_sizes", "lds.bank", "lds.banks"} <= places
    result = run("arch", "check", str(file))
    assert result.exit_code == 1
    assert all(place in result.stdout for place in places)


def test_knobs(run: Callable[..., Result], run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(entry["value"] is None for entry in run_json("knobs"))
    monkeypatch.setenv("TILEWRIGHT_JOBS", "3")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "/somewhere")
    values = {entry["name"]: entry["value"] for entry in run_json("knobs")}
    assert (values["TILEWRIGHT_JOBS"], values["TILEWRIGHT_CACHE"]) == (3, "/somewhere")
    assert "/somewhere" in run("knobs").stdout


def test_a_knob_that_cannot_be_used_is_named(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_JOBS", "many")
    result = run("knobs")
    assert result.exit_code == 1
    assert "TILEWRIGHT_JOBS='many' cannot be" in result.stdout


def test_rules_list_every_rule(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    codes = [rule.code for op in OPS for rule in (*op.rules, *op.fit_rules)]
    assert [entry["code"] for entry in run_json("rules")] == codes
    shown = run("rules").stdout
    # One line per rule, so that it can be searched.
    rules = [rule for op in OPS for rule in (*op.rules, *op.fit_rules)]
    lines = shown.splitlines()[2:]
    assert len(lines) == len(rules)
    assert all(rule.code in line and line.endswith(rule.what) for rule, line in zip(rules, lines, strict=True))


@pytest.mark.parametrize(
    ("op", "rule"),
    [pytest.param(op.name, r, id=f"{op.name}-{r.code}") for op in OPS for r in (*op.rules, *op.fit_rules)],
)
def test_a_rule_in_full(op: str, rule: Any, run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    shown = " ".join(run("rules", rule.code.lower(), "--op", op).stdout.split())
    for text in (rule.what, rule.why, rule.fix, rule.enforced_by):
        assert text in shown
    (document,) = run_json("rules", rule.slug, "--op", op)
    assert (document["op"], document["code"], document["why"]) == (op, rule.code, rule.why)


def test_an_unknown_rule_names_each_code_once(run: Callable[..., Result]) -> None:
    """Ops have rules in common."""
    result = run("rules", "X1")
    assert result.exit_code == 2
    listed, _, more = result.stderr.partition("Known: ")[2].partition(" … and ")
    known, codes = listed.split(", "), {rule.code for op in OPS for rule in (*op.rules, *op.fit_rules)}
    assert len(known) == len(set(known)) and set(known) <= codes
    assert more == f"{len(codes) - len(known)} more. `tilewright rules` lists all.\n"


def test_listing_sets_asks_no_rule(run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first command of many users: its kernels are counted, not made."""
    monkeypatch.setattr(space_module, "Search", None)

    assert len(run_json("sets")) == sum(len(op.sets()) for op in OPS)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_counts_of_sets_are_those_of_their_kernels(op: Op) -> None:
    for kernel_set in op.sets().values():
        arch = kernel_set.archs[-1]

        assert kernel_set.count_named()[arch] == sum(1 for _ in kernel_set.kernels(arch)), kernel_set.name
        assert list(kernel_set.count_named()) == list(kernel_set.archs)


def test_sets(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    for op in OPS:
        assert {entry["name"] for entry in run_json("sets", "--op", op.name)} == set(op.sets())
    listed = {entry["name"]: entry for entry in run_json("sets")}
    assert set(listed) == {name for op in OPS for name in op.sets()}
    name = "fp16_rcr_essential"
    document = run_json("sets", name)
    assert {arch: len(slugs) for arch, slugs in document["kernels"].items()} == listed[name]["kernels"]
    shown = run("sets", name).stdout
    assert all(slug in shown for slugs in document["kernels"].values() for slug in slugs)
    assert name in run("sets").stdout
