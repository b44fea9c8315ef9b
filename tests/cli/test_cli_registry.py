"""`tilewright registry show`: counts, the whole document, and saved registries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

import tilewright as tw


def test_the_document_is_that_of_the_registry(run_json: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "kernels.json"
    shown = run_json("registry", "show", "fp16_rcr_essential", "--gpu", "gfx942,gfx950", "--out", str(file))
    expected = tw.Registry.of("fp16_rcr_essential", ["gfx942", "gfx950"])
    assert shown == expected.to_json(full=True)
    assert shown["statistics"]["arch"].keys() == {"gfx942", "gfx950"}
    assert shown["statistics"]["kernels"] == len(shown["kernels"]) == len(expected)
    assert json.loads(file.read_text()) == shown
    assert set(tw.Registry.load(file)) == set(expected)


def test_kernels_are_filtered_and_counted(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    words = (
        "registry",
        "show",
        "gemm",
        "--gpu",
        "gfx942",
        "--preselected",
        "fp16_rcr_essential",
        "--pipeline",
        "compv3",
    )
    found = run_json(*words)
    assert found["statistics"]["fields"]["gemm"]["pipeline"] == {"compv3": len(found["kernels"])}
    text = run(*words).stdout
    assert f"compv3 {len(found['kernels'])}" in text and "kernels by value" in text


def test_a_saved_registry(run: Callable[..., Result], run_json: Callable[..., Any], tmp_path: Path) -> None:
    registry = tw.Registry.of("fp16_rcr_essential", "gfx942")
    file = tmp_path / "saved.json"
    registry.with_priority(registry.kernels[0], 3).save(file)
    shown = run_json("registry", "show", "--saved", str(file))
    assert [each["priority"] for each in shown["kernels"] if "priority" in each] == [3]
    assert shown["statistics"]["kernels"] == len(registry)
    file.write_text("{}")
    wrong = run("registry", "show", "--saved", str(file))
    assert wrong.exit_code == 2 and "saved.json" in wrong.stderr


def test_kernels_are_given_in_one_way(run: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    tw.Registry.of("fp16_rcr_essential", "gfx942").save(file)
    for words in ((), ("fp16_rcr_essential", "--gpu", "gfx942", "--saved", str(file))):
        wrong = run("registry", "show", *words)
        assert wrong.exit_code == 2 and "give either KERNELS or --saved FILE" in wrong.stderr
