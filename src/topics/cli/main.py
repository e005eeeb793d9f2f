"""Where the command starts, and where its errors end: one line on stderr and an exit code.

The commands are registered in `topics.cli.app`.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from topics.cli.exit_codes import ERROR, INTERRUPTED, exit_code_of
from topics.errors import TopicsError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave the process with its exit code."""
    try:
        _run(arguments)
    except TopicsError as error:
        from topics.cli.advice import explain  # noqa: PLC0415 - only who fails needs it

        _fail(explain(error), code=exit_code_of(error))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        _give_up_output()
        raise SystemExit(ERROR) from None  # whoever read has what it wanted: nobody to tell
    except OSError as problem:
        _give_up_output()
        where = problem.filename or "the output"
        _fail(f"{where} cannot be used: {problem.strerror or problem}", code=ERROR)


def _run(arguments: Sequence[str] | None) -> None:
    try:
        from topics.cli.app import app  # noqa: PLC0415 - typer is an extra: its lack is explained
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        _fail("the command line is not installed: run pip install 'topics-log[cli]'", code=ERROR)
    try:
        app(args=arguments)
    finally:
        sys.stdout.flush()  # a full disk is an error here, and only noise when Python ends


def _give_up_output() -> None:
    """Let Python end in silence: what is left in the buffer of stdout goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _fail(message: str, *, code: int) -> NoReturn:
    from topics.operate.text import printable  # noqa: PLC0415 - only who fails needs it

    line = " ".join(message.split())
    sys.stderr.write(f"topics: {printable(line) if sys.stderr.isatty() else line}\n")
    raise SystemExit(code)
