"""Where the topics and routers of a drawing stand: layers from left to right. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Node(Struct, frozen=True, kw_only=True):
    """A topic: its layer, and its place in it from the top."""

    topic: str
    layer: int
    row: int


def plan_layers(edges: Sequence[tuple[str, str]]) -> list[Node]:
    """Put every topic to the right of those that are copied into it, but where they go round."""
    topics = sorted({end for edge in edges for end in edge})
    forward = _without_cycles(topics, edges)
    depth = dict.fromkeys(topics, 0)
    for _ in topics:  # the longest path passes each topic once
        moved = [(dest, depth[source] + 1) for source, dest in forward]
        deeper = {dest: layer for dest, layer in sorted(moved) if layer > depth[dest]}
        if not deeper:
            break
        depth |= deeper
    layers: dict[int, list[str]] = {}
    for topic in topics:
        layers.setdefault(depth[topic], []).append(topic)
    _untangle(layers, forward)
    return [
        Node(topic=topic, layer=layer, row=row)
        for layer, members in sorted(layers.items())
        for row, topic in enumerate(members)
    ]


def _without_cycles(
    topics: Sequence[str], edges: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Leave out the edges that lead back to where a walk came from."""
    after: dict[str, list[str]] = {topic: [] for topic in topics}
    for source, dest in sorted(set(edges)):
        after[source].append(dest)
    done: set[str] = set()
    kept: list[tuple[str, str]] = []
    for root in topics:
        path: dict[str, None] = {}
        stack = [(root, False)]
        while stack:
            topic, leaving = stack.pop()
            if leaving:
                del path[topic]
                done.add(topic)
                continue
            if topic in done or topic in path:
                continue
            path[topic] = None
            stack.append((topic, True))
            stack += [(dest, False) for dest in after[topic] if dest not in path]
            kept += [(topic, dest) for dest in after[topic] if dest not in path]
    return kept


def _untangle(layers: Mapping[int, list[str]], edges: Sequence[tuple[str, str]]) -> None:
    """Sort each layer, from the left, by the mean place of what is copied into its topics."""
    sources: dict[str, list[str]] = {}
    for source, dest in edges:
        sources.setdefault(dest, []).append(source)
    place: dict[str, int] = {}
    for _, members in sorted(layers.items()):
        means = {topic: _mean([place[one] for one in sources.get(topic, ())]) for topic in members}
        members[:] = [topic for _, topic in sorted((means[topic], topic) for topic in members)]
        place |= {topic: row for row, topic in enumerate(members)}


def _mean(rows: Sequence[int]) -> float:
    return sum(rows) / len(rows) if rows else 0.0
