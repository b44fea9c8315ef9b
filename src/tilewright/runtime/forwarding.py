"""The messages between a process and that of its emulated devices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tilewright.emulator.stand_in.settings import DEFAULT, LaunchRecord, Settings


class Kind(Enum):
    """What is asked for."""

    FACT = "fact"  # a method of `Hip` that gives a fact
    LOAD = "load"  # a kernel library is loaded
    CALL = "call"  # a C function is called: of HIP, or of a kernel library


class Place(Enum):
    """An argument that is an address, with which the other process could do nothing."""

    HOST = "host"  # the bytes that are sent beside the message


@dataclass(frozen=True, slots=True)
class Block:
    """The bytes that an argument points to. They come back as the function left them."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A call, and all of the calling thread that it depends on: the other process keeps nothing of threads.

    `upload` bytes follow it, `download` bytes are wanted back. `message` is the function of the library that says what
    went wrong, if the status is not 0.
    """

    kind: Kind
    name: str
    arguments: tuple[Any, ...] = ()
    library: Path | None = None
    message: str = ""
    upload: int = 0
    download: int = 0
    device: int = 0
    settings: Settings = DEFAULT
    label: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a request; `downloaded` bytes follow it.

    `kept` are the faults behind a status, each with its device. `error` is raised instead of giving a result.
    """

    result: Any = None
    blocks: tuple[bytes, ...] = ()
    message: bytes = b""
    records: tuple[LaunchRecord, ...] = ()
    kept: tuple[tuple[int | None, BaseException], ...] = ()
    error: BaseException | None = None
    downloaded: int = 0
