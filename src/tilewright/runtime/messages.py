"""The messages between a process and its emulator process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tilewright.emulator.hip_shim.settings import DEFAULT, LaunchRecord, ShimSettings


class RequestKind(Enum):
    """The kind of a request."""

    FACT = "fact"  # call a method of `Hip` that returns a value
    LOAD = "load"  # load a kernel library
    CALL = "call"  # call a C function of HIP or of a kernel library


class AddressArgument(Enum):
    """An argument that is an address of this process, which is invalid in the other one."""

    HOST = "host"  # the bytes that are sent with the message


@dataclass(frozen=True, slots=True)
class ArgumentBytes:
    """The bytes that an argument points to. The reply has the bytes after the call."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A call, and the state of the calling thread that it depends on: the other process has no state of threads.

    `upload` bytes follow it, `download` bytes are expected back. `message` is the library's function that returns the
    error message if the status is not 0.
    """

    kind: RequestKind
    name: str
    arguments: tuple[Any, ...] = ()
    library: Path | None = None
    message: str = ""
    upload: int = 0
    download: int = 0
    device: int = 0
    settings: ShimSettings = DEFAULT
    label: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a request; `downloaded` bytes follow it.

    `kept` are the faults that caused a status, each with its device. `error` is raised instead of returning a result.
    """

    result: Any = None
    blocks: tuple[bytes, ...] = ()
    message: bytes = b""
    records: tuple[LaunchRecord, ...] = ()
    kept: tuple[tuple[int | None, BaseException], ...] = ()
    error: BaseException | None = None
    downloaded: int = 0
