"""The command line: the only layer that prints."""

from __future__ import annotations


def main() -> None:
    """Run the command that this process's arguments name, and exit."""
    from tilewright.cli.app import root

    root.main(prog_name="tilewright")
