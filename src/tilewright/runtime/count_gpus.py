"""A program of its own: how many GPUs the HIP library sees. Run in another process, so that its caller loads no HIP.

Its arguments are names of libraries to try. It writes "<status> <count>", with the status that hipGetDeviceCount gave,
or "none" when there is no such library.
"""

from __future__ import annotations

import ctypes
import sys


def main(names: list[str]) -> str:
    """What to write."""
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue  # the next name
        count = ctypes.c_int(0)
        status = library.hipGetDeviceCount(ctypes.byref(count))
        return f"{status} {count.value}"
    return "none"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
