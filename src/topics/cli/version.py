"""`topics version`: what runs here."""

import platform
from typing import Annotated

import msgspec
import typer

from topics import __version__, kernel


def show_version(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Show the version, the Python, and which kernel runs: native or pure."""
    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "kernel": kernel.IMPLEMENTATION,
    }
    if as_json:
        typer.echo(msgspec.json.encode(facts).decode())
        return
    typer.echo(f"topics {facts['version']}")
    typer.echo(f"{facts['python_implementation']} {facts['python']}")
    typer.echo(f"kernel {facts['kernel']}")
