"""The arguments of each command."""

from collections.abc import Callable

import pytest

from topics.broker.arguments import (
    Commit,
    Consume,
    Join,
    Member,
    Produce,
    Progress,
    parse_commit,
    parse_consume,
    parse_join,
    parse_member,
    parse_produce,
    parse_progress,
)
from topics.errors import RequestError


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ("orders k:v", Produce("orders", "k", "v")),
        ("orders k:", Produce("orders", "k", "")),
        ("orders :v", Produce("orders", "", "v")),
        ("orders k:a:b", Produce("orders", "k", "a:b")),
        ("orders k:a b  c ", Produce("orders", "k", "a b  c ")),
        ("orders k:a b acks=all", Produce("orders", "k", "a b")),
        ("orders k:a acks=0", Produce("orders", "k", "a")),
        ("orders k:a acks=1", Produce("orders", "k", "a")),
        ("orders k: acks=1", Produce("orders", "k", "")),
        ("orders k:acks=1", Produce("orders", "k", "acks=1")),
        ("orders k:a acks=7 acks=1", Produce("orders", "k", "a acks=7")),
        ("orders k:a acks=7 b", Produce("orders", "k", "a acks=7 b")),
        ("orders k:a acks=7 ", Produce("orders", "k", "a acks=7 ")),
        ("a:b my key:v", Produce("a:b", "my key", "v")),
        ("orders k:x|y", Produce("orders", "k", "x|y")),
    ],
)
def test_the_value_is_all_after_the_first_colon_up_to_trailing_acks(
    args: str, found: Produce
) -> None:
    assert parse_produce(args) == found


@pytest.mark.parametrize(
    "args",
    [
        *("", "orders", "orders ", "orders novalue", ":", " k:v", "../etc k:v", "a/b k:v"),
        *("orders k:v acks=2", "orders k:v acks=", "orders k:v acks=ALL", "orders k:v acks=-1"),
        f"orders {'k' * 257}:v",
        f"{'t' * 256} k:v",
    ],
)
def test_what_cannot_be_produced_is_refused(args: str) -> None:
    with pytest.raises(RequestError):
        parse_produce(args)


def test_the_other_commands_are_words() -> None:
    assert parse_consume("orders 2 18446744073709551615") == Consume("orders", 2, 2**64 - 1)
    assert parse_consume("  orders  2   0 ") == Consume("orders", 2, 0)
    assert parse_join("g orders c") == Join("g", "orders", "c", "sticky")
    assert parse_join("g orders c assignor=range") == Join("g", "orders", "c", "range")
    assert parse_member("g orders c 3", "SYNC") == Member("g", "orders", "c", 3)
    assert parse_commit("g orders 0 5") == Commit("g", "orders", 0, 5)
    assert parse_commit("g orders c 3 0 5") == Commit("g", "orders", 0, 5, "c", 3)
    assert parse_progress("g orders 1") == Progress("g", "orders", 1)


@pytest.mark.parametrize(
    ("parse", "args"),
    [
        *((parse_consume, args) for args in ("", "orders", "orders 0", "orders 0 0 0")),
        *((parse_consume, f"orders 0 {n}") for n in ("-1", "+1", "1.0", "1e3", "0x1", "１", "1_0")),  # noqa: RUF001 - a digit that is none of ours
        *((parse_consume, f"orders {n} 0") for n in ("-1", "x", "18446744073709551616")),
        (parse_consume, "a/b 0 0"),
        (parse_consume, "orders\t0\t0"),
        *(
            (parse_join, args)
            for args in ("", "g orders", "g orders c d", "g or/ders c", "g orders c assignor=x")
        ),
        *((parse_commit, args) for args in ("", "g orders 0", "g orders c 0 5", "g o c 1 0 5 6")),
        *((parse_commit, args) for args in ("g orders 0 -5", "g orders c -1 0 5", "g / 0 0")),
        *((parse_progress, args) for args in ("", "g orders", "g orders -1", "g orders 0 0")),
    ],
)
def test_arguments_of_another_shape_are_refused(parse: Callable[[str], object], args: str) -> None:
    with pytest.raises(RequestError):
        parse(args)


@pytest.mark.parametrize("command", ["SYNC", "HEARTBEAT", "LEAVE"])
def test_the_refusal_names_the_command_and_its_shape(command: str) -> None:
    with pytest.raises(RequestError, match=f"{command} takes <group> <topic> <consumer>"):
        parse_member("g", command)
