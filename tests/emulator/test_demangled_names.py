"""Names of kernels as the source has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright.emulator import demangled_names
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.demangled_names import demangle, shorten_name
from tilewright.emulator.faults import MemoryFault
from tilewright.emulator.sanitizer.findings import Finding, finding_from_json, finding_to_json
from tilewright.emulator.sanitizer.suppressions import Suppression

ADD = "_Z3addPKfS0_Pfi"


@pytest.fixture
def unknown() -> Iterator[None]:
    """Forget the names that are known, before and after a test."""
    for each in (demangle, shorten_name):
        each.cache_clear()
    yield
    for each in (demangle, shorten_name):
        each.cache_clear()


@pytest.mark.parametrize(
    ("symbol", "full", "short"),
    [
        (ADD, "add(float const*, float const*, float*, int)", "add"),
        ("_ZN12_GLOBAL__N_15scaleEPf", "(anonymous namespace)::scale(float*)", "(anonymous namespace)::scale"),
        ("_Z3topIiLi4EEvPT_", "void top<int, 4>(int*)", "top<int, 4>"),
        ("_ZlsR1AS0_", "operator<<(A&, A&)", "operator<<"),
        ("_ZN1AclEi", "A::operator()(int)", "A::operator()"),
        ("_ZN5aiter4fmoeE", "aiter::fmoe", "aiter::fmoe"),
        ("add_kernel", "add_kernel", "add_kernel"),
        ("_Zbroken", "_Zbroken", "_Zbroken"),
    ],
)
def test_names(symbol: str, full: str, short: str) -> None:
    assert (demangle(symbol), shorten_name(symbol)) == (full, short)


@pytest.mark.compile
def test_names_with_16_bit_floats_need_the_toolchain() -> None:
    assert demangle("_Z7convertIDF16_EvPKfPT_l") == "void convert<_Float16>(float const*, _Float16*, long)"


def test_long_template_arguments_are_cut() -> None:
    symbol = "_ZN2ck6kentryILi1EN1a4tileIJ" + "Li64E" * 30 + "EEEE3runEPf"
    assert len(demangle(symbol)) > 80
    assert shorten_name(symbol) == "ck::kentry<…>::run"


def test_without_a_translator_the_symbol_stays(monkeypatch: pytest.MonkeyPatch, unknown: None) -> None:
    monkeypatch.setattr(demangled_names, "_list_library_translators", lambda: ())
    monkeypatch.setattr(demangled_names, "_find_filter", lambda: None)
    assert (demangle(ADD), shorten_name(ADD)) == (ADD, ADD)


def test_a_name_of_a_megabyte_is_not_translated() -> None:
    symbol = "_Z" + "1a" * 500_000
    assert demangle(symbol) == symbol


def test_faults_and_findings_show_names() -> None:
    fault = MemoryFault("4 bytes", CodePlace(kernel=ADD))
    assert str(fault).endswith("kernel: add") and fault.place.kernel == ADD
    finding = Finding("race", "x", "gfx942", (fault.place,))
    document = finding_to_json(finding)
    assert (document["kernel"], document["kernel_name"]) == (ADD, "add(float const*, float const*, float*, int)")
    assert finding_from_json(document) == finding and "kernel: add" in str(finding)


@pytest.mark.parametrize("pattern", ["_Z3add*", "add(float const*", "*"])
def test_a_suppression_may_name_both(pattern: str) -> None:
    assert Suppression("race", kernel=pattern).matches(Finding("race", "x", places=(CodePlace(kernel=ADD),)))
