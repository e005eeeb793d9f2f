"""kill -9 under PRODUCE and COMMIT: what was answered OK is there afterwards."""

import threading
import time
from pathlib import Path

import pytest
from tests.conformance.lines import LineClient, free_port

from topics.testing.server_process import ServerProcess

LIVES = 3
ACKS_A_LIFE = 300
LIFE_S = 10.0
PRODUCERS = 3


class Producer(threading.Thread):
    """Writes and commits until its connection breaks; keeps what it was told."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(daemon=True)
        self._client = LineClient(port)
        self.group = name
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = {}
        self.wrong: list[bytes] = []

    def run(self) -> None:
        number = 0
        try:
            while True:
                self._write([f"{self.group}-{number + step}" for step in range(8)])
                number += 8
        except OSError:
            self._client.close()

    def _write(self, values: list[str]) -> None:
        lines = [f"V1|1|PRODUCE|orders {value}:{value} acks=all\n" for value in values]
        self._client.send("".join(lines).encode())
        ends: dict[int, int] = {}
        for value in values:
            placed = self._heard(b"V1|1|OK|")
            partition, offset = (int(part.partition(b"=")[2]) for part in placed.split())
            self.acknowledged[partition, offset] = value
            ends[partition] = offset + 1
        for partition, end in ends.items():
            self._client.send(f"V1|2|COMMIT|{self.group} orders {partition} {end}\n".encode())
            self._heard(b"V1|2|OK|committed=true")
            self.committed[partition] = end

    def _heard(self, start: bytes) -> bytes:
        reply = self._client.read()
        if not reply.endswith(b"\n"):
            raise ConnectionError
        if not reply.startswith(start):
            self.wrong.append(reply)
            raise ConnectionError
        return reply.removeprefix(start)


def read_all(port: int) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    with LineClient(port) as client:
        for partition in range(3):
            offset = 0
            while listed := client.ok("CONSUME", f"orders {partition} {offset}").partition("=")[2]:
                for message in listed.split(","):
                    number, _, value = message.partition(":")
                    found[partition, int(number)] = value
                    offset = int(number) + 1
    return found


def committed(port: int, group: str) -> dict[int, int]:
    with LineClient(port) as client:
        found = [client.ok("OFFSET", f"{group} orders {partition}") for partition in range(3)]
    return {n: int(payload.removeprefix("offset=")) for n, payload in enumerate(found)}


@pytest.mark.crash
def test_what_was_answered_ok_survives_kill_9(tmp_path: Path) -> None:
    port = free_port()
    settings = {"TOPICS_BROKER_PORT": str(port), "TOPICS_WAL_FILE_BYTES": "65536"}
    promised: dict[tuple[int, int], str] = {}
    with ServerProcess(str(tmp_path / "data"), settings=settings) as server:
        for life in range(LIVES):
            producers = [Producer(port, f"p{life}-{number}") for number in range(PRODUCERS)]
            for producer in producers:
                producer.start()
            until_s = time.monotonic() + LIFE_S
            while sum(len(producer.acknowledged) for producer in producers) < ACKS_A_LIFE:
                assert time.monotonic() < until_s, [producer.wrong for producer in producers]
                time.sleep(0.001)
            server.kill9()
            for producer in producers:
                producer.join(LIFE_S)
                assert producer.wrong == []
                assert not promised.keys() & producer.acknowledged.keys(), "an offset came twice"
                promised.update(producer.acknowledged)
            server.restart()
            found = read_all(port)
            assert {place: found.get(place) for place in promised} == promised
            for producer in producers:
                now = committed(port, producer.group)
                behind = {p: end for p, end in producer.committed.items() if now[p] < end}
                assert behind == {}
