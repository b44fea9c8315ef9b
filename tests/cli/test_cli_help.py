"""Help texts: each has examples, and the examples name commands and options that exist."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import Result

from tilewright import __version__
from tilewright.bench.executor import Limits
from tilewright.bench.timing import TimingSettings
from tilewright.cli.app import root
from tilewright.cli.command import Command, CommandGroup
from tilewright.learn.training_config import TrainingConfig


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


ALL = dict(commands(root, ()))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_help_has_an_example_that_parses(path: tuple[str, ...], run: Callable[..., Result]) -> None:
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert "\nExamples:\n  tilewright " in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    command = ALL[path]
    assert isinstance(command, Command | CommandGroup)
    for example in _lines(command.examples):
        words = shlex.split(example.partition(" | ")[0])
        named = max((p for p in ALL if tuple(words[1 : 1 + len(p)]) == p), key=len)
        assert words[0] == "tilewright"
        assert named[: len(path)] == path
        known = {name for parameter in ALL[named].params for name in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known


def _lines(examples: tuple[str, ...]) -> list[str]:
    return "\n".join(examples).replace("\\\n", "").splitlines()


@pytest.mark.parametrize("path", [p for p, c in ALL.items() if not isinstance(c, CommandGroup)], ids=" ".join)
def test_every_command_has_json(path: tuple[str, ...]) -> None:
    assert "--json" in {name for parameter in ALL[path].params for name in parameter.opts}


@pytest.mark.parametrize("path", [p for p, c in ALL.items() if not isinstance(c, CommandGroup)] + [()], ids=" ".join)
def test_every_command_has_quiet_and_verbose(path: tuple[str, ...]) -> None:
    names = {name for parameter in ALL[path].params for name in parameter.opts}
    assert {"-q", "--quiet", "-v", "--verbose"} <= names


@pytest.mark.parametrize(
    "path", [path for path, command in ALL.items() if isinstance(command, CommandGroup)], ids=" ".join
)
def test_short_descriptions_are_not_cut(
    path: tuple[str, ...], run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in run(*path, "--help").stdout.replace("[ARGS]...", "")


def test_printed_defaults_are_those_of_the_library() -> None:
    """These options have no default of their own, so that the library can tell whether they were given."""
    settings, limits, recipe = TimingSettings(), Limits(), TrainingConfig()
    expected = {
        "sweep": {
            "runs": settings.least_runs,
            "max_runs": settings.max_runs,
            "run_ms": settings.least_ms,
            "warmup_ms": settings.least_warmup_ms,
            "max_warmup_ms": settings.max_warmup_ms,
            "time_limit": limits.seconds,
            "reference_limit": limits.reference_s,
        },
        "train": {"rounds": recipe.rounds, "seeds": len(recipe.seeds), "threads": recipe.threads, "kind": recipe.kind},
    }
    for name, values in expected.items():
        command = ALL[(name,)]
        options = {p.name: p for p in command.params if isinstance(p, click.Option)}
        for option, value in values.items():
            shown = options[option].get_help_extra(click.Context(command))["default"]
            assert shown == (value if isinstance(value, str) else f"{value:g}"), option


def test_help_prints_defaults(run: Callable[..., Result]) -> None:
    shown = " ".join(run("sweep", "--help").stdout.split())
    assert "Minimum number of samples (GPUs only). [default: 20; x>=1]" in shown
    assert "or 20." not in shown and "without it" not in shown


def test_version(run: Callable[..., Result]) -> None:
    for option in ("--version", "-V"):
        assert run(option).stdout == f"tilewright, version {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, tilewright.cli\n"
        "heavy = ('rich', 'jinja2', 'pydantic', 'tilewright.ops', 'tilewright.building')\n"
        "assert not [m for m in heavy if m in sys.modules]\n"
        "sys.argv = ['tilewright', '--help']\n"
        "try:\n"
        "    tilewright.cli.main()\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_group_alone_shows_its_help(run: Callable[..., Result]) -> None:
    result = run("arch")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "tilewright arch list" in result.stderr
