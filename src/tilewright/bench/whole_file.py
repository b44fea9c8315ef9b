"""Names for files that are written beside their place, and moved there when they are whole."""

from __future__ import annotations

import secrets
from pathlib import Path


def hidden_beside(path: Path) -> Path:
    """A name that no other thread, process or machine uses: numbers of processes repeat on a shared disk."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")
