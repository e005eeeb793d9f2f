"""The map of the command line on one screen: every command is one line here."""

import typer

from topics.cli.bench import run_bench
from topics.cli.config import show_config
from topics.cli.context import context_app
from topics.cli.demo import run_demo
from topics.cli.export import run_export
from topics.cli.group import group_app
from topics.cli.import_broker import run_import_broker
from topics.cli.import_file import run_import
from topics.cli.inspect import run_inspect
from topics.cli.pipeline import pipeline_app
from topics.cli.put import run_put
from topics.cli.queue import queue_app
from topics.cli.repair import run_repair
from topics.cli.router import router_app
from topics.cli.serve import run_serve
from topics.cli.tail import run_tail
from topics.cli.top import run_top
from topics.cli.topic import topic_app
from topics.cli.up import run_up
from topics.cli.verify import run_verify
from topics.cli.version import show_version

app = typer.Typer(
    name="topics",
    help="A durable log: append, read what you missed, survive a power cut.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Look at the settings.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(topic_app, name="topic")
app.add_typer(group_app, name="group")
app.add_typer(queue_app, name="queue")
app.add_typer(router_app, name="router")
app.add_typer(context_app, name="context")
app.add_typer(pipeline_app, name="pipeline")

app.command("up")(run_up)
app.command("serve")(run_serve)
app.command("demo")(run_demo)
app.command("put")(run_put)
app.command("tail")(run_tail)
app.command("export")(run_export)
app.command("import")(run_import)
app.command("top")(run_top)
app.command("bench")(run_bench)
app.command("verify")(run_verify)
app.command("inspect")(run_inspect)
app.command("repair")(run_repair)
app.command("import-broker")(run_import_broker)
app.command("version")(show_version)
config_app.command("show")(show_config)
