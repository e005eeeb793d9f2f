"""The settings as flags: one for every field of `ServerConfig`, made from its description."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from topics.config import LoadedConfig, Setting, load_config, settings
from topics.errors import ConfigError

PANEL = "Settings: flag > environment > file > default"

ConfigFile = Annotated[
    str | None,
    typer.Option("--config", envvar="TOPICS_CONFIG", metavar="FILE", help="TOML file to read"),
]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--config` and a flag per setting; the command gets what they make as its first argument.

    Typer reads options off a signature, so this builds one instead of forty parameters by hand.
    """
    first, *own = inspect.signature(command).parameters.values()
    assert first.annotation is LoadedConfig

    def run(**arguments: str | None) -> None:
        flags = {name: arguments.pop(name) for name in settings()}
        command(load_settings(config_file=arguments.pop("config"), flags=flags), **arguments)

    parameters = [
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
        _parameter("config", ConfigFile),
        *(_parameter(setting.name, _flag(setting)) for setting in settings().values()),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by typer
    run.__doc__ = command.__doc__
    return run


def load_settings(*, config_file: str | None, flags: dict[str, str | None]) -> LoadedConfig:
    """Read the file and the environment, once."""
    text = "" if config_file is None else _read_file(config_file)
    return load_config(
        toml_text=text,
        toml_name=config_file or "",
        environ=os.environ,
        flags=flags,
    )


def _read_file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"the config file {name} cannot be read: {problem}") from problem


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword_only, default=None, annotation=annotation)


def _flag(setting: Setting) -> object:
    option = typer.Option(
        setting.flag,
        metavar=setting.kind.upper(),
        help=f"{setting.description}; default {setting.default_text}",
        rich_help_panel=PANEL,
    )
    return Annotated[str | None, option]
