"""Every exception that Tilewright raises on purpose.

    TilewrightError
    ├── UnknownValueError    a name that is not in a closed list (lists the known ones)
    ├── InvalidValueError    a known field with an impossible value
    ├── FileFormatError      a file that does not follow its schema (all problems at once)
    ├── IllegalConfigError   a config that breaks rules of its architecture
    ├── KnobError            an environment variable that cannot be used
    ├── ToolchainError       a compiler or header tree that is missing or unusable
    ├── CompileError         the compiler failed on a kernel (carries the log)
    ├── UnsupportedError     no available kernel, or not this one, supports the problem (with reasons)
    ├── TensorError          a tensor with another type, shape, strides or memory than the problem requires
    ├── DeviceError          a device, real or emulated, failed (emulated: `Fault`, with its location)
    │   └── DeviceMemoryError    a device's memory is full
    ├── BundleError          a model bundle that cannot be used here (with its value and the required one)
    ├── MissingExtraError    optional packages are not installed (with the command to install them)
    ├── LeakageError         a problem, or a similar one, is in both the training and the evaluation set
    ├── JournalError         a journal that cannot be written, or holds another sweep (file, bytes, advice)
    ├── ClusterError         a cluster that cannot be reached, or has no suitable device
    ├── OutputError          a requested file that cannot be written (path, the system's reason, advice)
    ├── PackError            a pack that cannot be written or read (path, cause, advice)
    └── StoreError           the artifact store failed (path, cause, advice)
        ├── CorruptError     an entry that is damaged or missing; it is built again
        ├── RemoteError      a remote tier that is slow, unreachable or rejects requests
        └── InvalidBlobError bytes of a remote tier that are not a valid entry

A message has fact, number, limit and advice. Expected rejections (a config that breaks a rule) are values, see
`tilewright.ops.rule.Violation`; they become exceptions only when a caller requires a legal config.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Longer lists of known names are cut to those with a similar spelling.
MOST_LISTED, LISTED = 42, 12
# Similarity from which a name is suggested: `float16` and `fp16` have 0.55, `tile` and `epilogue` 0.5.
CUTOFF = 0.54
# All known names are far shorter, and comparing longer ones takes a second.
_LONGEST_NAME = 300


class TilewrightError(Exception):
    """Base of all errors that Tilewright raises on purpose. All of them can be pickled.

    By default Python calls the class again with `args`, which hold the message. Classes that build their message from
    other arguments would fail, or build a message from the message.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_error, (type(self), self.args), self.__dict__


class InvalidValueError(TilewrightError, ValueError):
    """A value that is never valid for its field."""


class UnknownValueError(InvalidValueError):
    """A name outside a closed list. The message has the nearest known name, and all of them, or of a long list those
    with a similar spelling; `known` has all."""

    def __init__(self, what: str, value: object, known: Iterable[object], note: str = "") -> None:
        self.what = what
        self.value = value
        self.known = tuple(str(k) for k in known)
        nearest = find_nearest_name(str(value), self.known)
        hint = f" Did you mean '{nearest}'?" if nearest else ""
        listing = _list_known(str(value), self.known)
        super().__init__(f"unknown {what} {value!r}.{hint} Known: {listing}.{f' {note}' if note else ''}")


@dataclass(frozen=True)
class FileProblem:
    """One problem in a file: where (dotted path, or a line) and what."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class FileFormatError(TilewrightError):
    """A file that does not follow its schema. Carries every problem found, not only the first."""

    def __init__(self, path: object, problems: Sequence[FileProblem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = "\n".join(f"  {p}" for p in self.problems)
        super().__init__(f"{path}: {count} problem{'s' if count != 1 else ''}\n{lines}")


class IllegalConfigError(TilewrightError):
    """A config that breaks rules, where a legal one is required."""


class KnobError(TilewrightError):
    """An environment variable whose value cannot be used."""


class ToolchainError(TilewrightError):
    """Something needed for compiling is missing or unusable. The message explains how to get it."""


class CompileError(TilewrightError):
    """The compiler failed on a source. `log` is its whole output."""

    def __init__(self, message: str, log: str) -> None:
        self.log = log
        super().__init__(message)


class UnsupportedError(TilewrightError):
    """A problem that no available kernel supports. The message has the nearest kernels and reasons."""


class TensorError(TilewrightError, ValueError):
    """A tensor that does not match its problem. The message has the actual and the required value."""


class DeviceError(TilewrightError):
    """A device that does not exist, failed in a call, or ran a kernel with an illegal operation."""


class DeviceMemoryError(DeviceError):
    """A device has too little memory for an allocation. That does not mean that the kernel is wrong."""


class BundleError(TilewrightError):
    """A model bundle that is damaged or does not match this version. The message has both sides."""


class MissingExtraError(TilewrightError, ImportError):
    """Packages of an optional extra are missing. The message has the command to install them."""


class LeakageError(TilewrightError):
    """A problem, or a near duplicate, is in both the training and the evaluation set: scores would be too good."""


class JournalError(TilewrightError):
    """A journal that cannot be opened or written, or that holds another sweep. Its records stay readable."""


class ClusterError(TilewrightError):
    """A cluster that cannot be reached, or has no device left for the work. Finished measurements are journalled."""


class OutputError(TilewrightError):
    """A requested file or folder cannot be written. The message has the path, the reason and advice."""


class PackError(TilewrightError):
    """A pack cannot be written or read. The message has the path or the kernel, the cause and advice."""


class StoreError(TilewrightError):
    """The artifact store cannot be read or written. The message has the path, the cause and advice."""


class CorruptError(StoreError):
    """A store entry whose files are missing or do not match its manifest."""


class RemoteError(StoreError):
    """A remote tier that did not answer in time, is unreachable, or rejected a request."""


class InvalidBlobError(StoreError):
    """Bytes that are not a valid entry: format, digest or signature is wrong."""


def _restore_error(kind: type[TilewrightError], args: tuple[Any, ...]) -> TilewrightError:
    """Restore a pickled error without calling its constructor. Fields that Python's base class sets from `args` are
    restored, too."""
    error = kind.__new__(kind, *args)
    theirs = next(each for each in kind.__mro__ if not issubclass(each, TilewrightError))
    theirs.__init__(error, *args)
    return error


def _list_known(value: str, known: Sequence[str]) -> str:
    if len(known) <= MOST_LISTED:
        return ", ".join(known) or "(none)"
    similar = set(difflib.get_close_matches(value[:_LONGEST_NAME], known, n=LISTED, cutoff=0.0))
    return f"{', '.join(name for name in known if name in similar)} … and {len(known) - len(similar)} more"


def find_nearest_name(value: str, known: Iterable[str]) -> str | None:
    """The known name closest in spelling, ignoring case; None if none is close."""
    if len(value) > _LONGEST_NAME:
        return None
    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.lower(), name)
    match = difflib.get_close_matches(value.lower(), by_folded, n=1, cutoff=CUTOFF)
    return by_folded[match[0]] if match else None


def require(what: str, value: object, *kinds: type) -> None:
    """Raise `InvalidValueError` unless `value` is of one of these kinds. Objects that users pass are checked here."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidValueError(f"{what} is {str(value)[:80]!r} of type {type(value).__name__}, must be {wanted}")


def choose(what: str, value: object, known: Iterable[str]) -> str:
    """Return `value` if it is one of `known`, else raise `UnknownValueError`. Every closed list is checked here."""
    known = tuple(known)
    if isinstance(value, str) and value in known:
        return value
    raise UnknownValueError(what, value, known)
