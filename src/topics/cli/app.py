"""The map of the command line on one screen: every command is one entry here."""

from typing import Annotated

import typer

from topics import __version__
from topics.cli.later import Later, build_app

COMMANDS = (
    Later(
        "up",
        "topics.cli.up:run_up",
        "Run everything: server, console, and a pipeline that writes every topic to a lake.",
    ),
    Later(
        "serve",
        "topics.cli.serve:run_serve",
        "Serve a data directory over HTTP until Ctrl-C or SIGTERM.",
    ),
    Later(
        "demo",
        "topics.cli.demo:run_demo",
        "Feed a server with a sample workload for a while: a shop, its mails, some sensors.",
    ),
    Later(
        "put",
        "topics.cli.put:run_put",
        "Append records: one for each DATA, or for each line of stdin.",
    ),
    Later(
        "tail",
        "topics.cli.tail:run_tail",
        "Print records as they come, until Ctrl-C; a server that restarts is waited for.",
    ),
    Later(
        "export",
        "topics.cli.export:run_export",
        "Write what topics hold now into a file, as JSON lines or Parquet.",
    ),
    Later(
        "import",
        "topics.cli.import_file:run_import",
        "Append the records of files, as `topics export` and `topics tail` write them.",
    ),
    Later(
        "top",
        "topics.cli.top:run_top",
        "Show the busiest topics, queues and groups of a server; q or Ctrl-C leaves.",
    ),
    Later(
        "bench",
        "topics.cli.bench:run_bench",
        "Measure a server for a few seconds: append one by one, in batches, then read.",
    ),
    Later(
        "backup",
        "topics.cli.backup:run_backup",
        "Have a server copy everything, as it is at one moment, while it goes on.",
    ),
    Later(
        "verify",
        "topics.cli.verify:run_verify",
        "Check every frame, index entry and snapshot of a data directory; change nothing.",
    ),
    Later(
        "inspect",
        "topics.cli.inspect:run_inspect",
        "Show what is where: format, snapshots, logs, topics, segments, holes; change nothing.",
    ),
    Later(
        "repair",
        "topics.cli.repair:run_repair",
        "Save everything readable of a damaged data directory into a new one.",
    ),
    Later(
        "import-broker",
        "topics.cli.import_broker:run_import_broker",
        "Take over the files of the old broker: <topic>-<n>.log and offsets.json.",
    ),
    Later(
        "version",
        "topics.cli.version:show_version",
        "Show the version, the Python, and which kernel runs: native or pure.",
    ),
    Later("config", "topics.cli.config:config_app", "Look at the settings."),
    Later("topic", "topics.cli.topic:topic_app", "Look at topics, make, change and remove them."),
    Later("group", "topics.cli.group:group_app", "Look at consumer groups, move and remove them."),
    Later(
        "queue", "topics.cli.queue:queue_app", "Look at queues; put, claim, ack and redrive jobs."
    ),
    Later("router", "topics.cli.router:router_app", "Look at routers, make and remove them."),
    Later("context", "topics.cli.context:context_app", "Name servers, and pick one."),
    Later("pipeline", "topics.cli.pipeline:pipeline_app", "Bulk work on Spark."),
)


def _say_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
        typer.echo(f"topics {__version__}")
        raise typer.Exit


def begin(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_say_version, help="Say the version and end."
        ),
    ] = False,
) -> None:
    """Take what stands before a command."""


app = build_app(
    COMMANDS,
    begin,
    name="topics",
    help="A durable log: append, read what you missed, survive a power cut.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
