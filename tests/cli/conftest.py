"""Running commands in this process, as a user would in a terminal without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tilewright.base import knobs
from tilewright.cli.app import root

FIELDS = {
    "variant": "standard",
    "dtype": "fp16",
    "layout": "rcr",
    "block": "128x128x32",
    "waves": "2x2x1",
    "mma": "32x32x16",
    "pipeline": "compv3",
    "scheduler": "intrawave",
    "epilogue": "cshuffle",
}


@pytest.fixture(autouse=True)
def _clean_knobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No knob is set, but for tests that compile with the machine's own toolchain."""
    if request.node.get_closest_marker("compile") is None:
        for knob in knobs.KNOBS:
            monkeypatch.delenv(knob.name, raising=False)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a command; stdout and stderr are apart."""

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(root, list(args), prog_name="tilewright")

    return invoke


@pytest.fixture
def run_json(run: Callable[..., Result]) -> Callable[..., Any]:
    """Run a command with --json; its stdout must be one document and nothing else."""

    def invoke(*args: str, code: int = 0) -> Any:
        result = run(*args, "--json")
        assert (result.exit_code, result.stderr) == (code, "")
        return json.loads(result.stdout)

    return invoke


@pytest.fixture
def settings() -> Callable[..., list[str]]:
    """-s options of a legal config, with some fields changed or (None) left out."""

    def options(**changes: str | None) -> list[str]:
        fields = {**FIELDS, **changes}
        pairs = [f"{name}={value}" for name, value in fields.items() if value is not None]
        return [word for pair in pairs for word in ("-s", pair)]

    return options
