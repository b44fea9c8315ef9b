"""The folder of a new op: its names, its form, and the example that is such a folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tilewright.base.errors import InvalidValueError
from tilewright.cli.app import root
from tilewright.codegen.op_folder import LONGEST_NAME, render_op_folder, write_op_folder

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "rescale"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["new-op", *arguments])


def test_the_example_is_a_new_op_without_changes() -> None:
    files = render_op_folder("rescale")
    found = [path for path in EXAMPLE.rglob("*") if path.suffix in (".j2", ".py", ".toml")]
    assert sorted(path.relative_to(EXAMPLE).as_posix() for path in found) == sorted(files)
    for path, text in files.items():
        assert (EXAMPLE / path).read_text(encoding="utf-8") == text, f"run `tilewright new-op rescale` again for {path}"


@pytest.mark.parametrize("name", ["a", "n" * LONGEST_NAME])
def test_files_are_formatted_whatever_the_name(tmp_path: Path, name: str) -> None:
    write_op_folder(name, tmp_path)
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
    for command in (["check", "--extend-ignore", "I001"], ["format", "--check"]):
        done = subprocess.run([*ruff, *command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_placeholder_is_replaced_everywhere() -> None:
    for path, text in render_op_folder("rms_norm").items():
        assert "OP_NAME" not in path + text


@pytest.mark.parametrize("name", ["", "9x", "rms-norm", "RmsNorm", "naïve", "class", "a b", "_x"])
def test_a_name_that_is_not_an_identifier(name: str) -> None:
    with pytest.raises(InvalidValueError, match=r"cannot be the name of an op: use a Python identifier of lower-case"):
        render_op_folder(name)


def test_a_name_that_is_too_long() -> None:
    with pytest.raises(InvalidValueError, match=rf"has {LONGEST_NAME + 1} characters, at most {LONGEST_NAME}"):
        render_op_folder("n" * (LONGEST_NAME + 1))


def test_the_name_of_an_existing_op(tmp_path: Path) -> None:
    done = run("gemm", "--out", str(tmp_path / "gemm"))
    assert done.exit_code == 2 and "there is an op gemm already" in done.stderr
    assert not (tmp_path / "gemm").exists()


@pytest.mark.usefixtures("plugin")
def test_the_name_of_an_installed_op() -> None:
    with pytest.raises(InvalidValueError, match=r"there is an op scale already. Use a name other than gemm, .*, scale"):
        render_op_folder("scale")


def test_a_folder_with_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = run("rms_norm", "--out", str(tmp_path))
    assert done.exit_code == 2 and f"{tmp_path} exists already, and is not an empty folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_default_folder_has_the_name_of_the_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("rms_norm", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["op"] == found["folder"] == "rms_norm"
    assert sorted(found["files"]) == sorted(
        path.relative_to(tmp_path / "rms_norm").as_posix() for path in tmp_path.rglob("*") if path.is_file()
    )
    assert found["next"][0] == "pip install --editable ./rms_norm"


def test_the_page_shows_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("rms_norm")
    assert done.exit_code == 0, done.stderr
    page = (ROOT / "docs" / "add-an-op.md").read_text(encoding="utf-8")
    assert f"```bash\ntilewright new-op rms_norm\n```\n\n```text\n{done.stdout}```\n" in page


def test_the_folder_in_the_next_commands_is_quoted(tmp_path: Path) -> None:
    done = run("rms_norm", "--out", str(tmp_path / "an op"))
    assert done.exit_code == 0, done.stderr
    assert f"\nNext\npip install --editable '{tmp_path}/an op'\ntilewright rules --op rms_norm\n" in done.stdout
