"""Where the command starts, and where its errors end: one line on stderr and an exit code.

The commands are registered in `topics.cli.app`.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from topics.cli.exit_codes import ERROR, exit_code_of
from topics.errors import TopicsError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave the process with its exit code."""
    try:
        from topics.cli.app import app  # noqa: PLC0415 - typer is an extra: its lack is explained
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        _fail("the command line is not installed: run pip install 'topics[cli]'", code=ERROR)
    try:
        app(args=arguments)
    except TopicsError as error:
        _fail(str(error), code=exit_code_of(error))


def _fail(message: str, *, code: int) -> NoReturn:
    from topics.operate.text import printable  # noqa: PLC0415 - only who fails needs it

    line = " ".join(message.split())
    sys.stderr.write(f"topics: {printable(line) if sys.stderr.isatty() else line}\n")
    raise SystemExit(code)
