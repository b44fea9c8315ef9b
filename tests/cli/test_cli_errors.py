"""Failures: one message on stderr, an exit code, the nearest known name, never a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tilewright.base.errors import CompileError
from tilewright.cli import app

PROGRAM = [sys.executable, "-m", "tilewright"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["spaces"], "unknown command 'spaces'. Did you mean 'space'?"),
        (["arch", "lst"], "unknown command 'lst'. Did you mean 'list'?"),
        (["arch", "show", "gfx924"], "unknown arch 'gfx924'. Did you mean 'gfx942'?"),
        (["rules", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
        (["rules", "R410"], "unknown rule 'R410'. Did you mean 'R401'?"),
        (["rules", "lds-overflw"], "unknown rule 'lds-overflw'. Did you mean 'lds-overflow'?"),
        (["rules", "--op", "gem"], "unknown op 'gem'. Did you mean 'gemm'?"),
        (["sets", "fp16_rcr_al"], "unknown preselected set 'fp16_rcr_al'. Did you mean 'fp16_rcr_all'?"),
        (["sets", "gemm"], "gemm is an op, not a set. List its sets with: tilewright sets --op gemm"),
        (["check", "gem", "--arch", "gfx942"], "unknown op, set or kernel 'gem'. Did you mean 'gemm'?"),
        (["check", "gemm"], "no GPU is given for gemm: use --gpu GPU."),
        (["check", "gemm", "--arch", "gfx942", "-s", "blocks=1x1x1"], "Did you mean 'block'?"),
        (["check", "gemm", "--arch", "gfx942", "-s", "block"], "-s takes FIELD=VALUE, got 'block'"),
        (["check", "gemm", "--gpu", "gfx942", "-s", "block=128,128,32"], "block must look like 128x128x32, got "),
        (["arch", "check", "none.toml"], "File 'none.toml' does not exist."),
    ],
)
def test_a_mistake_is_one_message(args: list[str], message: str, run: Callable[..., Result]) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"pipeline": "compv33"}, "unknown pipeline 'compv33'. Did you mean 'compv3'?"),
        ({"dtype": "fp61"}, "unknown dtype 'fp61'."),
        ({"block": "128x128"}, "block needs three numbers"),
        ({"dtype_a": "fp16"}, "dtype_a is given twice, once through a shorthand"),
    ],
)
def test_a_value_that_no_field_takes(
    setting: dict[str, str], message: str, run: Callable[..., Result], settings: Callable[..., list[str]]
) -> None:
    result = run("check", "gemm", "--arch", "gfx942", *settings(**setting))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_missing_fields_are_all_listed_with_what_they_take(
    run: Callable[..., Result], settings: Callable[..., list[str]]
) -> None:
    options = settings(layout=None, epilogue=None, dtype=None)
    for command in ("check", "inspect"):
        result = run(command, "gemm", "--arch", "gfx942", *options)
        assert result.exit_code == 2
        assert "gemm needs 6 more fields" in result.stderr
        assert "  layout     rcr, rrr, crr, ccr\n" in result.stderr
        assert "dtype=… sets dtype_a, dtype_b, dtype_acc, dtype_c together." in result.stderr


def test_a_refused_source_shows_the_head_of_the_log(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]
) -> None:
    def refuse(self: object, ctx: object) -> None:
        raise CompileError("it does not compile", "\n".join(f"line {i}" for i in range(100)))

    monkeypatch.setattr(app.CommandGroup, "invoke", refuse)
    result = run("knobs")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: it does not compile\nline 0\n")
    assert result.stderr.endswith("line 19\n… and 80 more lines\n")


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of texts that click colours; rich looks at the variable itself."""
    commands = (["arch", "show", "gfx942"], ["arch", "show", "gfx924"])
    for command in commands:
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert "\x1b[" in CliRunner().invoke(app.root, command, color=True).output
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b[" not in CliRunner().invoke(app.root, command, color=True).output


def test_a_folder_that_cannot_be_made(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = str(tmp_path / "file" / "kernels")
    result = run("generate", "gemm", "--output-dir", target, "--gpu-target", "gfx942")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert f"{tmp_path / 'file'} is a file. Name a folder." in " ".join(result.stderr.split())


def test_a_closed_pipe_is_silent() -> None:
    command = subprocess.list2cmdline([*PROGRAM, "rules", "--json"])
    done = subprocess.run(f"{command} | head -c 1", shell=True, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[", "")


def test_ctrl_c_is_one_line_and_130(settings: Callable[..., list[str]]) -> None:
    stars = dict.fromkeys(("variant", "layout", "block", "waves", "mma", "pipeline", "epilogue"), "*")
    options = settings(**stars, elementwise="*", num_d="*", dtype="fp16,bf16")
    args = [*PROGRAM, "space", "gemm", "--arch", "gfx942", *options]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    # On a slow machine a progress line may come first.
    lines = [line for line in err.splitlines() if not line.startswith("counting on gfx942: ")]
    assert (process.returncode, out, lines) == (130, "", ["interrupted"])
