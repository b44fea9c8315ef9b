"""The header that the launchers of all ops include for their C functions."""

from __future__ import annotations

from pathlib import Path

NAME = "tilewright_call.hpp"
SUPPORT = {NAME: Path(__file__).parent / "c_interface.hpp"}


def format_cpp_bool(value: bool) -> str:
    """A flag as a C++ literal."""
    return "true" if value else "false"
