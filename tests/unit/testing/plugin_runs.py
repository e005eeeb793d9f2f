"""A pytest inside of a test, with nothing but what a user of the package has."""

import textwrap

import pytest

CONFTEST = """
import json, urllib.request
import pytest

@pytest.fixture
def post(topics_server):
    def post(path, body):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            topics_server.url + path, json.dumps(body).encode(), headers
        )
        return json.loads(urllib.request.urlopen(request).read())
    return post
"""


def run_inner(
    pytester: pytest.Pytester, test: str, *, passed: int = 0, errors: int = 0
) -> pytest.RunResult:
    """Run a test file in a process of its own and check how many of its tests passed.

    Only our plugin is loaded, which saves two of three seconds: others are slow to import.
    """
    pytester.makeconftest(CONFTEST)
    pytester._monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(textwrap.dedent(test))
    result = pytester.runpytest_subprocess("-q", "-W", "error", "-p", "topics.pytest_plugin")
    result.assert_outcomes(passed=passed, errors=errors)
    return result
