"""Progress: on terminals only, and only for what takes time."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tilewright.base.events import Detail, Event, Notice, Working, add_listener, emit, report_task
from tilewright.building.graph import write_graph
from tilewright.cli import progress as module
from tilewright.cli.command import Command
from tilewright.cli.progress import report_progress
from tilewright.cli.verbosity import print_remark


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def watched(patience: float) -> Iterator[Terminal]:
    """A terminal in the place of stderr, and a display that waits this long."""
    shown = Terminal()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(shown):
        patch.setenv("TERM", "xterm")
        patch.setattr(module, "PATIENCE_S", patience)
        yield shown


def _work(seconds: float, *, as_json: bool = False) -> None:
    with report_progress(as_json=as_json), report_task("weaving", 2) as advance:
        advance("one")
        time.sleep(seconds)


def test_long_work_is_shown() -> None:
    with watched(0.01) as terminal:
        _work(0.3)
    assert "weaving" in terminal.getvalue()
    assert "1/2" in terminal.getvalue()


@pytest.mark.parametrize("columns", [80, 120])
def test_a_long_name_leaves_the_bar_and_the_count(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took the whole line once: the kernel's name is cut instead."""
    monkeypatch.setenv("COLUMNS", str(columns))
    with watched(0.01) as terminal, report_progress(), report_task("build", 8) as advance:
        advance("one")
        emit(Working("build", ("gemm-gfx942-" + "x" * 150,), 6.0))
        time.sleep(0.3)
    shown = terminal.getvalue()
    assert "build" in shown and "1/8" in shown and "about 6 s left" in shown
    assert "━" in shown and "…" in shown


def test_short_work_is_not() -> None:
    with watched(60) as terminal:
        _work(0)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_with_json() -> None:
    with watched(0) as terminal:
        _work(0.1, as_json=True)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _work(module.PATIENCE_S + 0.2)
    assert capsys.readouterr() == ("", "")


@click.command(cls=Command)
def _command() -> None:
    with report_progress(lines=True), report_task("weaving", 2) as advance:
        advance("one")
        emit(Notice("a thread is loose"))
        emit(Detail("clang++ -c weave.cpp"))
    print_remark("nothing was cut")
    click.echo("done")


def test_quiet_leaves_results_only() -> None:
    for words in (["-q"], ["--quiet"]):
        result = CliRunner().invoke(_command, words)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "done\n", "")
    assert CliRunner().invoke(_command, []).stderr == "note: a thread is loose\nnothing was cut\n"


def test_verbose_prints_every_event() -> None:
    result = CliRunner().invoke(_command, ["-v"])
    lines = [line.partition(" s  ")[2] or line for line in result.stderr.splitlines()]
    assert lines[:4] == [
        "weaving: started, 2 steps",
        "weaving: 1 of 2 one",
        "note: a thread is loose",
        "clang++ -c weave.cpp",
    ]
    assert lines[4].startswith("weaving: finished after 0.") and lines[5:] == ["nothing was cut"]
    with watched(0) as terminal:
        CliRunner().invoke(_command, ["-v"])
    assert terminal.getvalue() == ""  # no bars


def test_they_may_stand_before_the_command(run: Callable[..., Result]) -> None:
    args = ("generate", "fp16_rcr_essential", "--gpu", "gfx942", "--out", "x", "--dry-run")
    assert "nothing written" in run(*args).stderr
    assert run("-q", *args).stderr == run(*args, "-q").stderr == ""
    assert "choosing kernels: started" in run("-v", *args).stderr
    result = run("-q", *args, "-v")
    assert (result.exit_code, "exclude each other" in result.stderr) == (2, True)


def test_a_failure_takes_the_display_away() -> None:
    with (
        watched(0.01) as terminal,
        pytest.raises(ValueError, match="torn"),
        report_progress(),
        report_task("weaving"),
    ):
        time.sleep(0.2)
        raise ValueError("torn")
    shown = terminal.getvalue()
    assert "weaving" in shown
    time.sleep(0.2)
    assert terminal.getvalue() == shown


def test_the_commands_of_compilers_are_details(tmp_path: Path) -> None:
    """-v prints them before ninja starts."""
    unit: Any = SimpleNamespace(key="0" * 32, texts=dict, kernel=SimpleNamespace(slug="gemm-1"))
    work: Any = SimpleNamespace(unit=unit, make_command=lambda step: ("clang++", f"a {step}"))
    seen: list[Event] = []
    with add_listener(seen.append):
        write_graph([work], tmp_path, preload=None, limit_s=60)
    assert Detail("gemm-1, device: clang++ 'a device'") in seen
    assert len(seen) == 3
