"""The Host header: a page on another name must not reach a local server."""

import pytest

from topics.api.host import HostRule
from topics.errors import RequestError


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:4000", "127.0.0.1:4000", "LOCALHOST:1", "[::1]:4000", "[::1]"]
)
def test_loopback_names_are_always_served(host: str) -> None:
    HostRule(None, bind_host="127.0.0.1").check(host)
    HostRule("example.org", bind_host="127.0.0.1").check(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:4000", "localhost.evil.example", "127.0.0.1.evil", "[::2]"],
)  # fmt: skip
def test_a_foreign_name_is_refused(host: str) -> None:
    with pytest.raises(RequestError, match="TOPICS_ALLOWED_HOSTS"):
        HostRule(None, bind_host="127.0.0.1").check(host)


def test_listed_names_are_served_and_others_are_not() -> None:
    rule = HostRule("log.example, Other.Example", bind_host="0.0.0.0")
    rule.check("log.example:80")
    rule.check("other.example")
    with pytest.raises(RequestError):
        rule.check("third.example")


def test_a_star_serves_every_name() -> None:
    HostRule("*", bind_host="127.0.0.1").check("anything.example")


def test_bound_to_every_address_the_keys_are_the_guard() -> None:
    HostRule(None, bind_host="0.0.0.0").check("anything.example")


def test_the_address_it_is_bound_to_is_served() -> None:
    HostRule(None, bind_host="10.0.0.7").check("10.0.0.7:4000")
