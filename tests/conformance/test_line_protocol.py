"""The V1 line protocol: exchanges byte by byte, and every hole of the old broker closed."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.conformance.api import Api, fresh, ok
from tests.conformance.lines import LineClient, free_port

from topics.testing.server_process import ServerProcess

PORT = free_port()
SETTINGS = {"TOPICS_BROKER_PORT": str(PORT)}
MIB = 1 << 20

GOLDEN = [
    (b"V1|1|PRODUCE|shop user1:created", b"V1|1|OK|partition=2 offset=0"),
    (b"V1|2|produce|shop user1:paid acks=all", b"V1|2|OK|partition=2 offset=1"),
    (b"V1|3|Produce|shop user2:a|b, c acks=1\r", b"V1|3|OK|partition=2 offset=2"),
    (b"V1|4|CONSUME|shop 2 0", b"V1|4|OK|messages=0:created,1:paid,2:a|b%2C c"),
    (b"V1|5|CONSUME|shop 2 1", b"V1|5|OK|messages=1:paid,2:a|b%2C c"),
    (b"V1|6|CONSUME|shop 2 3", b"V1|6|OK|messages="),
    (b"V1|7|OFFSET|g shop 2", b"V1|7|OK|offset=0"),
    (b"V1|8|COMMIT|g shop 2 1", b"V1|8|OK|committed=true"),
    (b"V1|9|OFFSET|g shop 2", b"V1|9|OK|offset=1"),
    (b"V1|10|JOIN|g shop c1", b"V1|10|OK|generation=1 assigned=[0 1 2]"),
    (b"V1|11|HEARTBEAT|g shop c1 1", b"V1|11|OK|heartbeat=ok"),
    (b"V1|12|SYNC|g shop c1 1", b"V1|12|OK|generation=1 assigned=[0 1 2]"),
    (b"V1|13|COMMIT|g shop c1 1 2 3", b"V1|13|OK|committed=true"),
    (b"V1|14|OFFSET|g shop 2", b"V1|14|OK|offset=3"),
    (b"V1|15|LEAVE|g shop c1 1", b"V1|15|OK|left=true"),
    (b"V1|x-16|COMMIT|g shop 2 2", b"V1|x-16|OK|committed=true"),
    (b"V1|17|OFFSET|g shop 2", b"V1|17|OK|offset=2"),
    (b"V1|18|AUTH|anything", b"V1|18|OK"),
]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[LineClient]:
    del server  # runs
    with LineClient(PORT) as client:
        yield client


def messages(payload: str) -> list[tuple[int, str]]:
    """Read `messages=` as a client would."""
    listed = payload.removeprefix("messages=")
    pairs = [message.partition(":") for message in listed.split(",")] if listed else []
    return [(int(offset), unquote(value, errors="strict")) for offset, _, value in pairs]


def test_golden_exchanges_one_by_one_and_then_all_at_once(client: LineClient) -> None:
    for line, reply in GOLDEN:
        client.send(line + b"\n")
        assert client.read() == reply + b"\n"
    again = [pair for pair in GOLDEN if b"CONSUME" in pair[0]]
    client.send(b"".join(line + b"\n" for line, _ in again))
    assert [client.read() for _ in again] == [reply + b"\n" for _, reply in again]


# The holes of the old broker.


@pytest.mark.parametrize(
    "offset", ["-1", "-9223372036854775808", "x", "1.5", "", "99999999999999999999"]
)
def test_a_negative_offset_is_a_bad_request_and_kills_nothing(
    client: LineClient, offset: str
) -> None:
    topic = fresh()
    client.ok("PRODUCE", f"{topic} k:v")
    assert client.refused("CONSUME", f"{topic} 0 {offset}")[0] == "BAD_REQUEST"
    assert client.refused("COMMIT", f"g {topic} 0 {offset}")[0] == "BAD_REQUEST"
    assert client.refused("CONSUME", f"{topic} {offset} 0")[0] == "BAD_REQUEST"
    assert client.ok("CONSUME", f"{topic} 0 0").startswith("messages=")


@pytest.mark.parametrize(
    "value", ["two words", "  padded  ", "a:b:c", "", "acks=1", "x acks=2 y", "tab\tand ünïcode 😀"]
)
def test_a_value_with_spaces_is_not_cut(client: LineClient, value: str) -> None:
    topic = fresh()
    client.ok("PRODUCE", f"{topic} user1:{value}")
    client.ok("PRODUCE", f"{topic} user1:{value} acks=all")
    assert messages(client.ok("CONSUME", f"{topic} 2 0")) == [(0, value), (1, value)]


@pytest.mark.parametrize("acks", ["2", "", "ALL", "all,1", "-1"])
def test_acks_that_nobody_knows_are_refused_and_nothing_is_stored(
    client: LineClient, acks: str
) -> None:
    topic = fresh()
    client.ok("PRODUCE", f"{topic} user1:first")
    assert client.refused("PRODUCE", f"{topic} user1:v acks={acks}")[0] == "BAD_REQUEST"
    assert messages(client.ok("CONSUME", f"{topic} 2 0")) == [(0, "first")]


def test_commas_percents_and_controls_in_a_value_can_be_parsed_again(
    client: LineClient, http1: Api
) -> None:
    topic = fresh()
    values = ["a,b", "100%", "%2C", "nul\x00 esc\x1b del\x7f nel\x85", "1:x,2:y"]
    for value in values:
        client.ok("PRODUCE", f"{topic} user1:{value}")
    http1.append_records(f"{topic}-2", [{"data": "line\r\nbreak"}])
    payload = client.ok("CONSUME", f"{topic} 2 0")
    assert messages(payload) == list(enumerate([*values, "line\r\nbreak"]))


@pytest.mark.parametrize(
    "name", ["../escape", "a/b", ".hidden", "ü", "", "x" * 256, "a\x00b", "%2e"]
)
def test_a_topic_name_outside_the_rule_touches_no_file(
    client: LineClient, server: ServerProcess, name: str
) -> None:
    before = sorted(map(str, Path(server.data_dir).rglob("*/")))
    assert client.refused("PRODUCE", f"{name} k:v")[0] == "BAD_REQUEST"
    assert client.refused("CONSUME", f"{name} 0 0")[0] == "BAD_REQUEST"
    assert client.refused("JOIN", f"g {name} c")[0] == "BAD_REQUEST"
    assert client.refused("COMMIT", f"g {name} 0 0")[0] == "BAD_REQUEST"
    assert client.refused("OFFSET", f"g {name} 0")[0] == "BAD_REQUEST"
    assert sorted(map(str, Path(server.data_dir).rglob("*/"))) == before


def test_a_line_above_1_mib_is_refused_and_skipped_not_hung_up_on(client: LineClient) -> None:
    topic = fresh()
    client.send(f"V1|7|PRODUCE|{topic} k:".encode() + b"x" * (3 * MIB) + b"\n")
    assert client.read() == b"V1|7|ERR|BAD_REQUEST|a line may have 1048576 bytes\n"
    assert client.refused("CONSUME", f"{topic} 0 0")[0] == "BAD_REQUEST"  # nothing was made
    client.send(b"x" * (2 * MIB) + b"\n" + b"V1|8|OFFSET|g t 0\n")
    assert client.read().startswith(b"V1|0|ERR|BAD_REQUEST|")
    assert client.read() == b"V1|8|OK|offset=0\n"


def test_the_longest_line_is_stored_whole_and_read_back(client: LineClient) -> None:
    topic = fresh()
    head = f"V1|7|PRODUCE|{topic} user1:"
    value = "x" * (MIB - len(head) - 64)  # a record, with its quotes, is at most 1 MiB too
    assert client.ask(head + value) == "V1|7|OK|partition=2 offset=0"
    assert messages(client.ok("CONSUME", f"{topic} 2 0")) == [(0, value)]


def test_a_reply_has_at_most_1000_records_and_reading_goes_on(client: LineClient) -> None:
    topic = fresh()
    lines = [f"V1|1|PRODUCE|{topic} user1:{n}\n" for n in range(2_500)]
    client.send("".join(lines).encode())
    for _ in lines:
        client.read()
    found: list[tuple[int, str]] = []
    sizes = []
    while step := messages(client.ok("CONSUME", f"{topic} 2 {len(found)}")):
        found += step
        sizes.append(len(step))
    assert sizes == [1000, 1000, 500]
    assert found == [(n, str(n)) for n in range(2_500)]


def test_a_reply_has_at_most_1_mib_and_reading_goes_on(client: LineClient) -> None:
    topic = fresh()
    value = "," * 100_000  # three times as long in a reply
    for _ in range(9):
        client.ok("PRODUCE", f"{topic} user1:{value}")
    found: list[tuple[int, str]] = []
    while step := client.ok("CONSUME", f"{topic} 2 {len(found)}").removeprefix("messages="):
        assert len(step) <= MIB
        found += messages(step)
    assert found == [(n, value) for n in range(9)]


# What else the page says.


def test_unknown_topics_are_created_by_produce_alone(client: LineClient, http1: Api) -> None:
    topic = fresh()
    assert client.refused("CONSUME", f"{topic} 0 0")[0] == "BAD_REQUEST"
    assert client.refused("JOIN", f"g {topic} c")[0] == "BAD_REQUEST"
    assert client.refused("COMMIT", f"g {topic} 0 0")[0] == "BAD_REQUEST"
    assert client.ok("OFFSET", f"g {topic} 0") == "offset=0"
    assert http1.get(f"topics/{topic}").status_code == 404
    client.ok("PRODUCE", f"{topic} k:v")
    assert len(ok(http1.get(f"topics/{topic}"))["partitions"]) == 3


def test_a_plain_topic_is_its_own_partition_0(client: LineClient, http1: Api) -> None:
    topic = fresh()
    http1.append(topic, {"n": 1}, "text", None)
    assert client.ok("PRODUCE", f"{topic} k:v") == "partition=0 offset=3"
    payload = client.ok("CONSUME", f"{topic} 0 0")
    assert messages(payload) == [(0, '{"n":1}'), (1, "text"), (2, "null"), (3, "v")]
    assert client.refused("CONSUME", f"{topic} 1 0") == (
        "BAD_REQUEST", f"topic '{topic}' has the partitions 0 to 0",
    )  # fmt: skip


def test_the_key_of_a_line_is_the_tag_of_its_record(client: LineClient, http1: Api) -> None:
    topic = fresh()
    client.ok("PRODUCE", f"{topic} user1:v")
    (record,) = http1.diff(f"{topic}-2", include_tags=True)["records"]
    assert (record["$tag"], record["data"]) == ("user1", "v")
    reply = http1.append_records(topic, [{"data": "w", "key": "user1"}])
    assert reply["placements"][0]["partition"] == 2


def test_evicted_records_are_announced_by_an_error_that_names_where_to_go_on(
    client: LineClient, http1: Api
) -> None:
    topic = fresh()
    http1.create(topic, cap_records=2)
    http1.append(topic, *"abcde")
    assert client.refused("CONSUME", f"{topic} 0 0") == (
        "BAD_REQUEST", "offset 0 is no longer there (cap): go on at 3",
    )  # fmt: skip
    assert messages(client.ok("CONSUME", f"{topic} 0 3")) == [(3, "d"), (4, "e")]


def test_deleted_records_are_skipped_without_a_word(client: LineClient, http1: Api) -> None:
    topic = fresh()
    http1.append(topic, *"abcde")
    ok(http1.post(f"topics/{topic}/delete", {"before_seq": 4}))
    assert messages(client.ok("CONSUME", f"{topic} 0 0")) == [(3, "d"), (4, "e")]


def test_an_offset_beyond_the_end_is_refused(client: LineClient) -> None:
    topic = fresh()
    client.ok("PRODUCE", f"{topic} user1:v")
    assert client.ok("CONSUME", f"{topic} 2 1") == "messages="
    assert client.refused("CONSUME", f"{topic} 2 2") == (
        "BAD_REQUEST", "offset 2 is beyond the end: the next is 1",
    )  # fmt: skip


def test_unknown_commands_and_lines_without_envelope_are_told(client: LineClient) -> None:
    assert client.refused("FLY", "away")[0] == "UNKNOWN_COMMAND"
    assert client.refused("", "")[0] == "UNKNOWN_COMMAND"
    assert client.ask("hello").startswith("V1|0|ERR|BAD_REQUEST|")
    assert client.ask("").startswith("V1|0|ERR|BAD_REQUEST|")
    assert client.ask(b"V1|5|PRODUCE|t k:\xff\xfe").startswith("V1|5|ERR|BAD_REQUEST|")


# Groups.


def test_partitions_move_to_a_new_member_after_the_old_one_synced(client: LineClient) -> None:
    topic, group = fresh(), fresh("g")
    client.ok("PRODUCE", f"{topic} k:v")
    assert client.ok("JOIN", f"{group} {topic} a") == "generation=1 assigned=[0 1 2]"
    assert client.ok("JOIN", f"{group} {topic} b") == "generation=2 assigned=[]"
    assert client.refused("HEARTBEAT", f"{group} {topic} a 1") == (
        "GENERATION_MISMATCH", "the generation is 2: SYNC or JOIN",
    )  # fmt: skip
    assert client.ok("SYNC", f"{group} {topic} a 1") == "generation=3 assigned=[0 1]"
    assert client.ok("SYNC", f"{group} {topic} b 2") == "generation=3 assigned=[2]"
    assert client.ok("HEARTBEAT", f"{group} {topic} a 3") == "heartbeat=ok"
    assert client.refused("COMMIT", f"{group} {topic} a 3 2 0")[0] == "GENERATION_MISMATCH"
    assert client.refused("COMMIT", f"{group} {topic} b 2 2 0")[0] == "GENERATION_MISMATCH"
    assert client.refused("COMMIT", f"{group} {topic} 2 0")[0] == "GENERATION_MISMATCH"
    assert client.ok("COMMIT", f"{group} {topic} b 3 2 0") == "committed=true"
    assert client.refused("LEAVE", f"{group} {topic} a 1")[0] == "GENERATION_MISMATCH"
    assert client.ok("LEAVE", f"{group} {topic} a 3") == "left=true"
    assert client.ok("SYNC", f"{group} {topic} b 3").endswith("assigned=[0 1 2]")


@pytest.mark.parametrize("command", ["SYNC", "HEARTBEAT", "LEAVE"])
def test_whoever_has_not_joined_is_told_to(client: LineClient, command: str) -> None:
    topic, group = fresh(), fresh("g")
    client.ok("PRODUCE", f"{topic} k:v")
    assert client.refused(command, f"{group} {topic} a 1")[0] == "GENERATION_MISMATCH"
    client.ok("JOIN", f"{group} {topic} b")
    assert client.refused(command, f"{group} {topic} a 1")[0] == "GENERATION_MISMATCH"
    assert client.refused(command, f"{group} other b 1")[0] == "GENERATION_MISMATCH"


def test_a_consumer_of_two_topics_leaves_them_one_by_one(client: LineClient) -> None:
    one, two, group = fresh(), fresh(), fresh("g")
    client.ok("PRODUCE", f"{one} k:v")
    client.ok("PRODUCE", f"{two} k:v")
    assert client.ok("JOIN", f"{group} {one} a").endswith("assigned=[0 1 2]")
    second = client.ok("JOIN", f"{group} {two} a")
    assert second.endswith("assigned=[0 1 2]")
    generation = second.split()[0].removeprefix("generation=")
    assert client.ok("SYNC", f"{group} {one} a {generation}") == second
    assert client.ok("LEAVE", f"{group} {two} a {generation}") == "left=true"
    last = client.ok("SYNC", f"{group} {one} a {generation}")
    assert last.endswith("assigned=[0 1 2]")
    assert client.refused("SYNC", f"{group} {two} a {generation}")[0] == "GENERATION_MISMATCH"


def test_what_a_consumer_leaves_goes_to_those_who_stay(client: LineClient) -> None:
    one, two, group = fresh(), fresh(), fresh("g")
    client.ok("PRODUCE", f"{one} k:v")
    client.ok("PRODUCE", f"{two} k:v")
    client.ok("JOIN", f"{group} {one} a")
    both = client.ok("JOIN", f"{group} {two} a")
    client.ok("JOIN", f"{group} {two} b")
    now = client.ok("SYNC", f"{group} {two} a {both.split()[0].partition('=')[2]}")
    generation = now.split()[0].partition("=")[2]
    client.ok("LEAVE", f"{group} {two} a {generation}")
    assert client.ok("SYNC", f"{group} {two} b {generation}").endswith("assigned=[0 1 2]")
    assert client.ok("SYNC", f"{group} {one} a {generation}").endswith("assigned=[0 1 2]")


@pytest.mark.parametrize("assignor", ["range", "round_robin", "sticky"])
def test_a_join_may_name_the_assignor(client: LineClient, assignor: str) -> None:
    topic, group = fresh(), fresh("g")
    client.ok("PRODUCE", f"{topic} k:v")
    joined = client.ok("JOIN", f"{group} {topic} a assignor={assignor}")
    assert joined == "generation=1 assigned=[0 1 2]"
    assert client.refused("JOIN", f"{group} {topic} b assignor=none")[0] == "BAD_REQUEST"


def test_lines_and_http_work_in_one_group(client: LineClient, http1: Api) -> None:
    topic, group = fresh(), fresh("g")
    client.ok("PRODUCE", f"{topic} user1:v")
    client.ok("JOIN", f"{group} {topic} line")
    joined = ok(http1.post(f"groups/{group}/join", {"member": "http", "topics": [topic]}))
    assert joined["assigned"].get(topic, []) == []
    generation = joined["generation"]
    line = client.ok("SYNC", f"{group} {topic} line {generation}")
    beat = {"member": "http", "generation": generation}
    held = ok(http1.post(f"groups/{group}/heartbeat", beat))
    assert line == f"generation={held['generation']} assigned=[0 1]"
    assert held["assigned"] == {topic: [2]}
    body = {
        "member": "http",
        "generation": held["generation"],
        "offsets": {topic: {"2": 1}},
    }
    ok(http1.post(f"groups/{group}/commit", body))
    assert client.ok("OFFSET", f"{group} {topic} 2") == "offset=1"


def test_a_commit_past_the_end_is_refused_and_a_late_one_moves_nothing(client: LineClient) -> None:
    topic, group = fresh(), fresh("g")
    for _ in range(3):
        client.ok("PRODUCE", f"{topic} user1:v")
    client.ok("JOIN", f"{group} {topic} a")
    assert client.refused("COMMIT", f"{group} {topic} a 1 2 4")[0] == "BAD_REQUEST"
    client.ok("COMMIT", f"{group} {topic} a 1 2 3")
    client.ok("COMMIT", f"{group} {topic} a 1 2 2")
    assert client.ok("OFFSET", f"{group} {topic} 2") == "offset=3"
    assert client.refused("COMMIT", f"{group} {topic} a 1 9 0")[0] == "BAD_REQUEST"


# Pipelining.


def test_a_pipeline_is_answered_in_its_order_and_reads_see_what_was_written_before(
    client: LineClient,
) -> None:
    topic = fresh()
    lines: list[str] = []
    expected: list[str] = []
    for n in range(200):
        lines.append(f"V1|p{n}|PRODUCE|{topic} user1:{n}")
        expected.append(f"V1|p{n}|OK|partition=2 offset={n}")
        if n % 20 == 0:
            lines.append(f"V1|c{n}|CONSUME|{topic} 2 {n}")
            expected.append(f"V1|c{n}|OK|messages={n}:{n}")
            lines.append(f"V1|k{n}|COMMIT|pipe {topic} 2 {n + 1}")
            expected.append(f"V1|k{n}|OK|committed=true")
            lines.append(f"V1|o{n}|OFFSET|pipe {topic} 2")
            expected.append(f"V1|o{n}|OK|offset={n + 1}")
        if n % 30 == 0:
            lines.append("no envelope")
            expected.append("V1|0|ERR|BAD_REQUEST|a request is V1|<id>|<COMMAND>|<args>")
    client.send("".join(line + "\n" for line in lines).encode())
    assert [client.read().decode().rstrip("\n") for _ in lines] == expected


def test_what_was_asked_before_a_half_close_is_answered(client: LineClient) -> None:
    topic = fresh()
    lines = [f"V1|{n}|PRODUCE|{topic} user1:{n}\n" for n in range(50)]
    client.send("".join(lines).encode() + b"V1|x|PRODUCE|half a li")
    client.socket.shutdown(1)
    replies = [client.read() for _ in range(50)]
    assert replies[-1] == b"V1|49|OK|partition=2 offset=49\n"
    assert client.read() == b""
