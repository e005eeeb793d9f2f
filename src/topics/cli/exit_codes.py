"""What the exit code of `topics` says; scripts may rely on it.

0  done, nothing wrong
1  it did not work: the message on stderr says why
2  usage: an argument or a setting cannot be used
3  damage: bytes on disk do not match their checksum, or are gone
4  locked: another process has the data directory open
"""

from typing import Final

from topics.errors import ConfigError, CorruptData, DirectoryLocked, TopicsError

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
DAMAGE: Final = 3
LOCKED: Final = 4


def exit_code_of(error: TopicsError) -> int:
    match error:
        case ConfigError():
            return USAGE
        case CorruptData():
            return DAMAGE
        case DirectoryLocked():
            return LOCKED
        case _:
            return ERROR
