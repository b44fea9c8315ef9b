"""`tilewright inspect`: compile one kernel and show what the compiler made of it."""

import click

from tilewright.cli.command import Command


@click.command(cls=Command, examples=("tilewright inspect",))
def command() -> None:
    """To do."""
