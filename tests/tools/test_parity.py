"""The comparison with kernels of CK's generators: names, instructions, the page; a deep test compares real kernels."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from ci_kernels import STORE
from tests.proof.parity import fmha_units, gemm_units
from tests.proof.parity.__main__ import find_tree, group_units, list_units
from tests.proof.parity.comparing import Comparison, DeviceKernel, Instructions, compare, compare_code
from tests.proof.parity.fmha_units import CASES, parse_name, rename_symbols
from tests.proof.parity.page import SAME_WORK, Row, format_page
from tests.proof.parity.unit import Unit, join_sources, make_kernel
from tilewright import arch as archs
from tilewright.building.toolchain import find_toolchain
from tilewright.ops import find_op, parse_kernel
from tilewright.ops.rule import find_violations

FOLDER_VARIABLE = "TILEWRIGHT_TEST_CK_EXAMPLES"
LOAD = ("buffer_load_dword v1, v0, s[0:3], 0 offen", (1, 2))
ADD = ("v_add_u32_e32 v1, v2, v3", (3,))
SUBTRACT = ("v_subrev_u32_e32 v1, v2, v3", (4,))
END = ("s_endpgm", (5,))


def device_kernel(*code: tuple[str, tuple[int, ...]], symbol: str = "k", lds: int = 64) -> DeviceKernel:
    return DeviceKernel(symbol, tuple(code), (8, 0, 16, 0, lds, 256))


def test_names_of_attention_kernels_are_configs_that_the_rules_accept() -> None:
    for case in CASES:
        kernel = make_kernel("fmha", case.gpu, **{**parse_name(case.name), **dict(case.fields)})
        assert find_violations(find_op("fmha").rules, kernel.config, archs.load(case.gpu)) == [], case.name


def test_a_name_with_every_part() -> None:
    tiles = "b128x64x16x32x32x32_r4x1x1_r4x1x1_w32x32x16_w32x32x8"
    words = "qr_async_vr_psskddv_logits_alibi_mask_lse_dropout_nskip_nsquant_ntrload"
    found = parse_name(f"fmha_fwd_d32_bf16_group_{tiles}_o2_{words}_gfx9")
    assert found == {
        **{"family": "forward", "mode": "group", "dtype": "bf16", "pipeline": "qr_async", "blocks_per_cu": 2},
        **{"block": (128, 64, 16, 32, 32, 32), "waves": (4, 1, 1, 4, 1, 1), "mma": (32, 32, 16, 32, 32, 8)},
        **{"pad_q": True, "pad_k": True, "pad_hdim_q": 8, "pad_hdim_v": 8},
        **{"soft_cap": True, "bias": "alibi", "mask_form": "any", "lse": True, "dropout": True},
    }


def test_the_kernels_of_gemms_exist() -> None:
    for slug in gemm_units.KERNELS:
        kernel = parse_kernel(f"gemm-{slug}")
        assert find_violations(find_op("gemm").rules, kernel.config, archs.load(kernel.arch)) == []


def test_sources_of_several_kernels_in_one() -> None:
    kernel = parse_kernel(f"gemm-{gemm_units.KERNELS[0]}")
    units = [Unit(kernel, name, ("a.hpp", f"{name}.hpp"), f"text of {name}", ()) for name in "xyx"]
    assert join_sources(units).split("\n") == [
        *('#include "a.hpp"', '#include "x.hpp"', '#include "y.hpp"', "text of x", "text of y", "")
    ]
    assert rename_symbols("using trait_0 = t<0, x_01>; f<trait_0>", "k") == "using trait_k = t<0, x_01>; f<trait_k>"


def test_equal_code_is_found_under_any_name() -> None:
    theirs = [device_kernel(ADD, END, symbol="other"), device_kernel(LOAD, END, symbol="k")]
    found = compare_code([device_kernel(LOAD, END)], theirs)
    assert (found.ours, found.theirs, found.equal, found.same_symbol, found.instructions) == (1, 2, 1, 1, 2)
    assert compare_code([device_kernel(ADD, END)], theirs).same_symbol == 0


@pytest.mark.parametrize(
    ("theirs", "difference", "same_work"),
    [
        ((LOAD, SUBTRACT, END), "v_add_u32_e32 v1, v2, v3 / v_subrev_u32_e32 v1, v2, v3", True),
        ((ADD, END), "buffer_load_dword v1, v0, s[0:3], 0 offen / v_add_u32_e32 v1, v2, v3", False),
        ((LOAD, ADD, END, END), "the end / s_endpgm", True),
    ],
)
def test_differences(theirs: Instructions, difference: str, same_work: bool) -> None:
    found = compare_code([device_kernel(LOAD, ADD, END)], [device_kernel(*theirs)])
    assert (found.equal, found.first_difference, found.same_work) == (0, difference, same_work)


def test_registers_and_lds_count() -> None:
    found = compare_code([device_kernel(END)], [device_kernel(END, lds=65)])
    assert found.equal == 0 and found.first_difference.startswith("registers and LDS (8, 0, 16, 0, 64, 256) / ")


def test_the_page_names_each_difference() -> None:
    kernel = parse_kernel(f"gemm-{gemm_units.KERNELS[0]}")
    unit = Unit(kernel, "x", (), "", ())
    equal = Comparison(2, 4, 2, 2, 1000, "", "")
    other = dataclasses.replace(equal, equal=1, first_difference="a / b", mix="s_nop +1")
    rows = [
        Row(unit, equal),
        Row(unit, other),
        Row(unit, dataclasses.replace(other, same_work=False)),
        Row(dataclasses.replace(unit, reason="a reason"), dataclasses.replace(other, same_work=False)),
    ]
    assert [row.is_explained for row in rows] == [True, True, False, True]
    page = format_page(rows, 5, "clang 1")
    assert "4 of 5 configs have been compared so far." in page and "| all | 4 | 1 | 8 | 4,000 |" in page
    assert f"1 of 2 differ: {SAME_WORK} (s_nop +1)" in page and "1 of 2 differ: a reason (s_nop +1)" in page


@pytest.mark.compile
@pytest.mark.deep
def test_kernels_of_ck_have_the_same_instructions(tmp_path: Path) -> None:
    """The smallest groups; `python -m tests.proof.parity` compares all of them."""
    folder = os.environ.get(FOLDER_VARIABLE)
    tree = find_tree(Path(folder) if folder else None, tmp_path)
    groups = group_units(list_units(tree, tmp_path))
    small = [units for units in groups if units[0].name.startswith(("fmha_fwd_appendkv", "fmha_bwd_dot_do_o"))]
    assert [len(units) for units in small] == [6, 2, 4]
    for units in small:
        results = compare(units, find_toolchain(), STORE, tmp_path)
        assert [result.is_equal for result in results] == [True] * len(units)
    assert fmha_units.EXAMPLE in str(small[0][0].folders[1])
