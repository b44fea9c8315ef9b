"""Every exception Tilewright raises on purpose.

    TilewrightError
    ├── UnknownValueError    a name that is not in a closed list (lists the known ones)
    ├── InvalidValueError    a known field with an impossible value
    ├── FileFormatError      a file that does not follow its schema (all problems at once)
    ├── IllegalConfigError   a config that breaks rules of its architecture
    ├── KnobError            an environment variable that cannot be used
    ├── ToolchainError       a compiler or header tree that is missing or unusable
    ├── CompileError         the compiler refused a kernel (carries the log)
    ├── UnsupportedError     a problem that no kernel at hand, or not this one, can compute (says why)
    ├── TensorError          a tensor whose type, shape, strides or place is not what the problem says
    ├── DeviceError          a device, real or emulated, failed or refused (emulated: `Fault`, with its place)
    │   └── DeviceMemoryError    a device's memory is full
    ├── BundleError          a model bundle that cannot be used here (says what it has and what is wanted)
    ├── MissingExtraError    packages that are installed on request only (says how)
    ├── LeakageError         a problem, or one near it, on both sides of a split into training and judging
    ├── JournalError         a journal that cannot be written, or holds another sweep (says file, bytes, advice)
    ├── ClusterError         a cluster that cannot be reached, or has no device for what is asked
    ├── OutputError          a file that was asked for cannot be written (says path, the system's reason, advice)
    ├── PackError            a pack that cannot be written or read (says path, cause, advice)
    └── StoreError           the artifact store cannot do what was asked (says path, cause, advice)
        ├── CorruptError     an entry that is damaged or gone; it is built again
        ├── RemoteError      a remote tier that is slow, gone or refuses
        └── RubbishError     bytes of a remote tier that are not the entry they should be

A message says fact, number, limit and advice. Rejections that are expected (a config that breaks a rule)
are values, see `tilewright.ops.rule.Violation`; they become exceptions only when a caller insists on legality.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Names of ours are shorter by far, and comparing longer ones takes a second.
_LONGEST_NAME = 300


class TilewrightError(Exception):
    """Base of all errors that Tilewright raises on purpose. Each can be sent to another process as it is.

    Python itself would call the class again with `args`, which hold the message. Classes that make their message of
    other arguments would refuse that, or make a message of the message.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (type(self), self.args), self.__dict__


class InvalidValueError(TilewrightError, ValueError):
    """A value that its field can never take."""


class UnknownValueError(InvalidValueError):
    """A name outside a closed list. The message names the nearest known value and lists all of them."""

    def __init__(self, what: str, value: object, known: Iterable[object], note: str = "") -> None:
        self.what = what
        self.value = value
        self.known = tuple(str(k) for k in known)
        nearest = nearest_name(str(value), self.known)
        hint = f" Did you mean '{nearest}'?" if nearest else ""
        listing = ", ".join(self.known) if self.known else "(none)"
        super().__init__(f"unknown {what} {value!r}.{hint} Known: {listing}.{f' {note}' if note else ''}")


@dataclass(frozen=True)
class FileProblem:
    """One thing wrong in a file: where (dotted path, or a line) and what."""

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
    """A config that breaks rules, met where only a legal one can be used."""


class KnobError(TilewrightError):
    """An environment variable whose value cannot be used."""


class ToolchainError(TilewrightError):
    """Something needed for compiling is missing or unusable. The message says how to get it."""


class CompileError(TilewrightError):
    """The compiler refused a source. `log` is its whole output."""

    def __init__(self, message: str, log: str) -> None:
        self.log = log
        super().__init__(message)


class UnsupportedError(TilewrightError):
    """A problem that cannot be computed with the kernels there are. The message has the nearest kernels and reasons."""


class TensorError(TilewrightError, ValueError):
    """A tensor that does not fit its problem: the message has what it is and what was wanted."""


class DeviceError(TilewrightError):
    """A device that is not there, refused a call, or ran a kernel that did what no device may do."""


class DeviceMemoryError(DeviceError):
    """A device has no room for what is to be allocated. That says nothing about the kernel it is for."""


class BundleError(TilewrightError):
    """A model bundle that is damaged or was made for something else. The message names both sides."""


class MissingExtraError(TilewrightError, ImportError):
    """Packages are missing that come with an extra of Tilewright. The message says how to get them."""


class LeakageError(TilewrightError):
    """A problem, or a near duplicate, is in training and in judging: figures from that would flatter."""


class JournalError(TilewrightError):
    """A journal that cannot be opened or written, or that holds another sweep. What is in it stays readable."""


class ClusterError(TilewrightError):
    """A cluster that cannot be reached, or that has no device left for the work. What was measured is journalled."""


class OutputError(TilewrightError):
    """A file or folder that a user asked for cannot be written. The message has the path, the reason and advice."""


class PackError(TilewrightError):
    """A pack cannot be written or read. The message has the path or the kernel, the cause and what to do."""


class StoreError(TilewrightError):
    """The artifact store cannot be read or written. The message has the path, the cause and what to do."""


class CorruptError(StoreError):
    """An entry of the store whose files are not what its manifest says, or are gone."""


class RemoteError(StoreError):
    """A remote tier that did not answer in time, is gone, or refused."""


class RubbishError(StoreError):
    """Bytes that are not the entry they should be: format, digest or signature is wrong."""


def _revived(kind: type[TilewrightError], args: tuple[Any, ...]) -> TilewrightError:
    """An error as it was made, without its own constructor. What Python's class keeps of `args` is kept, too."""
    error = kind.__new__(kind, *args)
    theirs = next(each for each in kind.__mro__ if not issubclass(each, TilewrightError))
    theirs.__init__(error, *args)
    return error


def nearest_name(value: str, known: Iterable[str]) -> str | None:
    """The known name closest in spelling, ignoring case; None when nothing is near."""
    if len(value) > _LONGEST_NAME:
        return None
    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.lower(), name)
    match = difflib.get_close_matches(value.lower(), by_folded, n=1, cutoff=0.5)
    return by_folded[match[0]] if match else None


def choose(what: str, value: object, known: Iterable[str]) -> str:
    """`value` if it is one of `known`, else `UnknownValueError`. The one gate of every closed list."""
    known = tuple(known)
    if isinstance(value, str) and value in known:
        return value
    raise UnknownValueError(what, value, known)
