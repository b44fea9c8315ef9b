"""Many processes that build at once, and two versions of the package beside each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine import (
    PACKAGE_ROOT,
    PLUGIN,
    REFUSED,
    all_load,
    answer,
    at_work_in,
    build,
    environment,
    eventually,
    sound,
    start,
)

from tilewright.building.store.artifact import Artifact
from tilewright.building.store.local import Store

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("engine")]

FACTORS = [1, 2, 3, 4]


@pytest.mark.parametrize("count", [5, pytest.param(64, marks=pytest.mark.deep)])
def test_many_processes_compile_four_kernels_once(count: int, ck: Path, tmp_path: Path) -> None:
    surroundings = environment(ck, tmp_path / "store")
    gate = tmp_path / "gate"
    processes = [start(surroundings, FACTORS, gate=str(gate)) for _ in range(count)]
    gate.touch()
    answers = [answer(process) for process in processes]
    assert sum(found["compiled"] for found in answers) == len(FACTORS)
    assert sum(found["device_steps"] for found in answers) == len(FACTORS)
    assert sum(found["warm_cpu_s"] > 0 for found in answers) <= 2  # device and host: at most one process each
    for found in answers:
        assert [entry["name"] for entry in found["results"].values()] == list(found["results"])
        assert found["results"] == answers[0]["results"]
    sound(tmp_path / "store")


def test_threads_of_one_process(tmp_path: Path, warm: Callable[[Path], Path]) -> None:
    warm(tmp_path / "store")
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(build, tmp_path / "store", FACTORS, jobs=1) for _ in range(4)]
        builds = [job.result() for job in jobs]
    assert sum(built.compiled for built in builds) == len(FACTORS)
    assert all(all_load(built) for built in builds)
    sound(tmp_path / "store")


def test_two_who_try_a_failure_again_both_end(ck: Path, tmp_path: Path, warm: Callable[[Path], Path]) -> None:
    """What is in the store must not end the wait of who does not want it, nor make it spin."""
    surroundings = environment(ck, warm(tmp_path / "store"))
    first = answer(start(surroundings, [REFUSED]))
    again = [start(surroundings, [REFUSED, 5], retry=True) for _ in range(2)]
    answers = [answer(process) for process in again]
    assert 2 <= sum(found["device_steps"] for found in answers) <= 3
    assert sum(found["compiled"] for found in answers) == 1
    for found in answers:
        assert next(iter(found["results"].values())) == next(iter(first["results"].values()))


def test_two_versions_of_the_package_share_a_store(ck: Path, tmp_path: Path, warm: Callable[[Path], Path]) -> None:
    """Another recipe or another text of the op: entries of its own. The same code elsewhere: the same entries."""
    store = warm(tmp_path / "store")
    first = answer(start(environment(ck, store), [6]))
    roots = {name: tmp_path / name for name in ("same", "recipe", "text")}
    for root in roots.values():
        shutil.copytree(PACKAGE_ROOT / "tilewright", root / "tilewright")
        shutil.copytree(PLUGIN, root, dirs_exist_ok=True)
    _replace(roots["recipe"] / "tilewright" / "building" / "compile_job.py", "RECIPE = ", "RECIPE = 1000 + ")
    _replace(roots["text"] / "tilewright_scale" / "abi.h", "#include", "// another\n#include")
    keys = {}
    for name, root in roots.items():
        found = answer(start(environment(ck, store, PYTHONPATH=str(root)), [6]))
        keys[name] = next(iter(found["results"].values()))["key"]
        assert found["compiled"] == (0 if name == "same" else 1), name
    assert keys["same"] == next(iter(first["results"].values()))["key"]
    assert len(set(keys.values())) == 3
    assert all(isinstance(Store(store).get(key), Artifact) for key in keys.values())
    assert answer(start(environment(ck, store), [6]))["results"] == first["results"]
    sound(store)


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_who_waits_takes_over_from_who_dies(ck: Path, tmp_path: Path, warm: Callable[[Path], Path]) -> None:
    """A process that waits for another one's kernel takes it over when that one dies."""
    surroundings = environment(ck, warm(tmp_path / "store"))
    first = start(surroundings, FACTORS)
    eventually(lambda: at_work_in(tmp_path / "store"))
    second = start(surroundings, FACTORS)
    first.kill()
    first.wait()
    found = answer(second)
    assert len(found["results"]) == len(FACTORS)
    assert all("name" in entry for entry in found["results"].values())
    sound(tmp_path / "store")
