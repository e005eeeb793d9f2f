"""Pages: whatever a value holds, a page shows it as text and loads nothing from elsewhere."""

import re

import pytest

from topics.console.assets import load_assets
from topics.console.bodies import BODIES
from topics.console.pages import (
    PAGES,
    Viewer,
    render_error,
    render_login,
    render_page,
    render_topic,
)

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
VIEWER = Viewer(csrf="token", scopes=frozenset({"read"}), key="abc")
OURS = ("/console/static/console.css", "/console/static/theme.js")


def every_page() -> list[str]:
    pages = [render_page(word, VIEWER) for word in PAGES]
    pages.append(render_topic("orders", {"type": "log"}, VIEWER))
    pages += [render_error("no", VIEWER, status=404), render_login(goal="/")]
    return pages


def test_every_page_of_the_menu_has_a_body_and_a_module() -> None:
    assert set(PAGES) == set(BODIES)
    for word in [*PAGES, "topic"]:
        assert f"{word}.js" in load_assets()


@pytest.mark.parametrize(
    "page",
    [
        render_topic(HOSTILE, {"dead_letter": HOSTILE, HOSTILE: 1}, VIEWER),
        render_error(HOSTILE, VIEWER, status=400),
        render_login(goal=HOSTILE, problem=HOSTILE),
        render_page("queues", Viewer(csrf=HOSTILE, scopes=frozenset({HOSTILE}), key=HOSTILE)),
    ],
    ids=["topic", "error", "login", "viewer"],
)
def test_hostile_values_are_text(page: str) -> None:
    assert "<script>" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    assert '""' not in page.replace('value=""', "")


def test_no_page_has_a_script_or_a_style_of_its_own() -> None:
    for page in every_page():
        assert re.findall(r"<script(?![^>]* src=)[^>]*>", page) == []
        assert "<style" not in page
        assert re.findall(r"\s(?:style|on\w+)=", page) == []


def test_pages_load_only_what_the_package_brings() -> None:
    names = set(load_assets())
    for page in every_page():
        loaded = re.findall(r'<(?:script|link)[^>]* (?:src|href)="([^"]*)"', page)
        assert set(OURS) <= set(loaded)
        assert {path.rpartition("/")[2] for path in loaded} <= names
        assert all(path.startswith("/console/static/") for path in loaded)


def test_modules_import_only_each_other() -> None:
    for name, asset in load_assets().items():
        for imported in re.findall(r'from "([^"]+)"', asset.content.decode()):
            assert imported.startswith("./"), name
            assert imported[2:] in load_assets(), name


def test_no_module_takes_text_for_markup() -> None:
    for name, asset in load_assets().items():
        if name.endswith(".js") and not name.startswith("uPlot"):
            found = re.findall(
                rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function",
                asset.content,
            )
            assert found == [], name


def test_only_who_has_a_session_can_end_it() -> None:
    assert 'action="/console/logout"' in render_page("overview", VIEWER)
    nobody = Viewer(csrf=None, scopes=frozenset(), key="")
    assert "/console/logout" not in render_page("overview", nobody)


def test_the_page_one_is_on_is_marked_once() -> None:
    for word in PAGES:
        page = render_page(word, VIEWER)
        assert page.count('aria-current="page"') == 1
        assert f'href="{PAGES[word][0]}" aria-current="page"' in page


def test_the_license_of_what_is_vendored_ships_and_is_not_served() -> None:
    assert "uPlot.LICENSE" not in load_assets()
    assert "uPlot.iife.min.js" in load_assets()
