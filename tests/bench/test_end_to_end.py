"""From a recording of real times to a choice: import → sweep → tune → train → evaluate → select, as a user types it."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from research.conv_data import FILE
from research.sources import DATA
from tilewright.base import knobs
from tilewright.bench.journal import read_journal
from tilewright.cli.app import root
from tilewright.ops import find_op
from tilewright.ops.builtin_sets import make_explicit_set
from tilewright.ops.grouped_conv.gfx950_times import make_labelled_kernel, read_row_problem
from tilewright.ops.kernel import Kernel
from tilewright.ops.kernel_set import dump_kernel_set
from tilewright.ops.problem_text import format_problem
from tilewright.registry.registry import Registry
from tilewright.select.bundle import MANIFEST
from tilewright.select.tuned import read_tuned

OP, ARCH, DEVICE = "grouped_conv", "gfx950", "replay:gfx950"
CSV = DATA.joinpath(*FILE)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CSV.is_file(), reason="the public measurements are not beside the repository"),
]

Times = dict[Any, dict[Kernel, float]]


def command(*words: str | Path) -> Any:
    """What a command prints as JSON."""
    done = CliRunner().invoke(root, [*map(str, words), "--json"], prog_name="tilewright")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def _clean_knobs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for knob in knobs.KNOBS:
            patch.delenv(knob.name, raising=False)
        yield


@pytest.fixture(scope="module")
def measured() -> Times:
    """Straight from the public file: what kernels took for problems, the median of the labels that name one kernel."""
    times: dict[Any, dict[Kernel, list[float]]] = {}
    with CSV.open(newline="") as stream:
        for row in csv.DictReader(stream):
            kernel = make_labelled_kernel(*(int(row[f"tile_{x}"]) for x in "mnk"), pipeline=row["pipeline"])
            times.setdefault(read_row_problem(row), {}).setdefault(kernel, []).append(float(row["latency_us"]))
    return {p: {kernel: statistics.median(us) for kernel, us in own.items()} for p, own in times.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("walked")
    command("data", "import", "conv_gfx950", CSV, "--out", made / "imported")
    command("data", "export", made / "imported", "--out", made / "recorded.parquet")
    return made


@pytest.fixture(scope="module")
def journal(folder: Path) -> Path:
    """The journal of a sweep over all that was recorded."""
    replay = ("--device", DEVICE, "--replay", folder / "recorded.parquet")
    done = command("sweep", *replay, "--out", folder / "journal", "--workers", "2", "--fsync", "never")
    assert (done["tasks"], done["statuses"], done["left"]) == (2990, {"ok": 2990}, 0)
    return folder / "journal"


@pytest.fixture(scope="module")
def winners(folder: Path, journal: Path) -> Path:
    """The tuned table of the journal."""
    found = command("tune", journal, "--out", folder / "winners.json")
    assert (found["problems"], found["damaged"], len(found["parts"])) == (230, 0, 1)
    return folder / "winners.json"


@pytest.fixture(scope="module")
def bundle(folder: Path, journal: Path) -> Path:
    """A model trained on the journal. Smaller than the shipped one, which takes minutes."""
    found = command("train", journal, "--out", folder / "bundle", "--rounds", "30", "--seeds", "1")
    assert (found["op"], found["arch"]) == (OP, ARCH)
    return folder / "bundle"


@pytest.fixture(scope="module")
def kernel_set(folder: Path, measured: Times) -> Path:
    """All measured kernels, as a file to choose from."""
    kernels = sorted({kernel for own in measured.values() for kernel in own}, key=lambda kernel: kernel.slug)
    text = dump_kernel_set(make_explicit_set(find_op(OP), ARCH, "measured", "All that were measured.", kernels))
    (folder / "measured.toml").write_text(text, encoding="utf-8")
    return folder / "measured.toml"


def best(own: dict[Kernel, float]) -> tuple[Kernel, float]:
    """The oracle's choice; of equal times the first by name."""
    us, _, kernel = min((us, kernel.slug, kernel) for kernel, us in own.items())
    return kernel, us


def test_the_sweep_keeps_every_recorded_time(journal: Path, measured: Times) -> None:
    records = read_journal(journal).records
    assert {record.task.device for record in records} == {DEVICE}
    found = {(r.task.problem, r.task.kernel): r.times.us for r in records if r.times is not None}
    assert len(found) == len(records) == sum(map(len, measured.values()))
    assert sorted(found.values()) == sorted(us for own in measured.values() for us in own.values())


def test_the_tuned_table_is_the_oracle(winners: Path, measured: Times) -> None:
    table = read_tuned(winners)
    assert len(table) == len(measured) == 230
    assert {e.problem: (e.kernel, e.us) for e in table} == {problem: best(own) for problem, own in measured.items()}


def test_tune_says_what_measuring_was_worth(folder: Path, journal: Path, winners: Path, measured: Times) -> None:
    part = command("tune", journal, "--out", folder / "again.json")["parts"][0]
    assert (folder / "again.json").read_bytes() == winners.read_bytes()
    # Told by the selector: what it takes without tuned table and bundles.
    registry = Registry.of(sorted({k for own in measured.values() for k in own}, key=lambda k: k.slug)).with_bundles()
    chosen = {problem: registry.select(problem, ARCH, built=False).best.kernel for problem in measured}
    ratios = [own[chosen[problem]] / best(own)[1] for problem, own in measured.items()]
    assert part["times_faster"] == pytest.approx(statistics.geometric_mean(ratios))
    assert part["estimate_took_winner"] == ratios.count(1.0)
    assert part["largest_gain"]["times_faster"] == max(ratios)
    assert (part["kernels"], part["times"], part["compared"]) == (13, 2990, 230)


def test_tune_sweeps_by_itself(folder: Path, measured: Times) -> None:
    """In a journal that is half done: what is there is not measured again."""
    replay = ("--device", DEVICE, "--replay", folder / "recorded.parquet", "--limit", "2")
    half = command("sweep", *replay, "--out", folder / "two", "--shard", "1/2", "--fsync", "never")
    assert 0 < half["statuses"]["ok"] == len(read_journal(folder / "two").records) < 460
    found = command("tune", folder / "two", *replay, "--out", folder / "two.json")
    records = read_journal(folder / "two").records
    assert (found["parts"][0]["times"], len(records), len({record.key for record in records})) == (460, 460, 460)
    two = {record.task.kernel for record in records}
    least = {problem: min(us for kernel, us in own.items() if kernel.slug in two) for problem, own in measured.items()}
    assert {entry.problem: entry.us for entry in read_tuned(folder / "two.json")} == least


def test_the_model_is_better_than_the_estimate_on_problems_it_has_not_seen(journal: Path, bundle: Path) -> None:
    said = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    assert (said["training"]["problems"], said["training"]["kernels"], said["training"]["rows"]) == (230, 13, 2990)
    held_out = said["held_out"]
    for split in ("by problem", "by cluster"):
        assert held_out[split]["mean"] > held_out["baselines"][split]["analytical"]["mean"] > 0.97
    # On what it has seen it is better still, and nothing else changed its mind.
    (judged,) = command("evaluate", journal, "--bundle", bundle)["splits"].values()
    assert judged["learned"]["mean"] > held_out["by problem"]["mean"]
    analytical = held_out["baselines"]["by problem"]["analytical"]["mean"]
    assert judged["analytical"]["mean"] == pytest.approx(analytical, abs=1e-4)


def test_select_takes_the_measured_winner(kernel_set: Path, winners: Path, measured: Times) -> None:
    registry = Registry.of(list(measured[next(iter(measured))])).with_tuned(winners)
    for problem, own in measured.items():
        kernel, us = best(own)
        first = registry.select(problem, ARCH, built=False).best
        assert (first.kernel, first.us) == (kernel, us)
    # In words: for a problem where the estimate is wrong.
    problem = max(measured, key=lambda each: best(measured[each])[1])
    asked = ("select", OP, "--gpu-target", ARCH, "--kernel-set", kernel_set, "--problem", format_problem(problem, None))
    (stage,) = command(*asked, "--tuned", winners)["stages"]
    kernel, us = best(measured[problem])
    assert stage["choices"][0]["kernel"] == kernel.slug
    assert stage["choices"][0]["why"] == f"measured {us:.4g} µs for exactly this problem"


def test_select_asks_the_model(kernel_set: Path, bundle: Path, measured: Times) -> None:
    problem = next(iter(measured))
    asked = ("select", OP, "--gpu-target", ARCH, "--kernel-set", kernel_set, "--problem", format_problem(problem, None))
    (stage,) = command(*asked, "--bundle", bundle)["stages"]
    assert stage["steps"]["learned"] == "bundle: corrects the estimates of 13 of the first 13"
    assert stage["choices"][0]["why"].startswith("bundle predicts ")
