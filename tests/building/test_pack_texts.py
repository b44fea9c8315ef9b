"""The texts of a pack, and that nothing in this package knows an op."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pack_parts import kernel_of

from tilewright.base.errors import InvalidValueError
from tilewright.building.pack import library
from tilewright.building.pack.manifest import check_name
from tilewright.ops import OPS
from tilewright.ops.in_c.statements import quote_c

PACKAGE = Path(library.__file__).parent
STATUS = re.compile(r"/\* Every op returns these.*?#ifndef TILEWRIGHT_STATUS.*?#endif\n", re.DOTALL)


def test_a_table_names_every_kernel_with_all_its_fields() -> None:
    kernels = [kernel_of(pad_m=True), kernel_of()]
    source = library.render_table("mine", "gfx942", kernels)

    for kernel in kernels:
        assert source.count(f'"{kernel.slug}"') == 1
        config = json.dumps(kernel.facts["config"], sort_keys=True, separators=(",", ":"))
        assert quote_c(config) in source
    assert '{ "block", "[128,128,32]" },' in source
    assert source.count('{ "pad_m", "true" },') == source.count('{ "pad_m", "false" },') == 1
    assert '{ "dtype_a", "fp16" },' in source


def test_a_library_exports_functions_and_table_only() -> None:
    kernel = kernel_of()
    exported = re.findall(r"(\w+);", library.render_export_list([kernel]))

    assert exported == ["tw_pack_table", *(f"{kernel.symbol}_{name}" for name in library.FUNCTIONS)]
    assert "local:\n    *;" in library.render_export_list([kernel])


@pytest.mark.parametrize(
    ("plain", "literal"),
    [('{"a":1}', r'"{\"a\":1}"'), ("a\\b", r'"a\\b"'), ("??=", r'"\?\?="'), ("é\n", r'"\303\251\012"')],
)
def test_c_strings_hold_any_text(plain: str, literal: str) -> None:
    assert quote_c(plain) == literal


def test_every_op_has_one_c_header_that_says_what_it_is() -> None:
    headers = library.read_headers([op.name for op in OPS])
    shared = STATUS.search(headers["include/tilewright/pack.h"])

    assert shared is not None
    for op in OPS:
        header = headers[f"include/tilewright/{op.name}.h"]
        prefix = f"tw_{op.name}"
        assert shared[0] in header, "programs that use several ops need one text of tw_status"
        assert f"struct Op<{prefix}_args>" in header
        assert f'name     = "{op.name}"' in header
        assert f"#define {prefix.upper()}_ABI_VERSION " in header
        assert re.search(rf"typedef struct {prefix}_args {{\n    uint64_t size;", header)


def test_no_file_of_the_package_names_an_op() -> None:
    names = re.compile("|".join(re.escape(op.name) for op in OPS), re.IGNORECASE)
    files = [path for path in PACKAGE.iterdir() if path.is_file()]

    assert len(files) > 8
    assert [path.name for path in files if names.search(path.read_text(encoding="utf-8"))] == []


def test_the_cmake_package_finds_its_folder_from_its_own_place() -> None:
    files = library.render_cmake_package("mine", ("gfx90a", "gfx942"))
    config = files["lib/cmake/mine/mineConfig.cmake"]

    assert "${CMAKE_CURRENT_LIST_DIR}/../../.." in config
    assert "set(mine_GPUS gfx90a gfx942)" in config
    assert f'set(PACKAGE_VERSION "{library.get_version()}")' in files["lib/cmake/mine/mineConfigVersion.cmake"]


@pytest.mark.parametrize("name", ["", "a b", "a-b", "1a", "../a", "ä", "a\n"])
def test_names_that_cmake_or_c_would_misread_are_refused(name: str) -> None:
    with pytest.raises(InvalidValueError, match="cannot name a pack"):
        check_name(name)
