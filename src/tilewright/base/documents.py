"""Readers of user documents: text, JSON, TOML and CSV. Invalid content raises errors of this package only.

The readers guarantee UTF-8, unique keys, no NaN and no infinity, integers of at most 64 bits, at most 64 levels and no
unpaired surrogate. `convert_read_errors` wraps the code that interprets a document: any error that the content causes
becomes a `FileFormatError` with the path. `FileProblems` collects errors by location, to report all of them at once.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tilewright.base.errors import FileFormatError, FileProblem, InvalidValueError, TilewrightError

T = TypeVar("T")
P = ParamSpec("P")

# The whole document is held in memory. The largest known, an export of 100,000 benchmarks, has about 100 MB.
MOST_BYTES = 256 << 20
# The deepest document format of Tilewright has 6 levels. Python's own limit depends on the depth of the caller.
DEEPEST = 64
# Sizes are int64_t in the C interface of every op, seeds uint64_t.
LEAST_WHOLE, MOST_WHOLE = -(2**63), 2**64 - 1
_PIECE = 1 << 20

# Errors that Python raises when a value has an unexpected type or content. MemoryError and KeyboardInterrupt are not
# included: they are not caused by the document.
CONTENT_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@contextmanager
def convert_read_errors(path: object, advice: str = "") -> Iterator[None]:
    """Convert errors that a document's content causes to `FileFormatError`, with advice. Other errors of this package
    pass."""
    try:
        yield
    except FileFormatError as error:
        if not advice:
            raise
        advised = [FileProblem(problem.where, f"{problem.what}; {advice}") for problem in error.problems]
        raise FileFormatError(error.path, advised) from error
    except OSError as error:
        raise FileFormatError(path, [_make_problem(f"cannot be read: {error.strerror or error}", advice)]) from error
    except CONTENT_ERRORS as error:
        if _is_complete(error):
            raise
        raise FileFormatError(path, [_make_problem(describe_error(error), advice)]) from error


def _make_problem(what: str, advice: str) -> FileProblem:
    return FileProblem("", f"{what}; {advice}" if advice else what)


def _is_complete(error: Exception) -> bool:
    """Whether an error of this package is complete. The error of a single value does not name its document."""
    return isinstance(error, TilewrightError) and not isinstance(error, InvalidValueError)


def describe_error(error: BaseException) -> str:
    """Why a value was rejected, in words: for a missing key, Python's message is only the key."""
    if isinstance(error, KeyError) and not isinstance(error, TilewrightError):
        return f"has no {error}"
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, ValueError):
        return str(error) or "is not a usable value"
    return f"does not have the expected form: {error} ({type(error).__name__})"


class FileProblems:
    """Collects the problems of a document, so that all of them are reported at once."""

    def __init__(self) -> None:
        self.found: list[FileProblem] = []

    def add(self, where: str, what: str) -> None:
        self.found.append(FileProblem(where, what))

    def try_call(self, where: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call a function. If it rejects its arguments, record the problem and return None."""
        try:
            return function(*args, **kwargs)
        except CONTENT_ERRORS as error:
            if _is_complete(error):
                raise
            self.add(where, describe_error(error))
            return None

    def raise_any(self, path: object) -> None:
        """Raise `FileFormatError` if there are problems."""
        if self.found:
            raise FileFormatError(path, self.found)


def read_bytes(path: Path | str, most: int = MOST_BYTES) -> bytes:
    """Read a file of at most `most` bytes. The path may be a pipe."""
    pieces, size = [], 0
    with convert_read_errors(path), Path(path).open("rb") as stream:
        while piece := stream.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise InvalidValueError(f"has more than {most:,} bytes, the maximum")
    return b"".join(pieces)


def read_text(path: Path | str) -> str:
    """Read a UTF-8 file. Line ends become a newline, and a byte-order mark, which spreadsheets write, is removed."""
    raw = read_bytes(path)
    with convert_read_errors(path):
        return _decode_utf8(raw).replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path | str) -> Any:
    """Read the value of a JSON file."""
    raw = read_bytes(path)
    with convert_read_errors(path):
        value = _load_json(raw)
    return _require_usable(path, value)


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read the tables of a TOML file."""
    import tomllib  # noqa: PLC0415  (few processes need it)

    text = read_text(path)
    with convert_read_errors(path):
        try:
            tables = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidValueError(f"is not TOML: {describe_error(error)}") from error
    return _require_usable(path, tables)


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text, or one line of JSON lines. Raises `InvalidValueError`."""
    value = _load_json(text)
    if problem := _find_unusable(value):
        raise InvalidValueError(str(problem))
    return value


def _load_json(text: str | bytes) -> Any:
    text = _decode_utf8(text) if isinstance(text, bytes) else text
    try:
        return json.loads(text, object_pairs_hook=_build_object)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"is not JSON: {describe_error(error)}") from error


def _require_usable(path: Path | str, value: T) -> T:
    if problem := _find_unusable(value):
        raise FileFormatError(path, [problem])
    return value


@dataclass(frozen=True)
class CsvTable:
    """A CSV file: its column names, and the cells of each line below them that is not blank."""

    place: str  # location of the header
    header: tuple[str, ...]
    lines: Sequence[tuple[str, Sequence[str]]]  # location and cells of each line

    def check_header(self, needed: Iterable[str] = ()) -> list[FileProblem]:
        """Report duplicate columns, and columns of `needed` that are missing."""
        counts = Counter(self.header)
        faults = [f"has the column {name!r} {count} times" for name, count in counts.items() if count > 1]
        missing = [name for name in needed if name not in counts]
        faults += [f"has no column for {', '.join(missing)}"] if missing else []
        return [FileProblem(self.place, fault) for fault in faults]

    def get_row(self, cells: Sequence[str]) -> dict[str, str]:
        """Column → cell of a line. Raises `InvalidValueError` if the number of cells differs from the header's."""
        if len(cells) != len(self.header):
            raise InvalidValueError(f"has {len(cells)} cells, the header has {len(self.header)}")
        return dict(zip(self.header, cells, strict=True))


def read_csv(path: Path | str) -> CsvTable | None:
    """Read a CSV file, with whitespace around cells removed; None for a blank file."""
    stripped = ((number, [cell.strip() for cell in cells]) for number, cells in parse_csv(path, read_text(path)))
    lines = [(f"line {number}", cells) for number, cells in stripped if any(cells)]
    if not lines:
        return None
    (place, header), *below = lines
    return CsvTable(place, tuple(header), below)


def parse_csv(path: Path | str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line of a CSV file, unchanged. Raises `FileFormatError`."""
    import csv  # noqa: PLC0415  (few processes need it)

    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise FileFormatError(path, [FileProblem(f"line {reader.line_num}", f"is not CSV: {error}")]) from error


def _decode_utf8(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"is not UTF-8: {error.reason} at byte {error.start:,}") from error


def _build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object with unique keys: Python would silently keep the last of equal ones."""
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise InvalidValueError(f"an object has the key {twice!r} twice")
    return made


# The location of a value: the location of the table or list that holds it, and the key in it.
_Place = tuple[Any, Any]


def _find_unusable(value: Any) -> FileProblem | None:
    """Find the first unusable value. Looks at one level after another, so deep documents need no recursion."""
    level: list[tuple[Any, _Place | None]] = [(value, None)]
    for _ in range(DEEPEST + 1):
        inside: list[tuple[Any, _Place | None]] = []
        for each, place in level:
            if isinstance(each, dict):
                inside += ((name, place) for name in each)
                inside += ((part, (place, name)) for name, part in each.items())
            elif isinstance(each, list):
                inside += ((part, (place, number)) for number, part in enumerate(each))
            elif fault := _describe_fault(each):
                return FileProblem(_format_location(place), fault)
        if not inside:
            return None
        level = inside
    return FileProblem("", f"is nested more than {DEEPEST} levels deep")


def _format_location(place: _Place | None) -> str:
    names: list[str] = []
    while place is not None:
        place, name = place
        names.insert(0, ascii(name)[1:-1] if isinstance(name, str) else str(name))
    return ".".join(names)


def _describe_fault(value: Any) -> str:
    """Why a single value is unusable; empty if it is usable."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}: a number must be finite, within ±1.8e308"
    if isinstance(value, int) and not LEAST_WHOLE <= value <= MOST_WHOLE:
        return f"is an integer of {value.bit_length()} bits: it must be -2^63 to 2^64 - 1"
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return f"has the unpaired surrogate \\u{ord(value[error.start]):04x}"
    return ""
