"""What the exit code of `topics` says; scripts may rely on it.

0  done, nothing wrong
1  it did not work: the message on stderr says why; none where the reader of a pipe went away
2  usage: an argument or a setting cannot be used
3  damage: bytes on disk do not match their checksum, or are gone
4  locked: another process has the data directory open
5  later: the server cannot be reached, or says that it cannot do it now
6  not there: no topic, router or group has this name
7  gaps: records in the range of an export were lost before they could be read
130  Ctrl-C ended it before it was done
"""

from typing import Final

from topics.errors import (
    ConfigError,
    CorruptData,
    DirectoryLocked,
    GroupNotFound,
    RetryLater,
    RouterNotFound,
    TopicNotFound,
    TopicsError,
)

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
DAMAGE: Final = 3
LOCKED: Final = 4
LATER: Final = 5
NOT_THERE: Final = 6
GAPS: Final = 7
INTERRUPTED: Final = 130


_CODES: Final[tuple[tuple[type[TopicsError], int], ...]] = (
    (ConfigError, USAGE),
    (CorruptData, DAMAGE),
    (DirectoryLocked, LOCKED),
    (RetryLater, LATER),
    (TopicNotFound, NOT_THERE),
    (RouterNotFound, NOT_THERE),
    (GroupNotFound, NOT_THERE),
)


def exit_code_of(error: TopicsError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), ERROR)
