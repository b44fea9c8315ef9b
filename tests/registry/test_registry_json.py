"""Registries as JSON, out and in, and queries over them. No kernel is built: stores get what stands for one."""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_parts import KERNELS, artifact, failure

import tilewright as tw
from tilewright.base.errors import FileFormatError, InvalidValueError, UnknownValueError
from tilewright.building.store.artifact import Artifact, Failure
from tilewright.building.store.local import Store
from tilewright.ops.kernel import Kernel

results = st.sampled_from(["built", "failed", "nothing"])
members = st.dictionaries(
    st.sampled_from(KERNELS),
    st.tuples(results, st.one_of(st.none(), st.integers(-5, 5)), st.text(max_size=20)),
    max_size=6,
)


@given(members)
def test_every_registry_comes_back_as_it_was(drawn: dict[Kernel, tuple[str, int | None, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        found: dict[Kernel, Artifact | Failure] = {}
        for kernel, (what, _, log) in drawn.items():
            if what == "built":
                found[kernel] = artifact(store, kernel)
            elif what == "failed":
                found[kernel] = failure(kernel, log)
        priorities = {kernel: number for kernel, (_, number, _) in drawn.items() if number is not None}
        registry = tw.Registry(tuple(drawn), found, priorities=priorities)

        path = Path(folder) / "registry.json"
        registry.save(path)
        again = tw.Registry.load(path, store)
        assert again == registry
        assert again.kernels == registry.kernels, "the order is part of it"
        assert again.to_json() == registry.to_json() == json.loads(path.read_text(encoding="utf-8"))
        registry.save(path, full=True)
        assert tw.Registry.load(path, store) == registry


def test_a_document_of_schema_1_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    built = artifact(store, KERNELS[0])
    entries = [{"slug": KERNELS[0].slug, "key": built.key}, {"slug": KERNELS[1].slug, "key": None}]
    registry = tw.Registry.from_json({"schema": 1, "kernels": entries}, store)
    assert registry == tw.Registry(KERNELS[:2], {KERNELS[0]: built})
    assert registry.to_json()["schema"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 4}, "schema is 4, supported are 1, 2, 3"),
        ({"kernels": [{"slug": "gemm-gfx942-x-1", "key": None}]}, "is not a saved registry"),
        ({"kernels": [{"slug": KERNELS[0].slug}]}, "key"),
        ({"kernels": [{"slug": KERNELS[0].slug, "key": 7}]}, "must be a text, got 7"),
        ({"kernels": [{"slug": KERNELS[0].slug, "key": None, "priority": True}]}, "an integer"),
        ({"kernels": [{"slug": KERNELS[0].slug, "key": None, "score": 1}]}, "unknown key of a kernel 'score'"),
        ({"kernels": [{"slug": KERNELS[0].slug, "key": None, "failure": {}}]}, "has a failure but no key"),
        ({"kernels": 7}, "kernels must be a list, got 7"),
    ],
)
def test_documents_that_are_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    document = {"schema": 2, "kernels": [], **change}
    with pytest.raises(InvalidValueError, match=said):
        tw.Registry.from_json(document, Store(tmp_path / "store"))
    (tmp_path / "bad.json").write_text(json.dumps(document))
    with pytest.raises(FileFormatError, match=said):
        tw.Registry.load(tmp_path / "bad.json")


def test_a_full_document_has_fields_and_counts(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    built = {KERNELS[0]: artifact(store, KERNELS[0]), KERNELS[1]: failure(KERNELS[1])}
    document = tw.Registry(KERNELS, built).to_json(full=True)
    first = document["kernels"][0]
    assert {"slug", "key", "op", "arch", "config", "resources"} <= set(first)
    assert first["config"]["pipeline"] == KERNELS[0].config.pipeline  # type: ignore[attr-defined]
    counts = document["statistics"]
    assert (counts["kernels"], counts["op"]) == (len(KERNELS), {"gemm": len(KERNELS)})
    assert counts["state"] == {"built": 1, "failed": 1, "not built": len(KERNELS) - 2}
    assert counts["arch"]["gfx942"] == 8
    assert sum(counts["fields"]["gemm"]["dtype_a"].values()) == len(KERNELS)
    assert counts["fields"]["gemm"]["pipeline"]["compv3"] == 8
    first["config"]["pipeline"] = "compv4"
    with pytest.raises(InvalidValueError, match=r"config of .* is not that of its name"):
        tw.Registry.from_json(document, store)


def test_queries(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    built = {KERNELS[0]: artifact(store, KERNELS[0]), KERNELS[1]: failure(KERNELS[1])}
    registry = tw.Registry(KERNELS, built, priorities={KERNELS[0]: 3, KERNELS[9]: 1})

    assert len(registry.find(arch="gfx942")) == 8
    assert len(registry.find(dtype="bf16", pipeline="mem")) == 4
    assert len(registry.find(block="64x64x32")) == len(registry.find(block=(64, 64, 32))) == 8
    assert len(registry.find(block=["64x64x32", (128, 128, 32)], arch=["gfx942"])) == 8
    assert len(registry.find(name="*-compv3-*", op="gemm")) == 8
    assert registry.find(built=True).kernels == KERNELS[:1]
    assert len(registry.find(built=False)) == 15
    found = registry.find(arch="gfx942")
    assert (found.results, found.priorities) == (built, {KERNELS[0]: 3})
    with pytest.raises(UnknownValueError, match=r"unknown field of gemm 'pipelin'\. Did you mean 'pipeline'"):
        registry.find(pipelin="mem")
    with pytest.raises(UnknownValueError, match="'memory'"):
        registry.find(pipeline="memory")


def test_priorities_are_set_by_kernel_name_and_query() -> None:
    registry = tw.Registry.of(KERNELS)
    assert registry.with_priority(KERNELS[0], 1).priorities == {KERNELS[0]: 1}
    assert registry.with_priority(KERNELS[0].slug, 1).priorities == {KERNELS[0]: 1}
    mem = registry.find(pipeline="mem")
    assert registry.with_priority(mem, -2).priorities == dict.fromkeys(mem.kernels, -2)
    assert registry.priorities == {}, "a registry is a value"
    with pytest.raises(UnknownValueError, match="kernel of this registry"):
        registry.find(arch="gfx942").with_priority(KERNELS[-1], 1)
    with pytest.raises(InvalidValueError, match=r"an integer, got 1\.5"):
        registry.with_priority(KERNELS[0], 1.5)  # type: ignore[arg-type]


def test_a_registry_can_be_pickled() -> None:
    registry = tw.Registry.of(KERNELS).with_priority(KERNELS[0], 1)
    again = pickle.loads(pickle.dumps(registry))
    assert again == registry
    problem = tw.gemm.Problem(m=128, n=128, k=64, dtype="fp16", layout="rcr")
    assert again.select(problem, "gfx942", built=False) == registry.select(problem, "gfx942", built=False)
