"""The rules that hold on every route: JSON, media types, encodings, methods, bytes."""

import gzip
import json

import pytest
from tests.conformance.api import Api, fresh, ok, refused
from tests.conformance.h2_client import H2Socket, fields

from topics.testing.server_process import ServerProcess

SETTINGS = {"TOPICS_MAX_BODY_BYTES": "3000000"}

SPELLINGS = [
    b"1.0",
    b"1e5",
    b"1E+5",
    b"-0",
    b"-0.0",
    b"100000000000000000000000000000000",
    b"0.10000000000000000000001",
    b"18446744073709551616",
    b'{"b":1,"a":2}',
    b'{"a":1,"a":2}',
    b'"\\u0041\\/\\u00e9\\ud83d\\ude42"',
    '"é🙂"'.encode(),
    b'"a  b"',
    b'"\\u0000\\b\\f\\n"',
    '"\u2028\u2029"'.encode(),
    b'""',
    b"[]",
    b"{}",
    b"null",
    b"true",
    b'{"":{"":[null,[[]],{}]}}',
    b'{"data":{"records":[1]},"$seq":7}',
    b"[1.50,2.0e-7]",
]
BROKEN = [
    b"",
    b" ",
    b"{",
    b'{"records":[{"data":1}]',
    b'{"records":[{"data":1}]}}',
    b'{"records":[{"data":01}]}',
    b'{"records":[{"data":+1}]}',
    b'{"records":[{"data":.5}]}',
    b'{"records":[{"data":1.}]}',
    b'{"records":[{"data":NaN}]}',
    b'{"records":[{"data":Infinity}]}',
    b"{'records':[{'data':1}]}",
    b'{"records":[{"data":"\n"}]}',
    b'{"records":[{"data":"\\x"}]}',
    b'{"records":[{"data":"\xff"}]}',
    b'{"records":[{"data":"\xc0\xaf"}]}',
    b'{"records":[{"data":"\xed\xa0\x80"}]}',
    b'{"records":[{"data":1,}]}',
    b'{"records":[{"data":1}],}',
    b'{"records":[{"data":tru}]}',
    b'\xef\xbb\xbf{"records":[{"data":1}]}x',
    b'{"records":[{"data":' + b"[" * 5000 + b"]" * 5000 + b"}]}",
]


@pytest.mark.parametrize("data", SPELLINGS)
def test_data_comes_back_as_the_very_bytes(api: Api, durability: str, data: bytes) -> None:
    topic = fresh()
    api.create(topic, durability=durability)
    ok(api.raw("POST", f"topics/{topic}", b'{"records":[{"data":' + data + b"}]}"))
    page = api.raw("POST", f"topics/{topic}/diff", b"{}").content
    assert b'"data":' + data + b"}" in page or b'"data":' + data + b"," in page


@pytest.mark.parametrize("data", [s for s in SPELLINGS if s.startswith(b"{")])
def test_meta_comes_back_as_the_very_bytes(api: Api, data: bytes) -> None:
    topic = fresh()
    body = b'{"records":[{"meta":' + data + b',"data":1}]}'
    ok(api.raw("POST", f"topics/{topic}", body), 201)
    page = api.raw("POST", f"topics/{topic}/diff", b"{}").content
    assert b'"meta":' + data in page


def test_the_spaces_around_values_do_not_matter(api: Api) -> None:
    topic = fresh()
    body = b' {\n "records" : [ { "tag" : "t" , "data" : [ 1 , 2 ] } ] } \r\n'
    ok(api.raw("POST", f"topics/{topic}", body), 201)
    assert api.data(topic) == [[1, 2]]


@pytest.mark.parametrize("body", BROKEN)
def test_broken_json_is_refused(api: Api, body: bytes) -> None:
    topic = fresh()
    refused(api.raw("POST", f"topics/{topic}", body), 400, "invalid_request")
    refused(api.get(f"topics/{topic}"), 404, "topic_not_found")


@pytest.mark.parametrize("body", BROKEN[:5])
@pytest.mark.parametrize("path", ["topics/x/diff", "topics/x/delete", "watch", "topics/x/claim"])
def test_broken_json_is_refused_on_every_route(api: Api, path: str, body: bytes) -> None:
    refused(api.raw("POST", path, body), 400, "invalid_request")


@pytest.mark.parametrize(
    "given", [None, "text/plain", "application/jsonx", "application/x-www-form-urlencoded", ""]
)
def test_another_media_type_is_refused(api: Api, given: str | None) -> None:
    headers = {} if given is None else {"Content-Type": given}
    for method, path in (
        ("POST", f"topics/{fresh()}"),
        ("POST", "topics/x/diff"),
        ("POST", "topics/x/delete"),
        ("POST", "watch"),
        ("POST", "topics/x/claim"),
        ("PUT", f"topics/{fresh()}"),
        ("PUT", "routers/r"),
    ):
        response = api.raw(method, path, b"{}", headers)
        refused(response, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "given", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"]
)
def test_parameters_and_case_of_the_media_type_do_not_matter(api: Api, given: str) -> None:
    ok(api.raw("PUT", f"topics/{fresh()}", b"{}", {"Content-Type": given}), 201)


def test_a_large_body_is_refused_before_it_is_parsed(api: Api) -> None:
    body = b"not json" * 400_000
    refused(api.raw("POST", f"topics/{fresh()}", body), 413, "payload_too_large")


def test_a_body_without_a_length_is_counted_while_it_comes(api: Api) -> None:
    response = api.client.post(
        f"/v0/topics/{fresh()}",
        content=(b"x" * 100_000 for _ in range(40)),
        headers={"Content-Type": "application/json"},
    )
    refused(response, 413, "payload_too_large")


def test_a_body_in_chunks_is_read(api: Api) -> None:
    topic = fresh()
    response = api.client.post(
        f"/v0/topics/{topic}",
        content=iter([b'{"rec', b'ords":[{"da', b'ta":1}]}']),
        headers={"Content-Type": "application/json"},
    )
    assert ok(response, 201)["count"] == 1


def test_a_gzipped_body_is_read(api: Api) -> None:
    topic = fresh()
    body = gzip.compress(json.dumps({"records": [{"data": "x" * 1000}]}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert ok(api.raw("POST", f"topics/{topic}", body, headers), 201)["count"] == 1
    assert api.data(topic) == ["x" * 1000]


@pytest.mark.parametrize("body", [b"not gzip", b"", gzip.compress(b'{"records"', mtime=0)[:-3]])
def test_a_broken_gzip_is_refused(api: Api, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused(api.raw("POST", f"topics/{fresh()}", body, headers), 400, "invalid_request")


def test_an_unknown_encoding_is_refused(api: Api) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "br"}
    response = api.raw("POST", f"topics/{fresh()}", b"{}", headers)
    assert response.status_code in {400, 415}
    assert response.json()["error"]["code"] in {"invalid_request", "unsupported_media_type"}


def test_a_reply_is_gzipped_only_when_asked(api: Api) -> None:
    topic = fresh()
    api.append(topic, *["x" * 1000] * 20)
    for asked, expected in (("gzip", "gzip"), ("identity", None), ("gzip;q=0", None)):
        response = api.client.post(
            f"/v0/topics/{topic}/diff", json={}, headers={"Accept-Encoding": asked}
        )
        assert response.headers.get("content-encoding") == expected
        assert len(ok(response)["records"]) == 20


@pytest.mark.parametrize(
    "path", ["/x", "/v0", "/v0/nothing", "/v1/topics", "/v0/topics/x/dance", "/v0/topics/x/diff/y"]
)
def test_an_unknown_route_is_not_found(api: Api, path: str) -> None:
    refused(api.client.get(path), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "/v0/topics/x"),
        ("GET", "/v0/topics/x/diff"),
        ("PUT", "/v0/topics/x/diff"),
        ("GET", "/v0/topics/x/delete"),
        ("GET", "/v0/topics/x/claim"),
        ("POST", "/v0/topics/x/work"),
        ("POST", "/v0/topics"),
        ("DELETE", "/v0/routers"),
        ("POST", "/v0/routers/x"),
        ("GET", "/v0/watch"),
        ("POST", "/v0/health"),
        ("POST", "/v0/metrics"),
    ],
)
def test_another_method_is_refused(api: Api, method: str, path: str) -> None:
    response = api.client.request(method, path, json={})
    refused(response, 405, "method_not_allowed")


@pytest.mark.parametrize("value", ["maybe", "2", ""])
def test_a_bad_boolean_in_the_query_is_refused(api: Api, value: str) -> None:
    topic = fresh()
    api.create(topic)
    refused(api.get(f"topics/{topic}", touch=value), 400, "invalid_request")


def test_a_reply_may_not_be_stored_or_sniffed(api: Api) -> None:
    response = api.client.get("/v0/health")
    assert "content-length" in response.headers or response.http_version == "HTTP/2"


def test_many_streams_share_an_http2_connection(server: ServerProcess, http1: Api) -> None:
    topic = fresh()
    http1.create(topic)
    json_type = ("content-type", "application/json")
    head = fields("POST", f"/v0/topics/{topic}/diff", json_type, authority="127.0.0.1")
    with H2Socket(server.port) as connection:
        waits = [connection.request(head, b'{"wait_ms":9000}') for _ in range(6)]
        quick = connection.request(fields("GET", "/v0/health", authority="127.0.0.1"))
        connection.receive(until_stream=quick, deadline_s=5)
        assert connection.statuses == {quick: 200}
        http1.append(topic, 1)
        for wait in waits:
            connection.receive(until_stream=wait, deadline_s=5)
        assert connection.ended == {quick, *waits}
        assert set(connection.statuses.values()) == {200}


def test_a_large_body_and_a_large_reply_pass_http2_flow_control(api: Api) -> None:
    topic = fresh()
    api.append(topic, *["x" * 100_000] * 20)
    page = api.diff(topic, max_batch_bytes=8 * 1024 * 1024)
    assert [len(record["data"]) for record in page["records"]] == [100_000] * 20
