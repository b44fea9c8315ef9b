"""A runner that writes to the worker's result descriptor what no worker writes, as native code of a kernel could.

`worker_config.settings["says"]` is what it writes (see `SAID`), for problems of the op `scale` with `stride_x` of
RAMBLES. `when` says whether before its answer (the usual), after it, or when the next task is asked.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from tilewright.bench.executor import WorkerConfig, WorkItem
from tilewright.bench.plan import parse_problem
from tilewright.bench.record import Record, TimeStats

RAMBLES = 120
_LATE: list[bytes] = []


def compute_reference(work: WorkItem, worker_config: WorkerConfig) -> None:
    while _LATE:  # before the next task begins
        os.write(int(sys.argv[2]), _LATE.pop())


def run(work: WorkItem, worker_config: WorkerConfig) -> Record:
    problem = parse_problem(work.task.op, work.task.problem)
    record = Record(task=work.task, status="ok", kind="counters", counters={"n": problem.n})
    if problem.stride_x == RAMBLES:
        line = said(worker_config.settings["says"], record)
        when = worker_config.settings.get("when", "before")
        if when == "before":
            _write(line)
        elif when == "after":
            threading.Timer(0.2, _write, [line]).start()
        else:
            _LATE.append(line)
    return record


def poisoned(work: WorkItem, worker_config: WorkerConfig) -> Record:
    """Answer at once, but for the problems of two numbers: one writes garbage, one takes the coordinator down."""
    number = json.loads(work.task.problem)["m"]
    if number == worker_config.settings.get("garbage"):
        _write(SAID["null"])
    elif number == worker_config.settings.get("kills"):
        os.kill(os.getppid(), signal.SIGKILL)
    return Record(task=work.task, status="ok", kind="counters", counters={"number": 1 + number})


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(int(sys.argv[2]), data) :]
    time.sleep(0.01)


def said(name: str, record: Record) -> bytes:
    """A line of garbage by its name."""
    if name == "half a line":
        return b'{"done":'
    if name == "second answer":
        return _answer({}, {}, record=record)
    return SAID[name] if name in SAID else _answer(*CHANGES[name], record=record)


SAID = {
    "number": b"5\n",
    "null": b"null\n",
    "list": b'["done"]\n',
    "text": b'"done"\n',
    "brackets": b"[" * 200_000 + b"\n",
    "objects": b'{"done":' * 50_000 + b"\n",
    "done text": b'{"done":"abc"}\n',
    "done without sound": b'{"done":{}}\n',
    "unknown": b'{"hello":1}\n',
    "ready again": b'{"ready":1}\n',
    "begun for another": b'{"begun":"0"}\n',
    "not UTF-8": b"\xff\xfe\x00\n",
    "UTF-16": '{"alive":1}'.encode("utf-16") + b"\n",
    "digits": b'{"alive":' + b"9" * 5000 + b"}\n",
    "alive is NaN": b'{"alive":NaN}\n',
    "half a record": b'{"done":{"schema":1,"key":"0\n',
    "empty": b"\n",
    "endless line": b"x" * (3 << 20),
    "huge line": b'{"alive":"' + b"x" * (2 << 20) + b'"}\n',
}
_TIMES = {"us": 2.0, "us_min": 1.0, "us_max": 3.0, "us_p10": 1.0, "us_p90": 3.0, "runs": 3, "warmups": 1}
_TIMES |= {"clock_mhz": None, "power_w": None}
_TIMED: dict[str, Any] = {"kind": "time", "counters": {}, "times": _TIMES}
# Changes of an answer that is right otherwise, and of its times.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "share text": ({"share": "abc"}, {}),
    "share list": ({"share": [1]}, {}),
    "took_s text": ({"took_s": "long"}, {}),
    "took_s NaN": ({"took_s": float("nan")}, {}),
    "took_s huge": ({"took_s": 10**400}, {}),
    "started true": ({"started": True}, {}),
    "counters text": ({"counters": {"n": "many"}}, {}),
    "counters float": ({"counters": {"n": 1.5}}, {}),
    "counters huge": ({"counters": {"n": 2**63}}, {}),
    "counters list": ({"counters": [1]}, {}),
    "counter named }": ({"counters": {"a}b": 1}}, {}),
    "message number": ({"message": 7}, {}),
    "message surrogate": ({"message": "\ud800"}, {}),
    "message huge": ({"message": "x" * (2 << 20)}, {}),
    "worker null": ({"worker": None}, {}),
    "status list": ({"status": ["ok"]}, {}),
    "status unknown": ({"status": "splendid"}, {}),
    "task text": ({"task": "none"}, {}),
    "times text": ({**_TIMED, "times": "none"}, {}),
    "times inf": (_TIMED, {"us": float("inf"), "us_max": float("inf")}),
    "times p90 NaN": (_TIMED, {"us_p90": float("nan")}),
    "times text us": (_TIMED, {"us": "2"}),
    "times runs float": (_TIMED, {"runs": 3.5}),
    "times runs huge": (_TIMED, {"runs": 2**31}),
    "times clock text": (_TIMED, {"clock_mhz": "fast"}),
    "schema": ({"schema": 2}, {}),
    "key": ({"key": "0" * 32}, {}),
    "extra": ({"more": 1}, {}),
}


def _answer(changes: dict[str, Any], times: dict[str, Any], record: Record) -> bytes:
    body = {**record.to_json(), **changes}
    if times:
        body["times"] = {**_TIMES, **times}
    return json.dumps({"done": body, "sound": True}).encode() + b"\n"


def good_times() -> TimeStats:
    """The times that `CHANGES` change."""
    return TimeStats(**_TIMES)
