from pathlib import Path
from urllib.request import urlopen

import pytest

from topics.testing.server_process import ServerDidNotStart, ServerProcess


def test_a_server_keeps_its_port_through_kill_and_stop(tmp_path: Path) -> None:
    with ServerProcess(str(tmp_path / "data")) as server:
        url = server.url
        server.kill9()
        server.restart()
        assert server.url == url
        assert server.terminate() == 0
        server.restart()
        with urlopen(f"{url}/v0/ready") as reply:
            assert reply.status == 200


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the directory should be")
    with pytest.raises(ServerDidNotStart) as error:
        ServerProcess(str(tmp_path / "data"))
    assert error.value.returncode
    assert error.value.said
