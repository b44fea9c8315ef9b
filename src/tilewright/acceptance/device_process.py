"""The process that uses the device: `python -m tilewright.acceptance.device_process DESCRIPTOR`.

Requests arrive on stdin, one line of JSON each; the first line has the module paths. Each answer is a line to the
descriptor. A kernel that hangs or crashes ends only this process. Its output goes to the log of the request.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.base.events import Detail, Event, Notice, add_listener


def answer_request(request: dict[str, Any]) -> dict[str, Any]:
    """Make a step and return its result, or its error. `sound` says whether this process can be trusted any more."""
    from tilewright.acceptance.device_steps import STEPS  # noqa: PLC0415  (after the module paths are set)

    try:
        found = STEPS[request["step"]](**request["arguments"])
    except TilewrightError as error:
        sys.stderr.write(f"{request['step']}: {type(error).__name__}: {error}\n")
        return {"error": str(error), "kind": type(error).__name__, "sound": not isinstance(error, DeviceError)}
    except Exception as error:  # any other error fails this step only, and is logged
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}", "kind": "", "sound": False}
    return {"found": found, "sound": found.get("sound", True)}


def main(descriptor: int) -> int:
    """Answer requests until stdin ends, or until the device may be unusable."""
    from tilewright.bench.worker import set_parent_death_signal  # noqa: PLC0415  (it ends with its parent)

    set_parent_death_signal()
    sys.path[:] = json.loads(sys.stdin.readline())["path"]
    while text := sys.stdin.readline():
        request = json.loads(text)
        _redirect_output(request["log"])
        with add_listener(_log_event):
            answer = answer_request(request)
        sys.stderr.flush()
        data = (json.dumps(answer) + "\n").encode()
        while data:
            data = data[os.write(descriptor, data) :]
        if not answer["sound"]:
            return 0
    return 0


def _redirect_output(log: str) -> None:
    """Append everything that this process and its libraries print to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    os.close(opened)


def _log_event(event: Event) -> None:
    if isinstance(event, Notice | Detail):
        sys.stderr.write(f"{event.message}\n")


if __name__ == "__main__":
    code = main(int(sys.argv[1]))
    sys.stderr.flush()
    os._exit(code)  # threads that hang in a driver must not keep the process alive
