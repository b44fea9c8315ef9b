"""KERNELS: an op, a set, a file, a kernel's name, its digest or the beginning of a digest, in every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import tilewright as tw
from tilewright.base.errors import InvalidValueError, UnknownValueError
from tilewright.cli import named_kernels
from tilewright.cli.named_kernels import resolve_subject
from tilewright.registry import kernel_names
from tilewright.registry.kernel_names import find_by_digest

SET = "fp16_rcr_essential"
CONV_SET = "backward_data_small"
KERNEL = next(tw.gemm.OP.sets()[SET].kernels("gfx942"))
OTHER = next(tw.gemm.OP.sets()["bf16_rcr_essential"].kernels("gfx950"))


@pytest.fixture(autouse=True)
def _empty_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def set_file(tmp_path: Path) -> str:
    path = tmp_path / "mine.toml"
    source = Path(tw.gemm.__file__).parent / "preselected" / f"{SET}.toml"
    path.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    return str(path)


def test_the_meaning_of_an_argument(set_file: str) -> None:
    assert resolve_subject("gemm").is_op
    for text in (SET, set_file):
        named = resolve_subject(text)
        assert named.kernel_set is not None and len(list(named.list_kernels((), "gfx942"))) == 10
    start = KERNEL.slug.partition("-rcr-")[0]
    for text in (KERNEL.slug, KERNEL.digest, KERNEL.digest[:8], f"{start}-…-{KERNEL.digest}", f"...{KERNEL.digest}"):
        assert resolve_subject(text).kernel == KERNEL
    with pytest.raises(UnknownValueError, match=r"unknown op, set or kernel 'fp16_rcr_esential'\. Did you mean"):
        resolve_subject("fp16_rcr_esential")
    with pytest.raises(UnknownValueError, match="unknown op, set or kernel 'e5782'"):
        resolve_subject("e5782")  # too short for a digest


def test_every_command_takes_them(
    run: Callable[..., Result], run_json: Callable[..., Any], set_file: str, tmp_path: Path
) -> None:
    gpu, out = ("--gpu", "gfx942"), ("--out", str(tmp_path / "out"))
    device = ("--device", "emulated:gfx942")
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("m,n,k\n256,256,256\n")
    for text, count in ((SET, 10), (set_file, 10), (KERNEL.slug, 1), (KERNEL.digest, 1), (KERNEL.digest[:7], 1)):
        assert len(run_json("generate", text, *gpu, *out, "--dry-run")["kernels"]) == count
        assert run_json("select", text, *gpu, "--problem", "m=256,n=256,k=256")["stages"]
        swept = run_json("sweep", text, "--problem", "m=256,n=256,k=256", *device, *out, "--dry-run")
        assert swept["tasks"] == count
        chosen = run_json("portfolio", text, *gpu, "--problems", str(shapes), "--keep", "1")
        assert chosen["kernels"] == count
        # Before anything is built: the size is wrong.
        for command in ("verify", "bench"):
            assert "m is 0" in run(command, text, "--problem", "m=0,n=1,k=1", *device).stderr
    for text in (KERNEL.slug, KERNEL.digest):
        assert run_json("check", text)["kernel"] == KERNEL.slug
        assert run_json("inspect", text, "--source")["name"] == KERNEL.slug
    assert run_json("space", SET, *gpu)["archs"][0]["kernels"] == 10


def test_settings_change_a_named_kernel(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    words = ("--out", "out", "--dry-run")
    (changed,) = run_json("generate", KERNEL.digest, "-s", "block=128x128x64", *words)["kernels"]
    assert "-b128x128x64-" in changed and "-b256x256x64-" in KERNEL.slug
    result = run("generate", KERNEL.digest, "-s", "block=7x7x7", *words)
    assert result.exit_code == 2
    assert "is illegal: " in result.stderr and "`tilewright check gemm-gfx942-" in result.stderr


def test_a_kernel_name_gives_the_gpu(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    words = ("--out", "out", "--dry-run")
    assert run_json("generate", OTHER.digest, *words)["kernels"] == [OTHER.slug]
    result = run("generate", OTHER.digest, "--gpu", "gfx942", *words)
    assert f"{OTHER.slug} is a kernel for gfx950, but the GPU is gfx942" in result.stderr
    assert run_json("generate", OTHER.digest, KERNEL.digest, *words)["kernels"] == sorted([OTHER.slug, KERNEL.slug])
    result = run("select", OTHER.digest, KERNEL.digest, "--problem", "m=64,n=64,k=64")
    assert "the kernels are for gfx950 and gfx942: name kernels for one GPU" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gemm", SET], "gemm is an op: give it alone, or only names of its sets and kernels"),
        ([SET, "fmha"], "fmha is an op: give it alone, or only names of its sets and kernels"),
        ([SET, CONV_SET, "-s", "pad_m=true"], "the kernels are of gemm and grouped_conv, but -s is for kernels of one"),
        ([SET, "--set", SET], f"{SET} and --preselected both name kernels: give one of them"),
        (["gemm"], "no GPU is given for gemm: use --gpu GPU. Known: gfx908,"),
    ],
)
def test_contradictions(args: list[str], message: str, run: Callable[..., Result]) -> None:
    result = run("build", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_check_takes_one_kernel(run: Callable[..., Result]) -> None:
    result = run("check", SET)
    assert f"{SET} is a set of kernels, and this command takes one kernel." in result.stderr


def test_digests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"no known kernel has a digest that begins with 0123456789ab\."):
        find_by_digest("0123456789ab")
    names = [f"gemm-gfx942-a-abcdef{number:06}" for number in range(12)]
    monkeypatch.setattr(kernel_names, "_list_built_names", lambda: iter(names))
    with pytest.raises(
        InvalidValueError, match=r"12 kernels have digests that begin with abcdef\. Write more"
    ) as caught:
        find_by_digest("abcdef")
    assert f"\n  {names[0]}\n" in str(caught.value) and str(caught.value).endswith("  … and 2 more")


def test_built_kernels_are_known(monkeypatch: pytest.MonkeyPatch, settings: Callable[..., list[str]]) -> None:
    """The example of the help texts is in no set."""
    name = named_kernels.resolve_kernel("gemm", "gfx942", settings()[1::2]).slug
    digest = name.rpartition("-")[2]
    with pytest.raises(InvalidValueError):
        find_by_digest(digest)
    monkeypatch.setattr(kernel_names, "_list_built_names", lambda: iter([name]))
    assert find_by_digest(digest).slug == name
