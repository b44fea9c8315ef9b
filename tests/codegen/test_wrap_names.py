"""From headers to wrappers: names, patterns, and the GPU they are compiled for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wrap_stand_ins import UNKNOWN, headers

from tilewright.base.errors import FileFormatError, InvalidValueError
from tilewright.codegen.folder import generate_sources
from tilewright.codegen.render import read_support_files
from tilewright.codegen.wrappers import KernelFolder, choose_gpus, find_wrappers, make_wrapper, read_kernel_folder
from tilewright.ops import find_op

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
ODD = ["a b.hpp", "1st.hpp", "-x.hpp", ".hidden.hpp", "é.hpp", "a$b.hpp", "a'b.hpp", "x" * 240 + ".hpp", "a/b.hpp"]


def test_a_plain_header_keeps_its_name() -> None:
    wrapper = make_wrapper("gemm-gfx942-b64x64x32.hpp")
    assert wrapper.file == "gemm-gfx942-b64x64x32.cpp"
    assert '#include "gemm-gfx942-b64x64x32.hpp"\n' in wrapper.render_text()
    assert wrapper.marker.startswith("tilewright_wrapped_gemm_gfx942_b64x64x32_")
    assert wrapper.render_text().count(wrapper.marker) == 2


@pytest.mark.parametrize("header", ODD)
def test_an_odd_header_gets_a_plain_name(header: str) -> None:
    wrapper = make_wrapper(header)
    assert PLAIN.fullmatch(wrapper.name)
    assert IDENTIFIER.fullmatch(wrapper.marker)
    assert len(f"{wrapper.name}.gfx942.co.d") < 255
    assert f'#include "{header}"\n' in wrapper.render_text()


@given(st.sets(st.text("ab-_. $é1/A", min_size=1, max_size=4), min_size=2, max_size=8))
def test_different_headers_never_share_a_name_or_a_symbol(names: set[str]) -> None:
    wrappers = [make_wrapper(f"{name}.hpp") for name in names]
    assert len({w.name for w in wrappers}) == len(names)
    assert len({w.marker for w in wrappers}) == len(names)


@pytest.mark.parametrize("name", ["a-b.hpp", "a_b.hpp", "a.b.hpp", "a.h", "a.hpp", "A.hpp"])
def test_a_name_does_not_depend_on_the_other_headers(name: str, tmp_path: Path) -> None:
    all_names = ["a-b.hpp", "a_b.hpp", "a.b.hpp", "a.h", "a.hpp", "A.hpp"]
    alone = find_wrappers(headers(tmp_path / "one", [name]), name, UNKNOWN)
    together = find_wrappers(headers(tmp_path / "all", all_names), "[aA]*", UNKNOWN)
    assert set(alone) < set(together)
    assert len({w.file for w in together}) == len({w.marker for w in together}) == len(all_names)


def test_a_quote_cannot_be_included() -> None:
    with pytest.raises(InvalidValueError, match=r"'a\"b.hpp' cannot be included: its name has '\"'"):
        make_wrapper('a"b.hpp')


def test_two_headers_made_to_collide_are_refused(tmp_path: Path) -> None:
    odd = make_wrapper("a b.hpp")
    folder = headers(tmp_path, ["a b.hpp", f"{odd.name}.hpp"])
    with pytest.raises(InvalidValueError, match="both become"):
        find_wrappers(folder, "*.hpp", UNKNOWN)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.hpp", ["a.hpp", "b.hpp"]),
        ("b*.hpp", ["b.hpp"]),
        ("sub/*.hpp", ["sub/c.hpp"]),
        ("**/*.hpp", ["a.hpp", "b.hpp", "sub/c.hpp"]),
    ],
)
def test_patterns(pattern: str, expected: list[str], tmp_path: Path) -> None:
    folder = headers(tmp_path, ["a.hpp", "b.hpp", "sub/c.hpp"])
    assert [w.header for w in find_wrappers(folder, pattern, UNKNOWN)] == expected


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("x*.hpp", "no kernel header in .* matches 'x\\*.hpp': of 2 headers there, 0 match"),
        ("/etc/*.hpp", "must be relative"),
        ("../*.hpp", "stay in the folder"),
        ("", "must be relative"),
        ("*", "matches notes.txt, which is not a header"),
    ],
)
def test_patterns_that_cannot_be_meant(pattern: str, message: str, tmp_path: Path) -> None:
    folder = headers(tmp_path, ["a.hpp", "notes.txt"])
    with pytest.raises(InvalidValueError, match=message):
        find_wrappers(folder, pattern, UNKNOWN)


def test_support_headers_get_no_wrapper(tmp_path: Path) -> None:
    kernels = list(find_op("gemm").sets()["fp16_rcr_essential"].kernels("gfx942"))[:2]
    generate_sources(kernels, tmp_path)
    known = read_kernel_folder(tmp_path)
    found = find_wrappers(tmp_path, "*.hpp", known)
    assert [w.name for w in found] == sorted(kernel.slug for kernel in kernels)
    assert known.support == set(read_support_files("gemm"))
    count = len(list(tmp_path.glob("tilewright*.hpp")))
    assert choose_gpus(found, known, ()) == ("gfx942",)
    with pytest.raises(InvalidValueError, match=f"{count} match, and {count} of these are support files"):
        find_wrappers(tmp_path, "tilewright*.hpp", known)


def test_a_manifest_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(FileFormatError, match="not a manifest of generated kernels"):
        read_kernel_folder(tmp_path)


def test_the_gpu_is_known_or_asked_for() -> None:
    both = [make_wrapper("a.hpp"), make_wrapper("b.hpp")]
    known = KernelFolder(frozenset(), {"a.hpp": "gfx942", "b.hpp": "gfx950"})
    assert choose_gpus(both[:1], known, ()) == ("gfx942",)
    assert choose_gpus(both, known, ("gfx942", "gfx950", "gfx942")) == ("gfx942", "gfx950")
    assert choose_gpus(both, UNKNOWN, ("gfx90a",)) == ("gfx90a",)
    with pytest.raises(InvalidValueError, match=r"--arch GPU: the kernels are for 2 GPUs \(gfx942, gfx950\)"):
        choose_gpus(both, known, ())
    with pytest.raises(InvalidValueError, match="--arch GPU: no manifest names a GPU"):
        choose_gpus(both, UNKNOWN, ())
    with pytest.raises(InvalidValueError, match=r"b\.hpp was rendered for gfx950, which is not among --arch gfx942"):
        choose_gpus(both, known, ("gfx942",))
