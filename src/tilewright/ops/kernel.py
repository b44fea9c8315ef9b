"""A kernel's identity: op, config and arch, with a readable name and a digest over every field."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from tilewright.base.digest import digest_value
from tilewright.ops.fields import ConfigBase, dump_config, dump_identity, format_tokens

# Changes whenever the meaning of a field changes, so that an old digest never identifies a new kernel.
IDENTITY_SCHEMA = 1
DIGEST_LENGTH = 12


@dataclass(frozen=True, repr=False)
class Kernel:
    """One kernel, the object of `render`, `build` and `run`. Equal kernels have equal slugs and digests."""

    op: str
    config: ConfigBase
    arch: str

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """The complete kernel as JSON: op, arch and every field of the config, defaults included."""
        return {"op": self.op, "arch": self.arch, "config": dump_config(self.config)}

    @functools.cached_property
    def digest(self) -> str:
        """48 bits over the schema and all facts, without newer fields that have their default."""
        identity = {**self.facts, "config": dump_identity(self.config)}
        return digest_value({"schema": IDENTITY_SCHEMA, **identity})[:DIGEST_LENGTH]

    @functools.cached_property
    def slug(self) -> str:
        """The kernel's name: op, arch, every field that differs from its default, digest."""
        return "-".join([self.op, self.arch, *format_tokens(self.config), self.digest])

    @property
    def symbol(self) -> str:
        """The prefix of the kernel's C functions."""
        return f"tw_{re.sub('[^a-z0-9]', '_', self.op)}_{self.digest}"

    def __str__(self) -> str:
        return self.slug

    def __repr__(self) -> str:
        return f"Kernel({self.slug!r})"
