"""Progress in a log: a line now and then, with what is done, what failed and how long it will take."""

from __future__ import annotations

import importlib
import inspect
import time

import pytest

from tilewright.base import events
from tilewright.cli.progress import LongTaskLines, ProgressLines


def test_a_line_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines(every_s=0)
    with events.add_listener(lines), events.report_task("sweep", 1000) as advance:
        for _ in range(120):
            advance()
        events.emit(events.Working("sweep", ("3 failed · 40.0/s",), 22.0))
    assert capsys.readouterr().err == "sweep: 120 of 1,000 · about 22 s left · 3 failed · 40.0/s\n"


def test_steps_are_counted_if_a_task_reports_no_remaining_time(capsys: pytest.CaptureFixture[str]) -> None:
    with events.add_listener(ProgressLines(every_s=0, steps=True)), events.report_task("kernels", 2) as advance:
        advance("gemm-1")
        events.emit(events.Working("kernels", ("gemm-2",), 5.0))
        advance("gemm-2")  # the task reports what it works on, so its steps are not printed
    assert capsys.readouterr().err == "kernels: 1 of 2 · gemm-1\nkernels: 1 of 2 · about 5 s left · gemm-2\n"
    with events.add_listener(ProgressLines(every_s=0)), events.report_task("kernels", 2) as advance:
        advance("gemm-1")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["build", "generate", "inspect", "verify", "bench"])
def test_commands_that_take_long_count_steps(name: str) -> None:
    """In a log they would be silent until they end."""
    module = importlib.import_module(f"tilewright.cli.{name}")
    assert "steps=True" in inspect.getsource(module)


def test_lines_are_rare_and_notices_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines(every_s=3600)
    with events.add_listener(lines), events.report_task("sweep", 10):
        events.emit(events.Working("sweep", ("1.0/s",), None))
        events.emit(events.Notice("the disk is full"))
    assert capsys.readouterr().err.strip().endswith("the disk is full")


def test_long_work_without_progress_says_that_it_is_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LongTaskLines(after_s=0.05, every_s=0.05)
    said = ""
    with events.add_listener(lines), events.report_task("counting on gfx942"):
        limit = time.monotonic() + 20
        while said.count("\n") < 2 and time.monotonic() < limit:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert said.startswith("counting on gfx942: under way for 1 s\ncounting on gfx942: under way for ")


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with events.add_listener(LongTaskLines(after_s=3600)), events.report_task("counting on gfx942"):
        pass
    assert capsys.readouterr().err == ""
