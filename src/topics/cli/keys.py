"""The keys of a server: read from its environment or from a file, and left in neither.

Keeps: whoever looks at the process (`/proc/PID/environ`, `ps e`), or is started by it, finds none.
"""

from collections.abc import MutableMapping
from pathlib import Path

from topics.errors import ConfigError

KEYS = "TOPICS_API_KEYS"
KEYS_FILE = "TOPICS_API_KEYS_FILE"
MAX_FILE_BYTES = 1 << 20
_SELF = Path("/proc/self")
# Where a process was given its environment: fields of `stat`, behind the name in parentheses.
_ENV_START, _ENV_END = 47, 48


def take_keys(environ: MutableMapping[str, str]) -> str:
    """Return the entries of all keys, by comma; nothing where none was given at all."""
    text, file = environ.pop(KEYS, None), environ.get(KEYS_FILE)
    if text is None and file is None:
        return ""
    if text is not None and file is not None:
        raise ConfigError(f"{KEYS} and {KEYS_FILE} are both set: unset one of them")
    source = KEYS
    if text is None:
        assert file is not None
        text, source = _read(file), KEYS_FILE
    else:
        overwrite(KEYS)
    if not text.strip():
        raise ConfigError(
            f"{source} is set, but there is no key in it: add one, or unset it for a server that "
            "asks for none"
        )
    return text


def overwrite(name: str) -> None:
    """Blank the value of a variable where the process was given it.

    To take it out of `os.environ` only forgets where it is: the system still shows it.
    """
    head = name.encode() + b"="
    try:
        fields = (_SELF / "stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        with (_SELF / "mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            at = start
            for entry in memory.read(end - start).split(b"\0"):
                if entry.startswith(head):
                    memory.seek(at + len(head))
                    memory.write(bytes(len(entry) - len(head)))
                at += len(entry) + 1
    except (OSError, ValueError, IndexError):
        pass  # a system that has no such files, or shows nothing


def is_shown(name: str) -> bool:
    """Tell whether the system still shows a value of a variable to those who may look."""
    try:
        entries = (_SELF / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    head = name.encode() + b"="
    return any(entry.startswith(head) and len(entry) > len(head) for entry in entries)


def _read(file: str) -> str:
    """Return the entries of a file: by line, by comma, or both."""
    if not file:
        raise ConfigError(f"{KEYS_FILE} is set, but empty: name the file, or unset it")
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        text = content.decode()
    except OSError as problem:
        raise ConfigError(f"{KEYS_FILE}: {file} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError:
        raise ConfigError(f"{KEYS_FILE}: {file} is not UTF-8") from None  # its bytes are secret
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{KEYS_FILE}: {file} is larger than {MAX_FILE_BYTES} bytes")
    lines = (line.strip().removesuffix(",") for line in text.splitlines())
    return ",".join(line for line in lines if line)
