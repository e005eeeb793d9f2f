"""Named servers: one file of the user, readable by nobody else. It holds no tokens.

A token is named, not kept: by a variable of the environment or by a file.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from topics.errors import ConfigError

NAME_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MODE: Final = 0o600

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]


class Context(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One server, and where its token is to be found."""

    url: str
    token_env: str | None = None
    token_file: str | None = None

    def read_token(self) -> str:
        """Return the token; empty where there is none."""
        if self.token_env is not None:
            token = os.environ.get(self.token_env, "")
            if not token:
                raise ConfigError(f"the variable {self.token_env} of this context is not set")
            return token
        if self.token_file is not None:
            try:
                return Path(self.token_file).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as problem:
                reason = getattr(problem, "strerror", None) or "it is no text"
                raise ConfigError(
                    f"the token file {self.token_file} cannot be read: {reason}"
                ) from None
        return ""


class Contexts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of them, and which one is used when none is named."""

    current: str | None = None
    contexts: dict[Name, Context] = {}

    def get(self, name: str) -> Context:
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none yet"
            raise ConfigError(f"there is no context {name!r}; there are: {known}")
        return self.contexts[name]


def contexts_path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "topics" / "contexts.toml"


def load_contexts() -> Contexts:
    path = contexts_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} cannot be read: {problem}") from problem
    try:
        return msgspec.convert(tomllib.loads(text), Contexts)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as problem:
        raise ConfigError(f"{path}: {problem}") from problem


def complete_contexts(incomplete: str) -> list[str]:
    """Return names for a shell; nothing where the file makes no sense: it is told elsewhere."""
    try:
        names = sorted(load_contexts().contexts)
    except ConfigError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def save_contexts(contexts: Contexts) -> None:
    """Write the file whole, and never readable by others, not even for a moment."""
    path = contexts_path()
    text = format_contexts(contexts)
    part = path.with_suffix(".part")
    try:
        msgspec.convert(tomllib.loads(text), Contexts)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "w") as file:  # noqa: PTH123 - pathlib opens without a mode
            file.write(text)
        part.replace(path)
    except OSError as problem:
        raise ConfigError(f"{path} cannot be written: {problem}") from problem
    except msgspec.ValidationError as problem:
        raise ConfigError(f"this context cannot be kept: {problem}") from problem


def format_contexts(contexts: Contexts) -> str:
    """Return TOML: its strings are those of JSON."""
    lines = []
    if contexts.current is not None:
        lines.append(f"current = {_quoted(contexts.current)}")
    for name, context in sorted(contexts.contexts.items()):
        lines.append(f"\n[contexts.{_quoted(name)}]")
        fields = msgspec.to_builtins(context)
        lines += [f"{field} = {_quoted(value)}" for field, value in fields.items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
