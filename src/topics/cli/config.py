"""`topics config show`: every setting, its value, and where the value came from."""

import os
from typing import Annotated

import msgspec
import typer

from topics.cli.settings import with_settings
from topics.config import RESERVED, LoadedConfig, settings, wal_shard_count

config_app = typer.Typer(help="Look at the settings.", no_args_is_help=True)

HIDDEN = "(hidden)"


@config_app.command("show")
@with_settings
def show_config(
    loaded: LoadedConfig,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Show every setting and where its value came from; without --json it is a TOML file."""
    lines = [_as_json(loaded)] if as_json else _as_toml(loaded)
    typer.echo("\n".join(lines))


def _as_json(loaded: LoadedConfig) -> str:
    document = {
        "settings": {
            name: {"value": getattr(loaded.config, name), "source": loaded.sources[name]}
            for name in settings()
        },
        "wal_shards_in_use": wal_shard_count(loaded.config),
        "other_variables": {name: _shown_variable(name) for name in loaded.reserved},
    }
    return msgspec.json.format(msgspec.json.encode(document).decode())


def _as_toml(loaded: LoadedConfig) -> list[str]:
    return [
        *(_toml_line(name, loaded) for name in settings()),
        *(
            f"# {name}={_shown_variable(name)}: {RESERVED[name].purpose}"
            for name in loaded.reserved
        ),
    ]


def _toml_line(name: str, loaded: LoadedConfig) -> str:
    value = getattr(loaded.config, name)
    note = loaded.sources[name]
    if name == "wal_shards" and not value:
        note += f", here {wal_shard_count(loaded.config)}"
    if value is None:
        return f"# {name} is not set".ljust(48) + f" # {note}"
    # A JSON string, number or boolean is a TOML one too.
    text = msgspec.json.encode(value).decode()
    return f"{name} = {text}".ljust(48) + f" # {note}"


def _shown_variable(name: str) -> str:
    return HIDDEN if RESERVED[name].secret else os.environ[name]
