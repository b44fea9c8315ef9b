"""Messages of kernels, such as those of `printf` and assertions: received in this process, without a HIP library.

A kernel puts packets into a buffer in device memory and waits for an answer; a thread answers them while the launch
runs. The structures are those of AMD's device libraries (ockl, hostcall_impl.cl and services.cl), as in
hip_shim/host_calls.cpp, which HIP programs use.
"""

from __future__ import annotations

import ctypes
import re
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tilewright.emulator.memory import Memory
from tilewright.emulator.native.native_engine import BATCH_WAVES

_LANES, _WORDS = 64, 8
_READY = 1  # of _Header.control: not answered yet
_PRINTF = 2  # of _Header.service
# Parts of the first word of a message: flags, the number of further words in this packet, and the message's number.
_BEGINS, _ENDS = 1, 2
_LENGTH_AT, _LENGTH_MASK, _NUMBER_AT = 5, 7, 8
_TO_STDERR = 1
_WORD_BYTES = 8
_PAUSE_S = 0.0002

_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0']*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?(?P<size>[hljztqL]*)(?P<kind>.)"
)
_BITS = {"hh": 8, "h": 16, "": 32}

Print = Callable[[str, bool], None]  # the text, and whether it is an error


class _Header(ctypes.Structure):
    _fields_ = (
        ("next", ctypes.c_uint64),
        ("lanes", ctypes.c_uint64),
        ("service", ctypes.c_uint32),
        ("control", ctypes.c_uint32),
    )


class _Payload(ctypes.Structure):
    _fields_ = (("words", ctypes.c_uint64 * _WORDS * _LANES),)


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("headers", ctypes.c_uint64),
        ("payloads", ctypes.c_uint64),
        ("doorbell", ctypes.c_uint64),
        ("free_stack", ctypes.c_uint64),
        ("ready_stack", ctypes.c_uint64),
        ("index_mask", ctypes.c_uint64),
    )


class _Doorbell(ctypes.Structure):
    """amd_signal_t. Without a mailbox kernels send no interrupt."""

    _fields_ = (
        ("kind", ctypes.c_int64),
        ("value", ctypes.c_int64),
        ("mailbox", ctypes.c_uint64),
        ("others", ctypes.c_uint32 * 10),
    )


class _Packets:
    """The buffer at an address in device memory, and the messages that are not complete yet."""

    def __init__(self, address: int, count: int, show: Print) -> None:
        ctypes.memset(address, 0, measure_packets(count))
        self._buffer = _Buffer.from_address(address)
        doorbell = _Doorbell.from_address(address + ctypes.sizeof(_Buffer))
        doorbell.kind = 1  # a signal of the user
        payloads = address + ctypes.sizeof(_Buffer) + ctypes.sizeof(_Doorbell)
        headers = payloads + count * ctypes.sizeof(_Payload)
        self._payloads = (_Payload * count).from_address(payloads)
        self._headers = (_Header * count).from_address(headers)
        self._mask = count - 1
        self._show = show
        self._messages: defaultdict[int, list[int]] = defaultdict(list)
        self._last_message = 0
        self._newest = 0  # of the packets that were answered
        buffer = self._buffer
        buffer.headers, buffer.payloads, buffer.doorbell = headers, payloads, ctypes.addressof(doorbell)
        buffer.index_mask = self._mask
        # All packets in a list. 0 ends a list, so the first one has a number above the mask.
        numbers = [count, *range(1, count)]
        for number, following in zip(numbers, [0, *numbers], strict=False):
            self._headers[number & self._mask].next = following
        buffer.free_stack = numbers[-1]

    def mute(self) -> None:
        """Answer all packets from now on, also those that were under way, and show nothing."""
        self._show = lambda *_: None
        self._messages = defaultdict(list)
        for header in self._headers:
            header.control &= ~_READY

    def answer(self) -> bool:
        """Answer all packets that wait; return whether there were any.

        The list of waiting packets is never cleared, which would need an atomic exchange: kernels give each packet
        another number when they use it again, so the newest one that was answered ends the list.
        """
        newest = at = self._buffer.ready_stack
        waiting = []
        while at not in (0, self._newest):
            waiting.append(at & self._mask)
            at = self._headers[at & self._mask].next
        self._newest = newest
        for index in reversed(waiting):  # in the order of their arrival
            self._answer_packet(index)
        return bool(waiting)

    def _answer_packet(self, index: int) -> None:
        header, payload = self._headers[index], self._payloads[index]
        for lane in range(_LANES):
            if header.lanes >> lane & 1:
                words = payload.words[lane]
                if header.service == _PRINTF:
                    words[0] = self._add_part(list(words))
                else:  # memory and functions of the host: there is none
                    words[0] = words[1] = 0
        header.control &= ~_READY

    def _add_part(self, words: Sequence[int]) -> int:
        """Add the words of a lane to its message, and show a complete one; return the answer."""
        head = words[0]
        if head & _BEGINS:
            self._last_message += 1
        number = self._last_message if head & _BEGINS else head >> _NUMBER_AT
        message = self._messages[number]
        message += words[1 : 1 + (head >> _LENGTH_AT & _LENGTH_MASK)]
        if not head & _ENDS:
            return number << _NUMBER_AT | head & (1 << _NUMBER_AT) - 1 & ~_BEGINS
        del self._messages[number]
        text = format_message(message[1:])
        self._show(text, bool(message and message[0] & _TO_STDERR))
        return len(text)


def measure_packets(count: int) -> int:
    """Return the bytes that a buffer of packets needs."""
    fixed = ctypes.sizeof(_Buffer) + ctypes.sizeof(_Doorbell)
    return fixed + count * (ctypes.sizeof(_Header) + ctypes.sizeof(_Payload))


@contextmanager
def receive_messages(memory: Memory, waves: int, show: Print) -> Iterator[int]:
    """Show the messages of a launch of `waves` waves inside the `with` block, which gets the packets' address."""
    # Each wave that runs may hold a packet, and never more of them run than a batch has.
    count = 1 << (min(max(waves, 1), BATCH_WAVES) - 1).bit_length()
    address = memory.allocate(measure_packets(count), "calls to the host", internal=True)
    try:
        packets = _Packets(address, count, show)
        ended = threading.Event()

        failures: list[Exception] = []

        def serve() -> None:
            while not ended.is_set():
                try:
                    if not packets.answer():
                        ended.wait(_PAUSE_S)
                except Exception as error:  # raised when the kernel has ended, which would wait for an answer forever
                    failures.append(error)
                    packets.mute()

        thread = threading.Thread(target=serve, name="tilewright-messages", daemon=True)
        thread.start()
        try:
            yield address
        finally:
            ended.set()
            thread.join()
            packets.answer()
        if failures:
            raise failures[0]
    finally:
        memory.free(address)


def format_message(words: Sequence[int]) -> str:
    """Return the text of a message: a format as in C, whose letters fill whole words, and one word per value."""
    reader = _WordReader(words)
    text = reader.take_text()
    return _CONVERSION.sub(lambda found: _convert(found, reader), text)


class _WordReader:
    def __init__(self, words: Sequence[int]) -> None:
        self._words = words
        self._at = 0

    def take(self) -> int:
        self._at += 1
        return self._words[self._at - 1] if self._at <= len(self._words) else 0

    def take_text(self) -> str:
        data = struct.pack(f"<{len(self._words) - self._at}Q", *self._words[self._at :])
        text = data.partition(b"\0")[0]
        self._at += len(text) // _WORD_BYTES + 1
        return text.decode(errors="replace")


def _convert(found: re.Match[str], reader: _WordReader) -> str:
    if found["kind"] == "%":
        return "%"
    form = "%" + found["flags"].replace("'", "")
    for part in (found["width"], found["precision"] or ""):
        form += part.replace("*", str(_cut(reader.take(), 32))) if "*" in part else part
    if found["kind"] == "s":
        return (form + "s") % reader.take_text()
    kind, value = _interpret(reader.take(), found["kind"], _BITS.get(found["size"], 64))
    return (form + kind) % value if kind else ""


def _interpret(word: int, kind: str, bits: int) -> tuple[str, int | float | str]:
    """Return a conversion of Python and its value; no conversion for `n` and unknown ones, which write nothing."""
    if kind in "di":
        return "d", _cut(word, bits)
    if kind in "uoxX":
        return kind, word & (1 << bits) - 1
    if kind in "eEfFgGaA":
        (number,) = struct.unpack("<d", struct.pack("<Q", word))
        return (kind, number) if kind not in "aA" else ("s", float(number).hex())
    if kind == "c":
        return "c", chr(word & 0xFF)
    return ("s", hex(word)) if kind == "p" else ("", 0)


def _cut(word: int, bits: int) -> int:
    """Return the lower bits of a word as a signed number."""
    half = 1 << bits - 1
    return (word & 2 * half - 1 ^ half) - half
