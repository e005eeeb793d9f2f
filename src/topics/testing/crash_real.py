"""Cycles of a real process: load, kill or power cut, start, check."""

import os
from collections.abc import Generator
from random import Random

from topics.testing.power_image import PowerImage
from topics.testing.real_process import Promises, RealProcess, check_directory


def kill_cycles(directory: str, *, cycles: int, seed: int) -> Generator[int, None, None]:
    """Kill a process under load so often; yield how many writes it had been promised each time."""
    chance = Random(seed)
    promises = Promises()
    for cycle in range(cycles):
        process = RealProcess(directory, promises, seed=seed + cycle)
        try:
            process.wait_for_acks(chance.randint(1, 400))
        finally:
            process.kill()
        check_directory(directory, promises, power_was_cut=False)
        yield process.acks


def power_cut_cycles(directory: str, *, cycles: int, seed: int) -> Generator[int, None, None]:
    """Cut the power of a file system under load so often."""
    chance = Random(seed)
    promises = Promises()
    with PowerImage(directory) as image:
        for cycle in range(cycles):
            image.mount()
            data_dir = f"{image.root}/data"
            os.makedirs(data_dir, exist_ok=True)  # noqa: PTH103 - plain strings as in the image
            process = RealProcess(data_dir, promises, seed=seed + cycle)
            try:
                process.wait_for_acks(chance.randint(1, 400))
                process.power_goes()
                image.cut_power()
            finally:
                process.kill()
            image.unmount()
            image.mount()
            check_directory(data_dir, promises, power_was_cut=True)
            image.unmount()
            yield process.acks
