"""The reader of documents: what it takes, what it refuses, and what its guard turns into our errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.base import documents
from tilewright.base.document_values import (
    check_keys,
    expect_integer,
    expect_list_items,
    expect_number,
    expect_table,
    expect_text,
    parse_digits,
    parse_number,
)
from tilewright.base.documents import (
    FileProblems,
    convert_read_errors,
    parse_json,
    read_bytes,
    read_csv,
    read_json,
    read_text,
    read_toml,
)
from tilewright.base.errors import BundleError, FileFormatError, InvalidValueError, UnknownValueError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON: Expecting"),
        ('{"a": 1, "a": 2}', "is not JSON: an object has the key 'a' twice"),
        ('{"a": [1, NaN]}', "a.1: is nan: a number must be finite"),
        ('{"a": -Infinity}', "a: is -inf"),
        ("[1e999]", "0: is inf"),
        ("18446744073709551616", "is an integer of 65 bits"),
        (f"[{'9' * 400}]", "0: is an integer of 1329 bits"),
        ("9" * 5000, "is not JSON: Exceeds the limit"),
        ("[" * 65 + "1" + "]" * 65, "is nested more than 64 levels deep"),
        ("[" * 100_000, "is not JSON: is nested too deeply"),
        ('{"a": "\\ud800"}', r"a: has the unpaired surrogate \ud800"),
        ('{"\\udc00": 1}', r"has the unpaired surrogate \udc00"),
        (b'"\xff"', "is not UTF-8: invalid start byte at byte 1"),
    ],
)
def test_json_that_later_code_could_not_take(text: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError) as refused:
        parse_json(text)
    assert str(refused.value).startswith(said)
    (tmp_path / "a.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileFormatError) as told:
        read_json(tmp_path / "a.json")
    assert told.value.path == tmp_path / "a.json" and str(told.value.problems[0]).startswith(said)


def test_json_at_the_limits_is_taken() -> None:
    text = '[-9223372036854775808, 18446744073709551615, 1.7e308, "\\ud83d\\ude00"]'
    assert parse_json(text) == [-(2**63), 2**64 - 1, 1.7e308, "😀"]
    assert parse_json("[" * 64 + "]" * 64) is not None


def test_a_mark_and_line_ends_of_other_systems_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfm, n\r\n\r\n1 ,2\r\n3\r\n")
    assert read_text(tmp_path / "a.csv") == "m, n\n\n1 ,2\n3\n"
    sheet = read_csv(tmp_path / "a.csv")
    assert sheet is not None and sheet.get_row(sheet.lines[0][1]) == {"m": "1", "n": "2"}
    with pytest.raises(InvalidValueError, match="has 1 cells, the header has 2"):
        sheet.get_row(sheet.lines[1][1])
    assert sheet.lines[1][0] == "line 4"


def test_files_that_are_too_large_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(11))
    assert len(read_bytes(tmp_path / "a", most=11)) == 11
    with pytest.raises(FileFormatError, match="has more than 10 bytes"):
        read_bytes(tmp_path / "a", most=10)
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file"), ("a\0b", "null byte")):
        with pytest.raises(FileFormatError, match=said):
            read_text(path)


def test_toml_has_the_limits_of_json(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    for text, said in (("[a]\nb = nan", "a.b: is nan"), (f"a = {2**64}", "a: is an integer"), ("a = [", "is not TOML")):
        path.write_text(text)
        with pytest.raises(FileFormatError, match=said):
            read_toml(path)


@pytest.mark.parametrize(
    "stumble",
    [
        lambda: {}["a"],
        lambda: tuple("ab")[len("ab")],
        lambda: int("x"),
        lambda: None + 1,  # type: ignore[operator]
        lambda: (1).a,  # type: ignore[attr-defined]
        lambda: 1 / 0,
        lambda: float(10**400),
        b"\xff".decode,
        "\ud800".encode,
        lambda: Path("/nowhere/at/all").read_bytes(),
    ],
)
def test_what_content_makes_python_raise_is_an_error_of_the_file(stumble: Callable[[], Any]) -> None:
    with pytest.raises(FileFormatError) as told, convert_read_errors("a.json", "write it anew"):
        stumble()
    assert str(told.value).startswith("a.json: 1 problem\n  ") and str(told.value).endswith("; write it anew")
    assert told.value.__cause__ is not None
    faults = FileProblems()
    if not isinstance(told.value.__cause__, OSError):
        assert faults.try_call("here", stumble) is None
        assert faults.found[0].where == "here"


def test_recursion_is_an_error_of_the_file() -> None:
    def endless() -> None:
        endless()

    with pytest.raises(FileFormatError, match="nested too deeply"), convert_read_errors("a.json"):
        endless()


def test_errors_that_say_all_pass_and_others_are_not_caught() -> None:
    for error in (BundleError("for another op"), MemoryError(), KeyboardInterrupt(), AssertionError()):
        with pytest.raises(type(error)) as passed, convert_read_errors("a.json"):
            raise error
        assert passed.value is error
    with pytest.raises(FileFormatError, match="unknown arch"), convert_read_errors("a.json"):
        raise UnknownValueError("arch", "gfx0", ["gfx942"])


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda: expect_integer("n", True), "n must be an integer, got True"),
        (lambda: expect_integer("n", 3, least=4), "n is 3, must be at least 4"),
        (lambda: expect_number("us", float("nan")), "us is nan, must be finite"),
        (lambda: expect_number("us", 10**400), "must be finite"),
        (lambda: expect_number("us", "1"), "us must be a number, got '1'"),
        (lambda: expect_number("us", 0, above=0), "us is 0, must be above 0"),
        (lambda: expect_number("us", 2.0, most=1), "us is 2.0, must be at most 1"),
        (lambda: parse_number("us", "inf"), "us is inf, must be finite"),
        (lambda: parse_digits("n", "٣"), "n must be an integer of at most 20 digits, got '٣'"),
        (lambda: parse_digits("n", "9" * 5000), "(5,002 characters)"),
        (lambda: expect_text("slug", 7), "slug must be a text, got 7"),
        (lambda: expect_table("facts", []), "facts must be an object, got []"),
        (lambda: expect_list_items("errors", ["a", 1], expect_text), "errors.1 must be a text, got 1"),
        (lambda: check_keys("a cost", {"a": 1}, ("a", "b")), "a cost has no b"),
        (
            lambda: check_keys("a cost", {"a": 1, "bb": 2}, ("a",), ("b",)),
            "unknown key of a cost 'bb'. Did you mean 'b'?",
        ),
    ],
)
def test_a_value_that_is_wrong_is_named_with_its_limits(read: Callable[[], Any], said: str) -> None:
    with pytest.raises(InvalidValueError) as told:
        read()
    assert said in str(told.value)


def test_no_other_module_parses_documents() -> None:
    """JSON, TOML and CSV from outside are read by `documents`; the store and messages of worker processes have readers
    of their own."""
    root = Path(documents.__file__).parents[1]
    own = {"base/documents.py", "building/store/manifest.py"}
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if any(
            word in path.read_text(encoding="utf-8")
            for word in ("json.loads(", "json.load(", "tomllib.load", "csv.reader(")
        )
    }
    assert {name for name in found - own if not name.startswith(("bench/", "acceptance/"))} == set()
