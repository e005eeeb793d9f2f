"""Keys: every form of an entry, every malformed one, and nothing that prints a key."""

import pytest

from topics.api.auth import ALL_SCOPES, Keyring, parse_keys
from topics.errors import ConfigError, Forbidden, Unauthorized


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("k", ALL_SCOPES, ()),
        ("k:", ALL_SCOPES, ()),
        ("k::", ALL_SCOPES, ()),
        ("k:read", {"read"}, ()),
        ("k:r", {"read"}, ()),
        ("k:c", {"consume"}, ()),
        ("k:rc", {"read", "consume"}, ()),
        ("k:read+consume", {"read", "consume"}, ()),
        ("k:rw", {"read", "write", "consume"}, ()),
        ("k:read+write", {"read", "write", "consume"}, ()),
        ("k:r+w+d+a", ALL_SCOPES, ()),
        ("k:rwda", ALL_SCOPES, ()),
        ("k:delete+admin", {"delete", "admin"}, ()),
        ("k::a.", ALL_SCOPES, ("a.",)),
        ("k:w:a.|b:", {"write", "consume"}, ("a.", "b:")),
    ],
)
def test_every_form_of_an_entry(entry: str, scopes: set[str], prefixes: tuple[str, ...]) -> None:
    caller = parse_keys(f" {entry} ").identify("k")
    assert caller.scopes == scopes
    assert caller.prefixes == prefixes


@pytest.mark.parametrize(
    "text",
    [":read", "k:x", "k:read+", "k:+read", "k:read write", "k:READ", "k:r:a||b", "k:r:|a", "a,,b",
     "a,", ",", "k,k:r", "kä", "k\u20ac:r", "k\udcff", "k\x7f"],
)  # fmt: skip
def test_a_malformed_entry_stops_the_start_without_telling_the_key(text: str) -> None:
    secret = text.replace("k", "hunter2")
    with pytest.raises(ConfigError) as refused:
        parse_keys(secret)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "  "])
def test_no_keys_is_an_open_server(text: str) -> None:
    keyring = parse_keys(text)
    assert keyring.is_open
    assert keyring.identify_header("") is keyring.anonymous
    assert keyring.anonymous.scopes == ALL_SCOPES


@pytest.mark.parametrize("header", ["Bearer k", "bearer k", "BEARER  k "])
def test_a_bearer_is_known_by_its_key(header: str) -> None:
    assert parse_keys("k,other").identify_header(header).scopes == ALL_SCOPES


@pytest.mark.parametrize(
    "header", ["", "k", "Basic k", "Bearer", "Bearer ", "Bearer kk", "Bearer K"]
)
def test_anyone_else_is_not(header: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        parse_keys("k").identify_header(header)
    assert "kk" not in str(refused.value)


def test_keys_are_kept_as_digests_alone() -> None:
    keyring = parse_keys("hunter2:r:a")
    caller = keyring.identify("hunter2")
    seen = [repr(keyring), str(vars(keyring)), repr(caller), caller.name]
    seen += [repr(getattr(caller, name)) for name in caller.__slots__]
    assert not any("hunter2" in text for text in seen)


def test_scopes_and_prefixes_are_checked() -> None:
    caller = parse_keys("k:r:a.|b.").identify("k")
    caller.check_scopes(frozenset({"read"}))
    caller.check_name("a.x")
    caller.check_name("b.")
    with pytest.raises(Forbidden, match="write"):
        caller.check_scopes(frozenset({"read", "write"}))
    with pytest.raises(Forbidden):
        caller.check_name("c.x")
    assert caller.sees_pattern("a.x")
    assert not caller.sees_pattern("a")
    assert not caller.sees_pattern("")


def test_every_entry_is_compared() -> None:
    """The time must not tell which key it was, or how much of it was right."""
    keyring = parse_keys("first,second,third")
    asked: list[bytes] = []

    class Counting(Keyring):
        def __init__(self) -> None:
            super().__init__([])
            self._callers = [_Asked(asked) for _ in range(3)]  # type: ignore[misc] # counts calls

    assert not keyring.is_open
    with pytest.raises(Unauthorized):
        Counting().identify("first")
    assert len(asked) == 3


class _Asked:
    def __init__(self, asked: list[bytes]) -> None:
        self._asked = asked

    def owns(self, digest: bytes) -> bool:
        self._asked.append(digest)
        return False


@pytest.mark.parametrize(
    ("own", "asked", "within"),
    [
        ("", "", [""]),
        ("", "a", ["a"]),
        ("b|a", "", ["a", "b"]),
        ("a|ab|abc", "", ["a"]),
        ("ab|ac|b", "a", ["ab", "ac"]),
        ("a|b", "abc", ["abc"]),
        ("a|ab", "abc", ["abc"]),
        ("a", "b", []),
    ],
)
def test_what_a_key_sees_of_names_that_begin_in_one_way(
    own: str, asked: str, within: list[str]
) -> None:
    caller = parse_keys(f"key:read:{own}").identify("key")
    assert caller.prefixes_within(asked) == within
