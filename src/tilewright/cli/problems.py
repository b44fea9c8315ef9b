"""Problems on a command line: `m=64,n=64,k=32`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InvalidValueError, choose

if TYPE_CHECKING:
    from tilewright.ops.fields import ConfigBase
    from tilewright.ops.op import Op


def read_problem(op: Op, config: ConfigBase, text: str) -> Any:
    """The problem that a text describes; fields that problem and config share are the config's."""
    names = [f.name for f in dataclasses.fields(op.problem_type)]
    shared = {name: getattr(config, name) for name in names if hasattr(config, name)}
    own = [name for name in names if name not in shared]
    given: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise InvalidValueError(f"--problem takes FIELD=VALUE,…, got {pair!r} in {text!r}")
        choose(f"field of a {op.name} problem that the kernel leaves open", name, own)
        if name in given:
            raise InvalidValueError(f"--problem {text} has {name} twice")
        given[name] = int(value) if value.isdecimal() else value
    missing = [
        f.name
        for f in dataclasses.fields(op.problem_type)
        if f.name in own and f.name not in given and f.default is dataclasses.MISSING
    ]
    if missing:
        raise InvalidValueError(f"--problem {text} does not say {', '.join(missing)}")
    return op.problem_type(**shared, **given)
