"""`/` and `/console/…`: the pages, what they load, and the numbers they show."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from topics.api.error_response import describe_error
from topics.api.exchange import Exchange
from topics.api.html import POLICY, redirect, reply_page
from topics.api.sampling import counts_of
from topics.console import views
from topics.console.assets import load_assets
from topics.console.pages import PAGES, Viewer, render_error, render_page, render_topic
from topics.console.ring import add_series
from topics.engine.measure import measure_wal
from topics.engine.queues.read import read_records
from topics.engine.request import build_write
from topics.errors import RequestError, RouteNotFound, TopicsError
from topics.limits import check_topic_name
from topics.model.diff import Record, Seq
from topics.model.json_text import decode_text

if TYPE_CHECKING:
    from topics.api.app import App

READ = frozenset({"read"})


class ResendRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record shall be appended once more, byte for byte."""

    seq: Seq


_DECODE_RESEND = msgspec.json.Decoder(ResendRequest).decode


# Pages.


def show_overview(app: "App", exchange: Exchange) -> None:
    _show(app, exchange, lambda viewer: render_page("overview", viewer))


def show_the_way(app: "App", exchange: Exchange) -> None:
    """Send who typed the name of the console to its first page."""
    del app
    redirect(exchange, "/")


def show_page(app: "App", exchange: Exchange) -> None:
    word = exchange.route.path.rpartition("/")[2]
    assert word in PAGES
    _show(app, exchange, lambda viewer: render_page(word, viewer))


def show_topic(app: "App", exchange: Exchange) -> None:
    def render(viewer: Viewer) -> str:
        exchange.caller.check_name(check_topic_name(exchange.name))
        topic = app.engine.find_partitioned(exchange.name) or app.engine.topic(exchange.name)
        return render_topic(
            topic.name, exchange.caller.shown_config(topic.config).as_dict(), viewer
        )

    _show(app, exchange, render)


def _show(app: "App", exchange: Exchange, render: Callable[[Viewer], str]) -> None:
    """Answer with a page, with a page that says what went wrong, or with the way to sign in."""
    if exchange.caller is app.keyring.nobody:
        goal = "" if exchange.head.path == "/" else f"?next={quote(exchange.head.path, safe='/')}"
        redirect(exchange, f"/console/login{goal}")
        return
    session = exchange.head.session
    viewer = Viewer(
        csrf=None if session is None else session.csrf,
        scopes=exchange.caller.scopes,
        key="" if app.keyring.is_open else exchange.caller.name,
    )
    try:
        exchange.caller.check_scopes(READ)
        page, status = render(viewer), 200
    except TopicsError as error:
        status, fields = describe_error(error)
        page = render_error(str(fields["message"]), viewer, status=status)
    reply_page(exchange, page, status=status)


# What pages load.


def give_asset(app: "App", exchange: Exchange) -> None:
    del app
    asset = load_assets().get(exchange.name)
    if asset is None:
        raise RouteNotFound("the console has no such file")
    headers = POLICY + b"Cache-Control: no-cache\r\nETag: %b\r\n" % asset.etag.encode()
    if exchange.head.headers.get("if-none-match") == asset.etag:
        exchange.reply(304, b"", content_type=asset.content_type, headers=headers)
    else:
        exchange.reply(200, asset.content, content_type=asset.content_type, headers=headers)


# What pages show.


async def give_data(app: "App", exchange: Exchange) -> None:
    give = _DATA.get(exchange.name)
    if give is None:
        raise RouteNotFound("the console shows no such thing")

    def render() -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(give(app, exchange)))

    # Off the event loop: with many topics it takes a while, and appends go on meanwhile.
    exchange.reply_json(await app.ready_log.look(render))


def _wanted(exchange: Exchange) -> str:
    """Return a part of the names that are looked for."""
    return exchange.head.parameters().get("q", "")


def _overview(app: "App", exchange: Exchange) -> views.View:
    sees, wanted = exchange.caller.sees, _wanted(exchange)
    return views.view_overview(app.engine, app.sampling.sampler, sees=sees, wanted=wanted)


def _history(app: "App", exchange: Exchange) -> views.View:
    """Give the series of the server, and those of the topic or group that is named."""
    sampler, parameters = app.sampling.sampler, exchange.head.parameters()
    found: views.View = {**sampler.history()}
    if topic := parameters.get("topic"):
        exchange.caller.check_name(topic)
        parts = [part.name for part in app.engine.partitions_of(topic)]
        found["topic"] = add_series([sampler.topic(name) for name in parts])
    if group := parameters.get("group"):
        for name in (group, *app.engine.groups.topics_of(group)):
            exchange.caller.check_name(name)
        found["group"] = sampler.group(group)
    return found


def _groups(app: "App", exchange: Exchange) -> views.View:
    sees, wanted = exchange.caller.sees, _wanted(exchange)
    return views.view_groups(app.engine, app.sampling.sampler, sees=sees, wanted=wanted)


def _queues(app: "App", exchange: Exchange) -> views.View:
    return views.view_queues(app.engine, sees=exchange.caller.sees, wanted=_wanted(exchange))


def _routers(app: "App", exchange: Exchange) -> views.View:
    return views.view_routers(app.engine, sees=exchange.caller.sees)


def _storage(app: "App", exchange: Exchange) -> views.View:
    return views.view_storage(app.engine, sees=exchange.caller.sees, wanted=_wanted(exchange))


def _latency(app: "App", exchange: Exchange) -> views.View:
    del exchange
    wal = measure_wal(app.engine.shards)
    latencies = {
        "write": counts_of(app.sampling.write_latency()),
        "fsync": counts_of(wal.sync_us),
    }
    routes = [
        (route.label, str(status), counts_of(histogram))
        for (route, status), histogram in list(app.metrics.latency_us.items())
        if route.path != "/" and not route.path.startswith("/console")  # we are not the load
    ]
    return views.view_latency(latencies, routes)


_DATA: dict[str, Callable[["App", Exchange], views.View]] = {
    "overview": _overview,
    "history": _history,
    "groups": _groups,
    "queues": _queues,
    "routers": _routers,
    "storage": _storage,
    "latency": _latency,
}


# What pages do.


async def resend(app: "App", exchange: Exchange) -> None:
    """Append a record once more: here, because a browser would change numbers it cannot hold."""
    seq = exchange.decode(_DECODE_RESEND).seq
    engine, log = app.engine, app.ready_log
    topic = engine.topic(exchange.name)
    verify = app.config.verify_reads
    found = await log.run(lambda: read_records(topic, [seq], verify=verify))
    if seq not in found:
        raise RequestError(f"there is no record {seq} in this topic any more")
    record = decode_text(found[seq], Record)
    # Of this very topic: a dead letter may say again which queue it comes from.
    write = build_write([_fields_of(record)], app.config, dead_letters=True)
    appended = await log.run(lambda: engine.append(topic, write))
    exchange.reply_json({"topic": topic.name, "seq": appended.first_seq})


def _fields_of(record: Record) -> dict[str, object]:
    fields: dict[str, object] = {"data": record.data_json}
    fields |= {"meta": record.meta_json} if record.meta is not None else {}
    fields |= {"node": record.node} if record.node is not None else {}
    fields |= {"tag": record.tag} if record.tag is not None else {}
    return fields
