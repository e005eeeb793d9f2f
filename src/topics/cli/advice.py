"""What a person at a terminal can do about an error whose message speaks to every caller."""

from typing import Final

from topics.errors import Forbidden, TopicNotFound, TopicsError, Unauthorized, Unreachable

_ADVICE: Final[tuple[tuple[type[TopicsError], str], ...]] = (
    (Unauthorized, "set TOPICS_TOKEN to a key of this server, or use a context that has one"),
    (Forbidden, "the key is that of TOPICS_TOKEN or of the context"),
    (Unreachable, "does it run? Start one by `topics serve`, or name another by --url"),
    (TopicNotFound, "`topics topic ls` lists those that do"),
)


def explain(error: TopicsError) -> str:
    """Return the message of an error, where it was, and what to do about it if that is known."""
    advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), None)
    told = "; ".join([str(error), *getattr(error, "__notes__", ())])
    return told if advice is None else f"{told}; {advice}"
