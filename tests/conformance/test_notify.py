"""The server as a service of systemd: it says when it is ready, alive, and stopping."""

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from topics.testing.server_process import ServerProcess

UNIT = Path(__file__).parents[2] / "deploy/systemd/topics.service"
SECTIONS = {"Unit", "Service", "Install"}
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def hear_until(listener: socket.socket, word: bytes) -> list[bytes]:
    """Return every datagram up to the first with this line."""
    heard: list[bytes] = []
    while not heard or word not in heard[-1].split(b"\n"):
        heard.append(listener.recv(4096))
    return heard


def test_systemd_hears_progress_then_ready_then_a_pulse_then_the_stop(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(20)
        settings = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
        with ServerProcess(str(tmp_path / "data"), settings=settings) as server:
            before = hear_until(listener, b"READY=1")
            assert before[0].startswith(b"STATUS=replaying the log: ")
            assert f"on {server.url}".encode() in before[-1]
            hear_until(listener, b"WATCHDOG=1")
            assert server.terminate() == 0
            heard = b"\n".join(hear_until(listener, b"STOPPING=1"))
            assert b"READY=1" not in heard


def test_a_start_that_fails_never_says_ready(tmp_path: Path) -> None:
    (tmp_path / "data" / "meta").mkdir(parents=True)
    (tmp_path / "data" / "meta" / "FORMAT").write_text("topics 99\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(0)
        settings = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with pytest.raises(RuntimeError, match="topics 99"):
            ServerProcess(str(tmp_path / "data"), settings=settings)
        heard = b""
        try:
            while True:
                heard += listener.recv(4096)
        except BlockingIOError:
            assert b"READY" not in heard


@needs_systemd
def test_systemd_finds_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/usr/local/lib/topics/bin/topics", sys.executable)
    copy = tmp_path / "topics.service"
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if copy.name in line]
    assert (done.returncode, said) == (0, [])


def test_every_line_of_the_unit_is_an_option_in_a_section() -> None:
    """Where there is no systemd: no line is lost to a typing error of its form."""
    section = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            assert re.match(r"[A-Z][A-Za-z]+=", line), line
            assert section in SECTIONS
    assert "Type=notify" in UNIT.read_text()
