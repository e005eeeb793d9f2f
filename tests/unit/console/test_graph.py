"""The drawing of routers: to the right of what feeds it, also where they go round."""

from hypothesis import given
from hypothesis import strategies as st

from topics.console.graph import plan_layers

NAMES = st.sampled_from("abcdefgh")
EDGES = st.lists(st.tuples(NAMES, NAMES).filter(lambda edge: edge[0] != edge[1]), max_size=20)


def layers(*edges: tuple[str, str]) -> dict[str, int]:
    return {node.topic: node.layer for node in plan_layers(edges)}


def test_a_chain_goes_from_left_to_right() -> None:
    assert layers(("a", "b"), ("b", "c"), ("a", "c")) == {"a": 0, "b": 1, "c": 2}


def test_a_circle_is_drawn_too() -> None:
    assert layers(("a", "b"), ("b", "a")) == {"a": 0, "b": 1}


def test_neighbours_stand_side_by_side() -> None:
    nodes = {n.topic: n.row for n in plan_layers([("a", "z"), ("b", "y"), ("c", "x")])}
    assert [nodes[name] for name in "zyx"] == [nodes[name] for name in "abc"]


def test_there_is_nothing_to_draw_without_routers() -> None:
    assert plan_layers([]) == []


@given(EDGES)
def test_every_topic_stands_somewhere_of_its_own(edges: list[tuple[str, str]]) -> None:
    nodes = plan_layers(edges)
    assert sorted(node.topic for node in nodes) == sorted({end for edge in edges for end in edge})
    assert len({(node.layer, node.row) for node in nodes}) == len(nodes)
    assert {node.layer for node in nodes} == set(range(len({node.layer for node in nodes})))


@given(EDGES)
def test_without_circles_every_copy_goes_to_the_right(edges: list[tuple[str, str]]) -> None:
    forward = [(min(edge), max(edge)) for edge in edges]
    found = layers(*forward)
    assert all(found[source] < found[dest] for source, dest in forward)
