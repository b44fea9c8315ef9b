"""Probing CK trees: known forms are recognised, and an unknown one is named with its difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from ck_trees import ABSENT, NEWER, TREES
from tilewright import arch as archs
from tilewright.arch.ck_api import (
    DEFAULT_API,
    DEFAULT_GENERATION,
    CkApi,
    CkForm,
    CkProbe,
    list_generations,
    make_api,
    make_generation_api,
)
from tilewright.base.errors import ToolchainError
from tilewright.building import ck_tree
from tilewright.building.ck_cache import find_fetched_tree
from tilewright.building.ck_fetch import fetch_ck
from tilewright.building.ck_tree import probe_header, probe_tree, read_template_parameters, require_api
from tilewright.ops import list_ops

PROBE = CkProbe(
    "problem",
    "ck_tile/problem.hpp",
    (CkForm("loops", "2025-11", ("A", "HasHotLoop")), CkForm("plain", "2026-06", ("A", "B"))),
    template="Problem",
)
FEATURE = CkProbe(
    "sinks", "ck_tile/kernel.hpp", (CkForm("none", "2025-11"), CkForm("present", "2026-06", text="sink_ptr"))
)
FILE = """
// template <typename Old_> struct Problem {
template <typename A_, typename = int>
struct Other;
template <typename A_, /* its form */ bool HasHotLoop_ = Check<(A_::n > 1), 2>::value>
struct Problem : Base<A_>
{
};
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "ck_tile").mkdir()
    (tmp_path / "ck_tile" / "problem.hpp").write_text(FILE)
    return tmp_path


def test_template_parameters_are_read_without_comments_defaults_and_forward_declarations() -> None:
    text = "template <typename T> struct P; template <int N_ = f(1, 2), typename... Ts_> struct P final { };"
    assert read_template_parameters(text, "P") == ("N", "Ts")
    assert read_template_parameters(text, "Q") is None
    assert read_template_parameters("struct P { };", "P") is None


def test_the_form_of_a_template_is_found(tree: Path) -> None:
    found = probe_header(PROBE, tree)
    assert isinstance(found, CkForm)
    assert found.name == "loops"
    assert isinstance(absent := probe_header(FEATURE, tree), CkForm)
    assert absent.name == "none"
    (tree / "ck_tile" / "kernel.hpp").write_text("const void* sink_ptr;")
    assert isinstance(present := probe_header(FEATURE, tree), CkForm)
    assert present.name == "present"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("typename A_, bool HasHotLoop_, int Extra_", "has Extra, compared with 2025-11"),
        ("typename A_", "lacks"),
        ("bool HasHotLoop_, typename A_", "has its parameters in another order"),
    ],
)
def test_an_unknown_form_is_named_with_its_difference(tree: Path, parameters: str, said: str) -> None:
    (tree / "ck_tile" / "problem.hpp").write_text(f"template <{parameters}> struct Problem {{}};")
    told = probe_header(PROBE, tree)
    assert isinstance(told, str)
    assert "the probe problem failed: Problem in ck_tile/problem.hpp" in told
    assert said in told


def test_a_tree_without_the_template_is_named(tmp_path: Path) -> None:
    assert probe_header(PROBE, tmp_path) == ("the probe problem failed: ck_tile/problem.hpp has no template Problem")


def test_an_api_is_named_after_the_generation_of_its_forms() -> None:
    probes = (PROBE, FEATURE)
    assert make_api({"problem": "loops", "sinks": "none"}, probes) == DEFAULT_API
    newer = make_api({"problem": "plain", "sinks": "present"}, probes)
    assert newer == make_generation_api("2026-06", probes)
    assert newer.generation == "2026-06"
    assert newer.get_form(PROBE) == "plain"
    assert make_api({"problem": "plain", "sinks": "none"}, probes).generation == "2025-11 to 2026-06"
    assert list_generations(probes) == ("2025-11", "2026-06")


def test_a_gpu_has_the_api_that_it_is_loaded_with() -> None:
    newer = CkApi("2026-06", frozenset({("problem", "plain")}))
    assert archs.load("gfx942").ck == DEFAULT_API
    assert archs.load("gfx942", newer).ck == newer
    assert archs.load("gfx942", newer) != archs.load("gfx942")


def test_the_fetched_tree_is_of_the_default_generation() -> None:
    tree = probe_tree(fetch_ck().include)
    assert tree.api == DEFAULT_API
    assert tree.failures == {}


def test_the_older_tree_is_rejected_for_all_ops_by_their_probes() -> None:
    older = find_fetched_tree("2025-07")
    if older is None:
        pytest.skip("needs the CK tree 2025-07: tilewright toolchain fetch-ck --tree 2025-07")
    failures = probe_tree(older.include).failures
    for op in list_ops():
        if op.ck_probes:
            assert "the probe " in failures[op.name], op.name


@pytest.mark.skipif(not (TREES / NEWER).is_dir(), reason=ABSENT)
def test_the_newer_tree_is_recognised_by_all_ops() -> None:
    tree = probe_tree(TREES / NEWER / "include")
    assert tree.failures == {}
    assert tree.api.generation == "2026-06"
    changed = {name for name, _ in tree.api.changes}
    for op in list_ops():
        assert not op.ck_probes or changed & {probe.name for probe in op.ck_probes}, op


def test_an_op_is_refused_for_a_tree_that_its_probes_do_not_know(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree with another template parameter: the error names the probe, the known generations and the remedy."""
    (tree / "ck_tile" / "problem.hpp").write_text("template <typename A_, int New_> struct Problem {};")

    class Op:
        name = "gemm"
        ck_probes = (PROBE,)

    monkeypatch.setattr(ck_tree, "list_ops", lambda: (Op,))
    with pytest.raises(ToolchainError, match="gemm cannot be compiled") as caught:
        require_api("gemm", tree)
    for part in (str(tree), "the probe problem failed", "has New", DEFAULT_GENERATION, "2026-06", "fetch-ck"):
        assert part in str(caught.value)
