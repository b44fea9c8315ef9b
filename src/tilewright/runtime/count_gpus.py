"""A separate program that counts the GPUs of the HIP library, so that its caller does not load HIP.

Its arguments are names of libraries to try. It writes "<status> <count>", with the status of hipGetDeviceCount, or
"none" without such a library.
"""

from __future__ import annotations

import ctypes
import sys


def main(names: list[str]) -> str:
    """The output of the program."""
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
