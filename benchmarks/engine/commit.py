"""Synced writes: a lone appender against a bare fdatasync loop, and 64 appenders against one."""

import asyncio
import os
import time
from pathlib import Path

import uvloop

import topics
from benchmarks.engine.payloads import BATCH, body
from benchmarks.engine.places import data_dir
from topics.aio import AsyncLog

FILE_BYTES = 64 << 20
FRAME_BYTES = 246


def interleaved_p50_us(rounds: int = 20, per_round: int = 50) -> tuple[float, float]:
    """Return the median of a lone synced append and of a bare write + fdatasync, taken in turns."""
    request = body(count=1)
    ours: list[float] = []
    bare: list[float] = []
    with data_dir() as path, topics.open(path) as log:
        log.create("lone", durability="fsync")
        file = os.open(Path(path) / "bare", os.O_CREAT | os.O_RDWR)
        os.posix_fallocate(file, 0, FILE_BYTES)
        frame = b"x" * FRAME_BYTES
        offset = 0
        for _ in range(rounds):
            for _ in range(per_round):
                started = time.perf_counter()
                log.append_json("lone", request)
                ours.append(time.perf_counter() - started)
            for _ in range(per_round):
                started = time.perf_counter()
                os.pwrite(file, frame, offset)
                os.fdatasync(file)
                bare.append(time.perf_counter() - started)
                offset += FRAME_BYTES
        os.close(file)
    return _median_us(ours), _median_us(bare)


def bare_records_per_second(*, batches: int) -> float:
    """Return how many such records bare writes and syncs take, several writes to a sync."""
    return max(_bare_rate(batches, shared) for shared in (1, 2, 4, 8))


def _bare_rate(batches: int, shared: int) -> float:
    frames = b"x" * (FRAME_BYTES * BATCH)
    with data_dir() as path:
        file = os.open(Path(path) / "bare", os.O_CREAT | os.O_RDWR)
        os.posix_fallocate(file, 0, len(frames) * batches)
        os.fdatasync(file)
        started = time.perf_counter()
        for number in range(batches):
            os.pwrite(file, frames, number * len(frames))
            if number % shared == shared - 1:
                os.fdatasync(file)
        os.fdatasync(file)
        elapsed = time.perf_counter() - started
        os.close(file)
    return batches * BATCH / elapsed


async def _rate(log: AsyncLog, *, appenders: int, each: int) -> float:
    request = body(count=1)

    async def work() -> None:
        for _ in range(each):
            await log.append_json("many", request)

    await asyncio.gather(*[work() for _ in range(appenders)])
    started = time.perf_counter()
    await asyncio.gather(*[work() for _ in range(appenders)])
    return appenders * each / (time.perf_counter() - started)


async def _rates(path: str) -> tuple[float, float]:
    async with await AsyncLog.open(path) as log:
        await log.create("many", durability="fsync")
        serial = await _rate(log, appenders=1, each=1000)
        many = await _rate(log, appenders=64, each=400)
        return serial, many


def serial_and_concurrent_rates() -> tuple[float, float]:
    """Return synced appends a second of one appender and of 64."""
    with data_dir() as path:
        return uvloop.run(_rates(path))  # as the server does


def _median_us(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 2] * 1e6
