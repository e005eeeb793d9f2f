"""The plot of `make bench`: well-formed, to scale, ours in a colour of its own."""

from xml.etree import ElementTree as ET

from benchmarks.server.plot import BAR_WIDTH, OTHERS, OURS, Group, draw

SVG = "{http://www.w3.org/2000/svg}"


def bars(groups: list[Group]) -> list[tuple[str, int]]:
    root = ET.fromstring(draw(groups))
    drawn = root.findall(f"{SVG}rect")[1:]  # the first is the background
    return [(bar.attrib["fill"], int(bar.attrib["width"])) for bar in drawn]


def test_the_longest_bar_of_a_group_has_the_whole_width() -> None:
    found = bars([Group("writes", [("topics", 50.0), ("C epoll", 100.0)])])
    assert found == [(OTHERS, BAR_WIDTH), (OURS, BAR_WIDTH // 2)]


def test_every_group_has_its_own_scale() -> None:
    found = bars([Group("a", [("topics", 1.0)]), Group("b", [("topics", 1e6)])])
    assert found == [(OURS, BAR_WIDTH), (OURS, BAR_WIDTH)]


def test_titles_and_names_are_escaped() -> None:
    assert "a &lt; b &amp; c" in draw([Group("a < b & c", [("topics", 1.0)])])


def test_no_group_is_an_empty_picture() -> None:
    assert bars([]) == []
