"""How many requests came, how they ended and how long they took."""

from topics.api.routes import Route
from topics.histogram import LATENCY_US, Histogram


class RequestMetrics:
    """Counts by route and status."""

    def __init__(self) -> None:
        self.latency_us: dict[tuple[Route, int], Histogram] = {}
        self.records_delivered = 0
        self.tombstones = 0
        self.sse_connections = 0
        self.websocket_connections = 0
        self.watch_sessions = 0

    def observe(self, route: Route, status: int, seconds: float) -> None:
        self.latency_of(route, status).observe(seconds * 1e6)

    def latency_of(self, route: Route, status: int) -> Histogram:
        key = route, status
        histogram = self.latency_us.get(key)
        if histogram is None:
            histogram = self.latency_us[key] = Histogram(LATENCY_US)
        return histogram
