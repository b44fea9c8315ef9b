"""Remove private names from results: paths of this machine, the names of its host and of its user."""

from __future__ import annotations

import contextlib
import getpass
import re
import socket
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

# Folders whose content is the same on every machine with the same packages.
_PUBLIC = ("/usr/", "/opt/rocm", "/lib/", "/lib64/", "/dev/", "/sys/", "/proc/", "/etc/os-release")
# An absolute path of at least two parts: "m/n" and "1/2" are none.
_PATH = re.compile(r"(?<![\w.~/…])/(?:[\w.@+~=-]+/)+[\w.@+~=-]*")
# Shorter names are too common as words or parts of words.
_LEAST_NAME = 3
# Names that say nothing about a person or an organisation.
_COMMON = frozenset(("root", "user", "localhost", "ubuntu", "debian", "runner", "vm", "host"))


class Redactor:
    """Replaces private names in texts and documents."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        found = collect_private_names() if names is None else names
        longest = sorted((name for name in found if _is_private(name)), key=len, reverse=True)
        self._names = {name: found[name] for name in longest}

    def redact_text(self, text: str) -> str:
        """The text with paths cut to their last part, and with the names of host and user replaced."""
        text = _PATH.sub(lambda match: _shorten_path(match[0]), text)
        for name, word in self._names.items():
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", word, text)
        return text

    def redact(self, value: Any) -> Any:
        """A document of plain values with all its texts redacted, keys included."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            return {self.redact(key): self.redact(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact(each) for each in value]
        return value


def collect_private_names() -> dict[str, str]:
    """The names of the host and of the user, each with its replacement."""
    host = socket.gethostname()
    names = {host: "HOST", host.partition(".")[0]: "HOST", Path.home().name: "USER"}
    with contextlib.suppress(KeyError, OSError):  # a user without a name has none to hide
        names[getpass.getuser()] = "USER"
    return names


def _is_private(name: str) -> bool:
    return len(name) >= _LEAST_NAME and name.casefold() not in _COMMON


def _shorten_path(path: str) -> str:
    if path.startswith(_PUBLIC):
        return path
    return f"…/{PurePosixPath(path).name}"
