"""Which parameters a route knows in its query: those it is described with.

Keeps: a misspelled one is refused before anything is done; `if_emtpy=true` must not delete a topic
that is not empty. Pages, probes and metrics take any: whoever asks for these adds their own.
"""

from topics.api.describe import DESCRIPTIONS
from topics.api.head import Head
from topics.nearest import unknown_field

_OF_POLYFILLS = ("lastEventId",)
"""What stands in for EventSource in a browser may add to the URL of a stream."""


def check_query(head: Head) -> None:
    """Refuse a parameter that the route of this head does not know."""
    route = head.route
    if not head.query or route is None or not route.needs_log or route.label not in DESCRIPTIONS:
        return
    known = DESCRIPTIONS[route.label].query
    for name in head.parameters():
        if name not in known and not (route.is_stream and name in _OF_POLYFILLS):
            raise unknown_field(name, known, what="query parameter")
