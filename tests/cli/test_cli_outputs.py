"""Every option that names an output is checked before any work is done, whatever the command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from tilewright.cli.app import root
from tilewright.cli.output_paths import OutputFile, OutputFolder
from tilewright.learn.plots import SUFFIXES

NAMES = ("--out", "--report", "--plot", "--trace", "--disassembly")


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*words, name))
        else:
            yield (*words, name), found


OUTPUTS = [
    pytest.param(option, id=" ".join((*words, option.opts[0])))
    for words, command in commands(root)
    for option in command.params
    if option.opts[0] in NAMES
]


def test_all_outputs_are_known() -> None:
    """Paths that need not exist are outputs, but for two: tune's journal may be new, and wrap tells of its folder."""
    odd = {
        f"{' '.join(words)} {option.opts[0]}"
        for words, command in commands(root)
        for option in command.params
        if type(option.type) is click.Path and not option.type.exists
    }
    assert odd == {"toolchain fetch-ck --folder", "tune sources", "wrap --kernel-dir"}
    assert len(OUTPUTS) >= 15


@pytest.mark.parametrize("option", OUTPUTS)
def test_a_place_that_cannot_be_written_is_refused_at_once(option: click.Parameter) -> None:
    kind = option.type
    assert isinstance(kind, OutputFile | OutputFolder)
    suffix = kind.suffixes[0] if isinstance(kind, OutputFile) and kind.suffixes else ""
    for place in (f"/proc/x1{suffix}", f"/proc/x1/y{suffix}"):
        message = f"^{place} cannot be written: No such file or directory. Use a path"
        with pytest.raises(click.BadParameter, match=message):
            kind.convert(place, option, None)


@pytest.mark.parametrize("option", OUTPUTS)
def test_a_format_that_the_command_cannot_write_is_refused(option: click.Parameter, tmp_path: Path) -> None:
    if isinstance(option.type, OutputFile) and option.type.suffixes:
        with pytest.raises(click.BadParameter, match=r"x\.doc ends in '\.doc'\. Can be written: \."):
            option.type.convert(str(tmp_path / "x.doc"), option, None)
        with pytest.raises(click.BadParameter, match="ends in 'nothing'"):
            option.type.convert(str(tmp_path / "x"), option, None)


def test_plots_are_of_the_formats_that_are_drawn() -> None:
    (plot,) = (each.values[0] for each in OUTPUTS if each.id == "portfolio --plot")
    assert plot.type.suffixes == tuple(SUFFIXES)


def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("old")
    (tmp_path / "folder").mkdir()
    assert OutputFile(".html").convert(str(tmp_path / "page.html"), None, None) == tmp_path / "page.html"
    assert OutputFolder().convert(str(tmp_path / "folder"), None, None) == tmp_path / "folder"
    assert OutputFolder().convert(str(tmp_path / "new" / "deeper"), None, None) == tmp_path / "new" / "deeper"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "page.html"]
    assert (tmp_path / "page.html").read_text() == "old"
    assert OutputFile().convert("/dev/null", None, None) == Path("/dev/null")
    assert OutputFile(stdout=True).convert("-", None, None) == Path("-")


def test_files_and_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "x.html").mkdir()
    with pytest.raises(click.BadParameter, match="is a folder"):
        OutputFile(".html").convert(str(tmp_path / "x.html"), None, None)
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(click.BadParameter, match=r"file is a file\. Name a folder"):
            OutputFolder().convert(str(place), None, None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(click.BadParameter, match="Permission denied"):
        OutputFile().convert(str(tmp_path / "x"), None, None)


def test_reports_of_a_user(run: Callable[..., Result], tmp_path: Path) -> None:
    """The journal is empty: that would be told if it were read before the output is looked at."""
    for out, said in (("/nonexist/p.html", "/nonexist/p.html cannot be written"), ("x.pdf", "Can be written: .html")):
        done = run("report", str(tmp_path), "--out", out)
        assert done.exit_code == 2 and said in done.stderr and "no results" not in done.stderr
    done = run("sweep", "nothing", "--problem", "m=1", "--device", "nowhere", "--out", "/proc/x1")
    assert done.exit_code == 2 and "/proc/x1 cannot be written: No such file" in done.stderr
    assert "Free disk space" not in done.stderr and ".sweep.json" not in done.stderr
