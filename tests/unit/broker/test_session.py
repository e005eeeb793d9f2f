"""One connection, with a disk that fails, a log that is full, and peers that come and go."""

import asyncio

import pytest
from tests.unit.broker.talk import Broker, with_broker

from topics.api.auth import parse_keys
from topics.broker import listener as listener_module
from topics.broker import produce, session
from topics.broker.commands import COMMANDS
from topics.broker.desk import Caller, Desk
from topics.broker.line import NO_ENVELOPE
from topics.broker.listener import BrokerListener
from topics.clock import SystemClock
from topics.config import ServerConfig
from topics.engine import diff
from topics.errors import ConfigError, DiskFull
from topics.testing.hostile_faults import FaultPlan


def test_a_disk_error_is_an_error_and_never_ok() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.log.create("t", durability="fsync")
        async with broker.connect() as talk:
            assert await talk.ask("V1|1|PRODUCE|t k:before") == "V1|1|OK|partition=0 offset=0"
            broker.disk.arm(FaultPlan().fail(operation="sync_data", path="wal/*", forever=True))
            talk.send(*[f"V1|{n}|PRODUCE|t k:{n} acks=0" for n in range(5)])
            replies = [await talk.read() for _ in range(5)]
            assert [reply.split("|")[1] for reply in replies] == list("01234")
            assert {reply.split("|")[2:4] == ["ERR", "NOT_LEADER"] for reply in replies} == {True}
            assert await talk.ask("V1|6|CONSUME|t 0 0") == "V1|6|OK|messages=0:before"
            assert (await talk.ask("V1|7|PRODUCE|t k:v")).startswith("V1|7|ERR|NOT_LEADER|")
            assert (await talk.ask("V1|8|COMMIT|g t 0 1")).startswith("V1|8|ERR|NOT_LEADER|")
            assert await talk.ask("V1|9|OFFSET|g t 0") == "V1|9|OK|offset=0"  # reads go on
        assert broker.reported

    with_broker(scenario, breaks_disk=True)


def test_a_full_disk_keeps_a_topic_from_being_made() -> None:
    async def scenario(broker: Broker) -> None:
        full = FaultPlan().fail(operation="write_at", error=DiskFull, forever=True)
        broker.disk.arm(full.fail(operation="allocate", error=DiskFull, forever=True))
        async with broker.connect() as talk:
            reply = await talk.ask("V1|1|PRODUCE|orders k:v")
            assert reply.startswith("V1|1|ERR|NOT_LEADER|")

    with_broker(scenario, breaks_disk=True)


def test_many_lines_of_a_connection_share_syncs() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.log.create("t", durability="fsync")
        async with broker.connect() as talk:
            await talk.ask("V1|0|PRODUCE|t k:v")
            before = broker.disk.calls_made
            talk.send(*[f"V1|{n}|PRODUCE|t k:{n}" for n in range(100)])
            assert [(await talk.read()).split("|")[1:3] for _ in range(100)] == [
                [str(n), "OK"] for n in range(100)
            ]
            assert broker.disk.calls_made - before < 60  # alone, each is a write and a sync
            talk.send(*[f"V1|{n}|COMMIT|g t 0 {n}" for n in range(100)])
            before = broker.disk.calls_made
            assert [(await talk.read()).split("|")[1:3] for _ in range(100)] == [
                [str(n), "OK"] for n in range(100)
            ]
            assert broker.disk.calls_made - before < 60
            assert await talk.ask("V1|1|OFFSET|g t 0") == "V1|1|OK|offset=99"

    with_broker(scenario)


@pytest.mark.parametrize(
    "beginning",
    ["POST / HTTP/1.1\r\nHost: x\r\n\r\n", "\n", " V1|0|OFFSET|g t 0\n", "v1|0|OFFSET|g t 0\n",
     "x" * 5000 + "\n", "V1\n"],
)  # fmt: skip
def test_nothing_is_done_behind_a_first_line_that_is_no_envelope(beginning: str) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.log.create("t")
        line = "V1|1|PRODUCE|t k:forged\nV1|2|OFFSET|g t 0\n"
        for parts in ([beginning + line], [beginning[0], beginning[1:], line]):
            async with broker.connect() as talk:
                for part in parts:
                    talk.writer.write(part.encode())
                    await asyncio.sleep(0)
                assert await talk.read() in (NO_ENVELOPE.format().decode()[:-1], "")
                assert await talk.read() == ""
        assert (await broker.log.state("t")).head_seq == 0
        async with broker.connect() as talk:
            assert (await talk.ask("V1||FLY|")).startswith("V1|0|ERR|BAD_REQUEST|an id has")
            assert (await talk.ask("hello")).startswith("V1|0|ERR|BAD_REQUEST|a request is")
            assert await talk.ask("V1|1|PRODUCE|t k:v") == "V1|1|OK|partition=0 offset=0"

    with_broker(scenario)


def test_who_begins_with_no_envelope_is_hung_up_on_before_the_line_ends() -> None:
    async def scenario(broker: Broker) -> None:
        async with broker.connect() as talk:
            talk.writer.write(b"G")
            assert await talk.read() == "V1|0|ERR|BAD_REQUEST|a request is V1|<id>|<COMMAND>|<args>"
            assert await talk.read() == ""

    with_broker(scenario)


def long_line() -> str:
    """Return a line of which a log without a background takes six."""
    return f"V1|7|PRODUCE|t k:{'x' * 200_000}"


def test_a_line_waits_for_room_and_those_behind_it_too() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.log.create("t", durability="disk")
        async with broker.connect() as talk:
            for _ in range(6):
                assert (await talk.ask(long_line())).startswith("V1|7|OK|")
            talk.send(long_line(), "V1|8|PRODUCE|t k:small")
            quiet = asyncio.ensure_future(talk.read())
            done, _ = await asyncio.wait([quiet], timeout=0.1)
            assert not done
            broker.log.log.checkpoint()
            assert await quiet == "V1|7|OK|partition=0 offset=6"
            assert await talk.read() == "V1|8|OK|partition=0 offset=7"

    with_broker(scenario, background=False, tail_cache_bytes=1 << 20)


def test_who_waited_too_long_for_room_is_told_and_nothing_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce, "PATIENCE_S", 0.05)

    async def scenario(broker: Broker) -> None:
        await broker.log.create("t", durability="disk")
        async with broker.connect() as talk:
            for _ in range(6):
                await talk.ask(long_line())
            reply = await talk.ask(long_line())
            assert reply.startswith("V1|7|ERR|REPLICATION_TIMEOUT|the write queue is full")
            assert await talk.ask("V1|8|CONSUME|t 0 6") == "V1|8|OK|messages="
            broker.log.log.checkpoint()
            assert await talk.ask(long_line()) == "V1|7|OK|partition=0 offset=6"

    with_broker(scenario, background=False, tail_cache_bytes=1 << 20)


def test_data_that_utf8_cannot_say_shows_as_json() -> None:
    async def scenario(broker: Broker) -> None:
        body = rb'{"records":[{"data":"half \ud83d"},{"data":[1,"\u00fc"]},{"data":"\n"}]}'
        await broker.log.append_json("t", body)
        await broker.log.append_json("u", body.replace(rb"half \ud83d", rb"whole \ud83d\ude00"))
        async with broker.connect() as talk:
            assert await talk.ask("V1|1|CONSUME|t 0 0") == (
                r'V1|1|OK|messages=0:"half \ud83d",1:[1%2C"\u00fc"],2:%0A'
            )
            assert await talk.ask("V1|1|CONSUME|u 0 0") == (
                r'V1|1|OK|messages=0:whole 😀,1:[1%2C"\u00fc"],2:%0A'
            )

    with_broker(scenario)


def test_a_crowd_is_bounded_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "MAX_CONNECTIONS", 2)

    async def scenario(broker: Broker) -> None:
        async with broker.connect() as one, broker.connect() as two:
            assert await one.ask("V1|1|OFFSET|g t 0") == "V1|1|OK|offset=0"
            assert await two.ask("V1|1|OFFSET|g t 0") == "V1|1|OK|offset=0"
            async with broker.connect() as three:
                assert (await three.read()).startswith("V1|0|ERR|NOT_LEADER|there are 2")
                assert await three.read() == ""

    with_broker(scenario)


def test_a_pipeline_is_bounded_while_its_answers_are_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[asyncio.Future[str]] = []

    def hold(*_: object) -> asyncio.Future[str]:
        begun.append(asyncio.get_running_loop().create_future())
        return begun[-1]

    monkeypatch.setattr(session, "COMMANDS", {**COMMANDS, "PRODUCE": hold})

    async def scenario(broker: Broker) -> None:
        async with broker.connect() as talk, broker.connect() as other:
            talk.send(*[f"V1|{n}|PRODUCE|t k:v" for n in range(1_000)])
            while len(begun) < session.MAX_PIPELINED:
                await other.ask("V1|1|OFFSET|g t 0")
            for _ in range(20):
                await other.ask("V1|1|OFFSET|g t 0")
            assert len(begun) == session.MAX_PIPELINED
            begun[1].set_result("second")
            begun[0].set_result("first")
            assert [await talk.read(), await talk.read()] == ["V1|0|OK|first", "V1|1|OK|second"]
            while len(begun) < session.MAX_PIPELINED + 2:
                await other.ask("V1|1|OFFSET|g t 0")
            for held in begun[2:]:
                held.cancel()

    with_broker(scenario, drain_ms=100)


def test_a_command_waits_for_the_answers_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    held: list[asyncio.Future[str]] = []

    def hold(_desk: Desk, _caller: Caller, args: str) -> asyncio.Future[str]:
        begun.append(args)
        held.append(asyncio.get_running_loop().create_future())
        return held[-1]

    async def answer(_desk: Desk, _caller: Caller, args: str) -> str:
        begun.append(args)
        return args

    changed = {"PRODUCE": hold, "COMMIT": hold, "CONSUME": answer}
    monkeypatch.setattr(session, "COMMANDS", {**COMMANDS, **changed})

    async def scenario(broker: Broker) -> None:
        async def others_had_turns() -> None:
            for _ in range(10):
                await other.ask("V1|1|OFFSET|g t 0")

        async with broker.connect() as talk, broker.connect() as other:
            talk.send("V1|1|PRODUCE|a", "V1|2|PRODUCE|b", "V1|3|CONSUME|c", "V1|4|COMMIT|d")
            await others_had_turns()
            assert begun == ["a", "b"]
            held[1].set_result("B")
            await others_had_turns()
            assert begun == ["a", "b"]
            held[0].set_result("A")
            replies = [await talk.read() for _ in range(3)]
            assert replies == ["V1|1|OK|A", "V1|2|OK|B", "V1|3|OK|c"]
            await others_had_turns()
            assert begun == ["a", "b", "c", "d"]
            held[2].set_result("D")
            assert await talk.read() == "V1|4|OK|D"

    with_broker(scenario)


def test_reading_goes_on_past_more_deleted_records_than_one_read_looks_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diff, "WINDOW_RECORDS", 5)
    monkeypatch.setattr(diff, "SCAN_RECORDS_MAX", 10)

    async def scenario(broker: Broker) -> None:
        await broker.log.append("t", [{"data": "first"}])
        await broker.log.append("t", [{"data": n, "tag": "gone"} for n in range(50)])
        await broker.log.append("t", [{"data": "last"}])
        await broker.log.delete("t", match="gone")
        assert (await broker.log.diff("t", from_seq=1)).count == 0
        async with broker.connect() as talk:
            assert await talk.ask("V1|1|CONSUME|t 0 1") == "V1|1|OK|messages=51:last"

    with_broker(scenario)


def test_a_fault_of_ours_hangs_up_and_is_reported_by_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(session, "COMMANDS", {**COMMANDS, "CONSUME": fail})

    async def scenario(broker: Broker) -> None:
        faults: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context.get("exception")))
        async with broker.connect() as talk, broker.connect() as other:
            talk.send("V1|1|CONSUME|t 0 0")
            assert await talk.read() == ""
            assert await other.ask("V1|1|OFFSET|g t 0") == "V1|1|OK|offset=0"
        assert [type(fault) for fault in faults] == [ZeroDivisionError]

    with_broker(scenario)


def test_a_stop_answers_what_was_asked_and_hangs_up() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.log.create("t", durability="fsync")
        port = broker.listener.port
        async with broker.connect() as talk:
            talk.send("V1|1|PRODUCE|t k:v")
            assert await talk.read() == "V1|1|OK|partition=0 offset=0"
            await broker.listener.close()
            assert await talk.read() == ""
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)

    with_broker(scenario)


def test_a_port_in_use_is_told_before_anything_is_replayed() -> None:
    async def scenario(broker: Broker) -> None:
        taken = ServerConfig(broker_port=broker.listener.port)
        second = BrokerListener(
            taken, parse_keys(""), clock=SystemClock(), report=broker.reported.append
        )
        with pytest.raises(ConfigError, match="TOPICS_BROKER_PORT"):
            await second.listen()

    with_broker(scenario)
