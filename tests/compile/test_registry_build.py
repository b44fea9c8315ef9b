"""The registry over the build engine: `tw.build`, queries, saving, loading, and the command `tilewright build`."""

from __future__ import annotations

import ctypes
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from tilewright.base import knobs
from tilewright.base.errors import CompileError, FileFormatError, InvalidValueError, UnknownValueError
from tilewright.building.compile_job import LIBRARY
from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store
from tilewright.cli.app import root
from tilewright.ops import find_op
from tilewright.ops.kernel import Kernel
from tilewright.ops.space import Space

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("plugin", "store")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One store for the module: what a test builds, the next finds."""
    with pytest.MonkeyPatch.context() as patch:
        for knob in knobs.KNOBS:
            if knob not in (knobs.CACHE_DIR, knobs.CK_PATH, knobs.ROCM_PATH, knobs.CXX):
                patch.delenv(knob.name, raising=False)
        root_folder = tmp_path_factory.mktemp("registry")
        patch.setenv(knobs.STORE.name, str(root_folder))
        yield root_folder


def kernel(factor: int, arch: str = "gfx942") -> Kernel:
    op = find_op("scale")
    return op.make_kernel(op.make_config(dtype="fp32", threads=64, factor=factor), arch)


def name_of(library: ctypes.CDLL, built: Kernel) -> str:
    function = getattr(library, f"{built.symbol}_name")
    function.restype = ctypes.c_char_p
    return str(function().decode())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments))


def test_a_space_is_built_for_several_gpus_and_found_again() -> None:
    space = Space(find_op("scale"), {"dtype": "fp32", "threads": 64, "factor": [1, 2]})
    first = tw.build(space, ["gfx942", "gfx90a"], jobs=2)

    assert (len(first), len(first.artifacts), first.failures) == (4, 4, {})
    assert first.built is not None and first.built.compiled == 4
    assert {k.arch for k in first} == {"gfx942", "gfx90a"}
    assert [k.config.factor for k in first.find(arch="gfx90a", factor=2)] == [2]  # type: ignore[attr-defined]
    for built in first:
        assert name_of(first.library(built, f"emulated:{built.arch}"), built) == built.slug

    again = tw.Registry.of(space, ["gfx942", "gfx90a"]).build(max_workers=2)
    assert again.built is not None and again.built.compiled == 0
    assert {a.key for a in again.artifacts.values()} == {a.key for a in first.artifacts.values()}


def test_a_failure_is_a_value_until_it_is_used() -> None:
    registry = tw.build([kernel(1), kernel(666)])

    assert list(registry.artifacts) == [kernel(1)]
    assert "meant to be refused" in registry.failures[kernel(666)].log
    with pytest.raises(CompileError, match="meant to be refused") as raised:
        registry.library(kernel(666), "emulated:gfx942")
    assert "kernel.hip:" in raised.value.log
    with pytest.raises(InvalidValueError, match="not built"):
        tw.Registry.of([kernel(1)]).library(kernel(1), "emulated:gfx942")


def test_what_can_be_named() -> None:
    config = find_op("scale").make_config(dtype="fp32", threads=64, factor=1)
    assert tw.Registry.of([config, kernel(1)], "gfx942").kernels == (kernel(1),)
    with pytest.raises(InvalidValueError, match="pass arch="):
        tw.Registry.of(config)
    with pytest.raises(InvalidValueError, match="is a kernel for gfx942"):
        tw.Registry.of(kernel(1), "gfx90a")
    with pytest.raises(InvalidValueError, match="gemm is an op, not kernels"):
        tw.Registry.of(["gemm"], "gfx90a")
    with pytest.raises(UnknownValueError, match="field of scale"):
        tw.Registry.of(kernel(1)).find(pipeline="mem")
    with pytest.raises(InvalidValueError, match="jobs must be at least 1"):
        tw.build(kernel(1), jobs=0)


def test_saved_and_loaded(tmp_path: Path) -> None:
    registry = tw.build([kernel(1), kernel(666)])
    registry.save(tmp_path / "mine.json")
    loaded = tw.Registry.load(tmp_path / "mine.json")

    assert loaded == registry
    elsewhere = tw.Registry.load(tmp_path / "mine.json", Store(tmp_path / "other"))
    assert elsewhere.artifacts == {} and elsewhere.failures == registry.failures, "failures are in the file itself"
    document = json.loads((tmp_path / "mine.json").read_text())
    document["kernels"][0]["key"], document["kernels"][1]["key"] = (e["key"] for e in document["kernels"][::-1])
    (tmp_path / "swapped.json").write_text(json.dumps(document))
    assert tw.Registry.load(tmp_path / "swapped.json").artifacts == {}, "a key of another kernel is not believed"
    (tmp_path / "bad.json").write_text('{"schema": 4}')
    with pytest.raises(FileFormatError, match="schema is 4"):
        tw.Registry.load(tmp_path / "bad.json")


def test_a_thousand_libraries_are_opened_in_seconds(tmp_path: Path) -> None:
    """Key to loaded library: 1,000 in at most 5 s of CPU time, every byte hashed first. The machine may be busy."""
    built = tw.build(kernel(1)).artifacts[kernel(1)]
    store = Store(tmp_path)
    keys = [f"{number:032x}" for number in range(1000)]
    for key in keys:
        store.put(key, {name: built.folder / name for name in built.files}, built.facts)

    device = tw.Device("emulated:gfx942")
    device.load_hip()
    started = time.process_time()
    for key in keys:
        artifact = store.get(key)
        assert isinstance(artifact, Artifact)
        device.library(artifact.verify_file(LIBRARY))
    assert time.process_time() - started <= 5.0


def test_the_command(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    arguments = [
        "build",
        "scale",
        "--gpu-target",
        "gfx942",
        "--kernel",
        kernel(77).slug,
        "--trace",
        str(trace),
        "--json",
    ]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["compiled"] == 1
    facts = document["kernels"][0]["facts"]
    assert facts["resources"][0]["wave_size"] == 64
    assert facts["cost"]["device_cpu_s"] > 0
    assert "--offload-arch=gfx942" in facts["commands"]["device"]
    steps = [e["args"]["step"] for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert sorted(steps) == ["device", "host", "link"]

    failed = run("build", "scale", "--gpu-target", "gfx942", "--kernel", kernel(666).slug)
    assert failed.exit_code == 1
    assert "meant to be refused" in failed.output
    assert "already built" in failed.output
    wrong = run("build", "scale", "--gpu-target", "gfx90a", "--kernel", kernel(1).slug)
    assert isinstance(wrong.exception, SystemExit) and wrong.exit_code == 2
