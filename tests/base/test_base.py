"""Errors, knobs, events and digests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base import errors, events, knobs
from tilewright.base.digest import digest_tree, digest_value, to_canonical_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_an_unknown_value_names_the_nearest_and_lists_all() -> None:
    with pytest.raises(errors.UnknownValueError) as caught:
        errors.choose("pipeline", "compv33", ("mem", "compv3"))

    assert str(caught.value) == "unknown pipeline 'compv33'. Did you mean 'compv3'? Known: mem, compv3."


def test_an_unknown_value_far_from_all_gets_no_guess() -> None:
    with pytest.raises(errors.UnknownValueError, match=r"unknown op 'zzzz'\. Known: gemm"):
        errors.choose("op", "zzzz", ("gemm",))


def test_a_long_list_is_cut_to_similar_names() -> None:
    known = [f"option-{number}" for number in range(60)]
    with pytest.raises(errors.UnknownValueError) as caught:
        errors.choose("option", "option-07", known)
    assert "Did you mean 'option-7'?" in str(caught.value)
    assert str(caught.value).count("option-") == 14 and str(caught.value).endswith(" … and 48 more.")
    assert caught.value.known == tuple(known)


def test_a_name_without_similar_ones_is_not_corrected() -> None:
    assert errors.find_nearest_name("tile", ["epilogue", "layout"]) is None
    assert errors.find_nearest_name("layuot", ["epilogue", "layout"]) == "layout"


def test_a_file_error_lists_every_problem() -> None:
    error = errors.FileFormatError("x.toml", [errors.FileProblem("a.b", "missing"), errors.FileProblem("", "bad")])

    assert str(error) == "x.toml: 2 problems\n  a.b: missing\n  bad"


def test_all_errors_are_of_one_tree() -> None:
    made = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    assert made
    assert all(issubclass(e, errors.TilewrightError) for e in made)
    drawn = errors.__doc__ or ""
    assert all(e.__name__ in drawn for e in made)


def test_a_knob_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_JOBS", raising=False)
    assert knobs.JOBS.get() is None
    monkeypatch.setenv("TILEWRIGHT_JOBS", "3")
    assert knobs.job_count() == 3


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " "])
def test_a_knob_that_cannot_be_used_names_itself(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TILEWRIGHT_JOBS", text)
    with pytest.raises(errors.KnobError, match="TILEWRIGHT_JOBS="):
        knobs.JOBS.get()


def test_every_knob_is_listed_and_documented() -> None:
    declared = {v for v in vars(knobs).values() if isinstance(v, knobs.Knob)}
    assert declared == set(knobs.KNOBS)
    assert all(len(knob.doc) > 30 for knob in knobs.KNOBS)


def test_only_knobs_read_the_environment() -> None:
    source = Path(knobs.__file__).parents[1]
    readers = [p for p in source.rglob("*.py") if "os.environ" in p.read_text() or "getenv" in p.read_text()]
    assert [p.relative_to(source).as_posix() for p in readers] == ["base/knobs.py"]


def test_events_reach_the_listeners_of_their_context_only() -> None:
    seen: list[events.Event] = []
    with events.add_listener(seen.append), events.report_task("t", 2) as advance:
        advance("one")
        advance()
    events.emit(events.Finished("unheard"))

    assert seen == [
        events.Started("t", 2),
        events.Advanced("t", 1, "one"),
        events.Advanced("t", 1, ""),
        events.Finished("t"),
    ]


@given(JSON)
def test_canonical_json_is_stable_under_reordering(value: object) -> None:
    again = json.loads(to_canonical_json(value))
    assert again == value
    assert digest_value(again) == digest_value(value)


def test_a_tree_digest_sees_names_and_contents_but_not_place_or_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "x.h").write_text("1")
    first = digest_tree(tmp_path / "a")
    assert digest_tree(tmp_path / "b") == first
    (tmp_path / "b" / "sub" / "x.h").write_text("2")
    assert digest_tree(tmp_path / "b") != first
    (tmp_path / "a" / "sub" / "x.h").rename(tmp_path / "a" / "sub" / "y.h")
    assert digest_tree(tmp_path / "a") != first


EXTRAS = ("numpy", "ml_dtypes", "elftools", "pyarrow", "duckdb", "lightgbm", "matplotlib", "ray", "torch")


def test_importing_the_package_is_fast_and_loads_no_extra() -> None:
    """Under 0.3 s beyond starting Python; nothing heavy until it is used."""
    program = (
        "import sys, time; t = time.perf_counter(); import tilewright; s = time.perf_counter() - t;"
        "print(s); print(*[m.split('.')[0] for m in sys.modules])"
    )
    fastest = 9.0
    for _ in range(5):
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        seconds, modules = out.splitlines()
        fastest = min(fastest, float(seconds))
    assert fastest < 0.3
    heavy = {*EXTRAS, "pydantic", "jinja2", "rich", "click"}
    assert not heavy & set(modules.split())


def test_checking_a_kernel_on_a_shipped_gpu_needs_no_pydantic() -> None:
    """It takes a third of the time to import all ops. Tests check the shipped GPU files."""
    program = (
        "import sys, tilewright as tw; from tilewright.ops import OPS;"
        "print(len([op.rules for op in OPS]), tw.arch.load('gfx942').name, 'pydantic' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.split()[1:] == ["gfx942", "False"]


def test_the_working_part_of_the_package_loads_no_extra_either() -> None:
    program = (
        "import sys, tilewright as tw; tw.gemm.space(dtype='fp16', layout='rcr', block='128x128x32').count('gfx942');"
        "tw.render; print(*[m.split('.')[0] for m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {*EXTRAS, "rich", "click"} & set(out.split())


def test_the_public_names_are_all_there() -> None:
    import tilewright as tw

    assert sorted(tw.__all__) == dir(tw)
    assert all(getattr(tw, name) is not None for name in tw.__all__)
    with pytest.raises(AttributeError, match="gemm"):
        tw.gem  # noqa: B018


def test_every_test_file_is_collected(pytestconfig: pytest.Config) -> None:
    """pytest skips folders with some names, such as `build` and `dist`."""
    skipped = set(pytestconfig.getini("norecursedirs"))
    folders = {path.parent.name for path in Path(__file__).parents[1].rglob("test_*.py")}
    assert not folders & skipped
