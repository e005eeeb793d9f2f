"""Where the topics and routers of a drawing stand: layers from left to right. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

ROUNDS = 4
"""Sweeps that bring neighbours close to each other; more change little."""


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
    """Sort each layer by the mean place of its neighbours, back and forth."""
    near: dict[str, list[str]] = {}
    for source, dest in edges:
        near.setdefault(source, []).append(dest)
        near.setdefault(dest, []).append(source)
    for _ in range(ROUNDS):
        place = {t: row for members in layers.values() for row, t in enumerate(members)}
        for members in layers.values():
            members.sort(key=lambda t: (_mean([place[n] for n in near.get(t, ())]), t))


def _mean(rows: Sequence[int]) -> float:
    return sum(rows) / len(rows) if rows else 0.0
