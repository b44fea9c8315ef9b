"""The options of functions for arrays: defaults of the process, and of a `with` block."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, UnknownValueError, choose
from tilewright.select.tuned import TunedTable, read_tuned

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

BUILD = ("auto", "ahead", "never")
VERIFY = ("never", "first")


@dataclass(frozen=True, eq=False)
class Options:
    """How functions for arrays select and build kernels. Compared by identity: calls are cached for each of them.

    `pool` are the kernels to select from: spaces, sets, their names, or kernels; None is the portfolio of the op.
    `tuned` is a table of measured winners, or its file. `build` is "auto" (build the selected kernel on the first
    call), "ahead" (build all kernels of the pool for the problem's types on the first call) or "never" (use only
    kernels that are in the store). `verify` is "never" or "first": check each kernel on its trials before its first
    use.
    """

    device: Device | str | None = None
    pool: Any = None
    tuned: TunedTable | None = None
    build: str = "auto"
    verify: str = "never"

    def update(self, changes: dict[str, Any]) -> Options:
        """A copy with other values. Unknown names and values are errors."""
        for name in changes:
            if name not in _NAMES:
                raise UnknownValueError("option", name, _NAMES)
        read = dict(changes)
        if not isinstance(read.get("device"), Hashable):
            raise InvalidValueError(f"the option device is {read['device']!r}, must be a `Device` or its name")
        if "build" in read:
            choose("value of the option build", read["build"], BUILD)
        if "verify" in read:
            choose("value of the option verify", read["verify"], VERIFY)
        if isinstance(read.get("tuned"), str | Path):
            read["tuned"] = read_tuned(Path(read["tuned"]))
        made = dataclasses.replace(self, **read)
        # A `with` block in a loop must find the calls that it cached before. The values are kept alive by the entry.
        key = (made.device, id(made.pool), id(made.tuned), made.build, made.verify)
        if len(_known) >= MOST_OPTIONS:
            _known.clear()
        return _known.setdefault(key, made)


# Maximum number of different options that are kept.
MOST_OPTIONS = 256
_known: dict[Any, Options] = {}
_NAMES = tuple(field.name for field in dataclasses.fields(Options))
_defaults = Options()
_current: ContextVar[Options | None] = ContextVar("tilewright_options", default=None)


def get_options() -> Options:
    """The options of the innermost `with` block of this context, else the defaults of the process."""
    return _current.get() or _defaults


@contextmanager
def options(**changes: Any) -> Iterator[Options]:
    """Change options inside a `with` block: `device`, `pool`, `tuned`, `build`, `verify`.

        with tw.options(device="emulated:gfx942", build="never"):
            c = tw.matmul(a, b)

    `pool` are the kernels to select from: spaces, sets, names of sets, or kernels. The default is a portfolio for the
    op, the types and the GPU. `tuned` is a table of measured winners, or its file. `build` is "auto" (build the
    selected kernel on the first call), "ahead" (build the whole pool on the first call) or "never" (use only kernels
    that are already in the store). `verify="first"` checks each kernel on its trials before its first use.
    """
    token = _current.set(get_options().update(changes))
    try:
        yield get_options()
    finally:
        _current.reset(token)


def set_options(**changes: Any) -> None:
    """Change the default options of this process; see `options`."""
    global _defaults  # noqa: PLW0603  (the defaults of the process)
    _defaults = _defaults.update(changes)
