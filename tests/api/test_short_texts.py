"""Values at a prompt and in a notebook, and the progress of calls: short, and nothing is lost."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.base import events, user_progress
from tilewright.base.short_text import cut, format_html_table, format_text_table
from tilewright.base.user_progress import UserProgress, report_progress
from tilewright.building.builder import BuildResult
from tilewright.building.store.artifact import Artifact, Failure, FileDigest

# About three lines of a terminal.
LONGEST = 400
KERNELS = tuple(tw.sets()["fp16_rcr_essential"].kernels("gfx942"))
PROBLEM = tw.gemm.Problem(m=512, n=512, k=512, dtype="fp16", layout="rcr")


def artifact(number: int) -> Artifact:
    facts = {"slug": KERNELS[number].slug, "commands": "clang " * 5000}
    return Artifact(f"{number:032x}", Path("/store"), {"kernel.so": FileDigest(12345, "0" * 32)}, facts)


def registry() -> tw.Registry:
    failure = Failure("f" * 32, "a long log\n" * 1000, {"slug": KERNELS[9].slug, "errors": ["error: " + "x" * 900]})
    return tw.Registry(KERNELS, {KERNELS[0]: artifact(0), KERNELS[1]: artifact(1), KERNELS[9]: failure})


@pytest.mark.parametrize(
    "value",
    [
        registry(),
        registry().results[KERNELS[0]],
        registry().results[KERNELS[9]],
        KERNELS[0],
        tw.gemm.space(variant="*", dtype=["fp16", "bf16"], block={"m": [64, 128], "n": [64, 128, 256], "k": [32, 64]}),
        tw.sets()["fp16_rcr_all"],
        registry().select(PROBLEM, "gfx942", built=False),
        BuildResult(registry().results, 2, (), {}, 1.0, 12.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_short_at_a_prompt(value: object) -> None:
    assert repr(value).startswith(f"{type(value).__name__}(")
    assert len(repr(value)) <= LONGEST


def test_a_registry_tells_its_counts() -> None:
    assert repr(registry()) == "Registry(10 gemm kernels for gfx942: 2 built, 1 failed, 7 not built)"
    assert repr(tw.Registry(())) == "Registry(0 kernels)"
    assert repr(BuildResult({}, 0, (), {}, 0.0, 0.5)) == "BuildResult(no kernels; 0 compiled here, in 0.5 s)"


def test_a_registry_in_a_notebook() -> None:
    page = registry()._repr_html_()
    assert page.count("<tr>") == 11
    assert f"<td>{KERNELS[0].slug}</td><td>gemm</td><td>gfx942</td><td>built</td>" in page
    assert "<caption>Registry: 10 gemm kernels" in page


def test_tables_of_text_and_html() -> None:
    rows = [(f"kernel {i}", 1.23456, None) for i in range(25)]
    text = format_text_table(("name", "µs", "note"), rows).splitlines()
    assert text[:2] == ["name       µs     note", "kernel 0   1.235"]
    assert (len(text), text[-1]) == (22, "… and 5 more")
    assert "<td>&lt;b&gt;</td>" in format_html_table("", ("x",), [("<b>",)])
    assert format_text_table(("a", "b"), []) == "a  b"
    assert cut("abc", 3) == "abc" and cut("abcd", 3) == "ab…"


def work(seconds: list[float]) -> None:
    """A task of three steps, on a clock that the test moves."""
    with events.report_task("build", 3) as advance:
        for name in ("a", "b", "c"):
            seconds[0] += 40.0
            events.emit(events.Working("build", (name,), 80.0))
            advance(name)
    events.emit(events.Notice("the disk is nearly full"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [0.0]
    monkeypatch.setattr(user_progress.time, "monotonic", lambda: seconds[0])
    return seconds


def test_progress_is_logged(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tilewright"):
        report_progress(work)(clock)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "build 0 of 3 · about 80 s left · a"),
        ("INFO", "build 1 of 3 · about 80 s left · b"),
        ("INFO", "build 2 of 3 · about 80 s left · c"),
        ("INFO", "build: 3 of 3, finished after 120.0 s"),
        ("WARNING", "the disk is nearly full"),
    ]


def test_progress_in_a_terminal_is_one_line_that_is_removed(clock: list[float]) -> None:
    screen = io.StringIO()
    shown = UserProgress(screen)
    with events.add_listener(shown):
        work(clock)
    shown.close()
    written = screen.getvalue()
    assert "\rbuild 1 of 3 · about 80 s left · b" in written
    assert "\n" not in written and written.endswith("\r")


def test_short_work_shows_nothing(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    screen = io.StringIO()
    listening = events.add_listener(UserProgress(screen))
    with caplog.at_level(logging.INFO, "tilewright"), listening, events.report_task("keys", 2) as advance:
        advance()
    assert not screen.getvalue() and not caplog.records


def test_a_listener_of_the_program_replaces_the_lines(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    heard: list[events.Event] = []
    with caplog.at_level(logging.DEBUG, "tilewright"), events.add_listener(heard.append):
        report_progress(work)(clock)
    assert len(heard) == 9 and not caplog.records


def test_public_functions_report_their_progress() -> None:
    """They are decorated, and keep their signatures for editors and the reference."""
    for function in (tw.build, tw.sweep, tw.tune, tw.measure, tw.pack):
        assert function.__wrapped__.__name__ == function.__name__
