"""The assembly that embeds code objects."""

from __future__ import annotations

import pytest

from tilewright.base.errors import InvalidValueError
from tilewright.codegen.fatbin import fatbin_symbol, render_fatbin

TWO_GPUS = """\
	.section .hip_fatbin,"a",@progbits
	.globl __hip_fatbin_1
	.hidden __hip_fatbin_1
	.balign 4096
__hip_fatbin_1:
.Lbundle:
	.ascii "__CLANG_OFFLOAD_BUNDLE__"
	.quad 3
	.quad .Lhost_begin - .Lbundle
	.quad 0
	.quad 30
	.ascii "host-x86_64-unknown-linux-gnu-"
	.quad .Lcode0_begin - .Lbundle
	.quad .Lcode0_end - .Lcode0_begin
	.quad 31
	.ascii "hipv4-amdgcn-amd-amdhsa--gfx942"
	.quad .Lcode1_begin - .Lbundle
	.quad .Lcode1_end - .Lcode1_begin
	.quad 31
	.ascii "hipv4-amdgcn-amd-amdhsa--gfx90a"
	.balign 4096
.Lhost_begin:
	.balign 4096
.Lcode0_begin:
	.incbin "o/k.gfx942.co"
.Lcode0_end:
	.balign 4096
.Lcode1_begin:
	.incbin "k.gfx90a.co"
.Lcode1_end:
	.section .note.GNU-stack,"",@progbits
"""


def test_the_assembly_of_two_code_objects() -> None:
    assert render_fatbin({"gfx942": "o/k.gfx942.co", "gfx90a": "k.gfx90a.co"}, "__hip_fatbin_1") == TWO_GPUS


def test_the_symbol_as_clang_names_it() -> None:
    # As clang 22 named it for -cuid=abc; MD5 of "abc" begins with 90 01 50 98 3c d2 4f b0.
    assert fatbin_symbol("abc") == "__hip_fatbin_b04fd23c98500190"


@pytest.mark.parametrize(
    ("code_objects", "symbol", "message"),
    [
        ({}, "s", "s needs at least 1 code object, got 0"),
        ({"gfx942": "a.co"}, "a b", "'a b' is not an assembler symbol"),
        ({"sm_90": "a.co"}, "s", "'sm_90' is not a GPU"),
        ({"gfx942": 'a"b.co'}, "s", "is not a file name that the assembler reads literally"),
    ],
)
def test_what_an_assembler_would_misread(code_objects: dict[str, str], symbol: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        render_fatbin(code_objects, symbol)
