"""`topics pipeline sql`: a prompt over topics and tables of a lake, or one query."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from topics.cli.job import DEFAULT_MASTER, DEFAULT_URL, Master, TokenFile, Url, read_token
from topics.cli.lake import DEFAULT_LAKE, LakeDir
from topics.cli.output import cell, for_people, print_line, say
from topics.cli.spark import check_installed, open_spark
from topics.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.pipeline.jobs.sql import SqlOptions

Format: TypeAlias = Literal["table", "csv", "json"]
PROMPT, MORE = "topics> ", "   ...> "


def run_sql_command(
    *,
    query: Annotated[
        str | None, typer.Option("-e", "--execute", metavar="QUERY", help="answer this one and end")
    ] = None,
    form: Annotated[
        Format | None, typer.Option("--format", help="default: table on a terminal, else json")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the same as --format json")] = False,
    lake: LakeDir = DEFAULT_LAKE,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    master: Master = DEFAULT_MASTER,
) -> None:
    """Ask topics by their names, and tables of a lake with lake_ in front.

    Without -e it reads queries from stdin, each up to a line that ends with a semicolon.
    """
    check_installed()
    from topics.pipeline.jobs.sql import SqlOptions  # noqa: PLC0415 - an extra

    chosen: Format = form or ("table" if for_people(as_json=as_json) else "json")
    root = str(lake.absolute()) if Path(lake, "_log").is_dir() else None
    options = SqlOptions(url=url, token=read_token(token_file), lake=root)
    with open_spark("sql", master) as spark:
        if query is not None:
            _answer(spark, query, options, chosen)
        else:
            _prompt(spark, options, chosen)


def _prompt(spark: "SparkSession", options: "SqlOptions", form: Format) -> None:
    is_person = sys.stdin.isatty()
    waiting = ""
    while True:
        try:
            line = input((MORE if waiting else PROMPT) if is_person else "")
        except EOFError:
            return
        if not waiting and line.strip().lower() in ("quit", "exit", r"\q"):
            return
        waiting += f"{line}\n"
        if not line.rstrip().endswith(";"):
            continue
        query, waiting = waiting, ""
        try:
            _answer(spark, query, options, form)
        except PipelineError as error:
            if not is_person:
                raise
            say(str(error))


def _answer(spark: "SparkSession", query: str, options: "SqlOptions", form: Format) -> None:
    from topics.pipeline.jobs.sql import format_csv, rows_of, run_query  # noqa: PLC0415 - an extra

    frame = run_query(spark, query.strip().rstrip(";"), options)
    rows = rows_of(frame)
    if form == "json":
        for row in rows:
            print_line(row)
    elif form == "csv":
        for line in format_csv(frame.columns, rows):
            sys.stdout.write(f"{line}\n")
    else:
        _print_table(frame.columns, [[cell(row[name]) for name in frame.columns] for row in rows])


def _print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print what fits side by side, also where the output is no terminal."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, ["-" * width for width in widths], *rows]:
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{line.rstrip()}\n")
