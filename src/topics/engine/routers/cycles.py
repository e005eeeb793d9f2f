"""Which way routers lead: paths and circles, over names and links."""

from collections.abc import Iterable

from topics.engine.routers.link import Link


def find_path(edges: Iterable[tuple[str, str]], *, start: str, goal: str) -> list[str]:
    """Return the topics on the way from start to goal, both included; empty where there is none."""
    following: dict[str, list[str]] = {}
    for source, dest in edges:
        following.setdefault(source, []).append(dest)
    came_from: dict[str, str] = {start: start}
    queue = [start]
    while queue and goal not in came_from:
        topic = queue.pop(0)
        for dest in sorted(following.get(topic, [])):
            if dest not in came_from:
                came_from[dest] = topic
                queue.append(dest)
    if goal not in came_from:
        return []
    path = [goal]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def mark_cycles(links: Iterable[Link]) -> None:
    """Tell each link whether it is part of a circle: it is if its destination leads to its source.

    A topic has one source, so the way back is a walk along sources.
    """
    for link in links:
        above, seen = link.source.link, {link}
        while above is not None and above not in seen:
            seen.add(above)
            above = above.source.link
        link.in_cycle = above is link
