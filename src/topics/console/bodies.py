"""What stands on each page before its module fills in the numbers."""

from collections.abc import Mapping

_FILTER = """
<form class="toolbar" role="search" id="search">
<label for="filter">Filter by name</label>
<input id="filter" type="search" autocomplete="off" spellcheck="false">
<output id="shown" for="filter"></output>
</form>"""


def _table(name: str, caption: str, *columns: str) -> str:
    """Return an empty table; a column is its title behind its marks.

    `#`: it holds numbers; `-`: a phone has no room for it; `1` to `3`: its colour in bars.
    """
    heads = "".join(map(_column, columns))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
        f'<table id="{name}"><caption class="quiet">{caption}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody></tbody></table></div>"
    )


def _column(column: str) -> str:
    title = column.lstrip("#-123")
    marks = column.removesuffix(title)
    kinds = [kind for mark, kind in (("#", "number"), ("-", "wide")) if mark in marks]
    attribute = f' class="{" ".join(kinds)}"' if kinds else ""
    colour = marks.strip("#-")
    dot = f'<span class="mark fill-{colour}" aria-hidden="true"></span>' if colour else ""
    return f'<th scope="col"{attribute}>{dot}{title}</th>'


def _chart(name: str, title: str) -> str:
    return (
        f'<figure class="chart" id="{name}"><figcaption><h2>{title}</h2></figcaption>'
        '<div class="plot"></div></figure>'
    )


def _panel(name: str, title: str, inside: str) -> str:
    return (
        f'<section class="panel" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{title}</h2>{inside}</section>'
    )


TOPIC_BODY = (
    """
<p class="crumbs"><a href="/">Topics</a></p>
<div class="title"><h1 id="topic" data-topic="{topic}">{topic}</h1><span id="badges"></span></div>
<dl class="tiles" id="state"></dl>
<ul class="parts" id="parts" aria-label="Partitions" hidden></ul>
<div class="columns">
"""
    + _chart("rate", "Appended a second")
    + """
<details class="panel" id="config" open><summary>Config</summary>
<dl class="pairs">{config}</dl></details>
</div>
<section class="panel" aria-labelledby="tail-title">
<h2 id="tail-title">Live tail</h2>
<div class="toolbar">
<form id="tag-form"><label for="tag">Tag, or prefix*</label>
<input id="tag" autocomplete="off" spellcheck="false"><button>Apply</button></form>
<button type="button" id="pause" aria-pressed="false">Pause</button>
<span id="tail-state" class="quiet-text">connecting</span>
<form id="peek-form"><label for="peek">Peek at seq</label>
<input id="peek" type="number" min="1" required><button>Show</button></form>
</div>
<div id="peeked" class="peeked" aria-live="polite"></div>
<ol id="tail" class="records" aria-label="Records, newest first"></ol>
</section>"""
)

BODIES: Mapping[str, str] = {
    "overview": "<h1>Topics</h1>"
    '<dl class="tiles" id="totals"></dl>'
    + _chart("rates", "Records a second")
    + _FILTER
    + _table(
        "topics", "Topics by name",
        "Topic", "-Type", "-Class", "#Records", "-#Bytes", "-#Head", "#Per second",
        "Last 5 minutes", "-Last write",
    ),
    "queues": "<h1>Queues</h1>"
    '<p class="note">Ready jobs wait for a worker, leased ones are with one. Delayed ones come '
    "back later. A job that failed too often goes to the dead-letter topic of its queue; a redrive "
    "brings it back, once.</p>"
    + _FILTER
    + _table(
        "queues", "Queues by name",
        "Queue", "1#Ready", "2#Leased", "3-#Delayed", "-Now", "#Dead", "-Dead-letter topic",
        "Redrive",
    ),
    "groups": "<h1>Consumer groups</h1>"
    + '<div id="groups-empty" class="empty" hidden></div><div id="groups-content" hidden>'
    + _FILTER
    + _table(
        "groups", "Groups by name",
        "Group", "State", "-#Members", "-#Generation", "#Behind", "-Last 5 minutes",
    )
    + '<div id="group" hidden><h2 id="group-name"></h2>'
    + _chart("lag", "Records behind")
    + _table(
        "members", "Members of the group",
        "Member", "Owns", "#Last heard", "-#Gone if silent for",
    )
    + '<p id="no-members" class="empty" hidden>'
    "Nobody is in this group now. What it has read is remembered.</p>"
    + _table(
        "partitions", "Partitions of the group",
        "Topic", "#Partition", "-Owner", "-#Committed", "-#Head", "#Behind", "-Share",
    )
    + "</div></div>",
    "routers": "<h1>Routers</h1>"
    '<div id="routers-empty" class="empty" hidden></div>'
    '<div id="graph" class="graph scroll" tabindex="0" role="region" aria-label="Graph of routers">'
    "</div>"
    + _table(
        "routers", "Routers by name",
        "Router", "-From", "-To", "Filter", "-Guarantee", "#Copied", "#Behind",
    ),
    "storage": "<h1>Storage</h1>"
    '<dl class="tiles" id="totals"></dl>'
    + _panel("map", "What the bytes are", '<div id="map"></div>')
    + _FILTER
    + _table(
        "stored", "Topics by size",
        "Topic", "Map", "-#Log tail", "#Hot", "#Cold", "-#Dead", "-#Segments",
    ),
    "latency": "<h1>Latency</h1>"
    '<div class="columns">'
    + _chart("write", "Writes")
    + _chart("fsync", "Syncs of the log")
    + "</div>"
    '<div class="columns">'
    + _panel("write-histogram", "Writes since the start", '<div id="write-bars"></div>')
    + _panel("fsync-histogram", "Syncs since the start", '<div id="fsync-bars"></div>')
    + "</div>"
    + _table("routes", "Requests by route", "Route", "-Status", "#Count", "#p50", "#p99"),
    "pipeline": "<h1>Pipeline</h1>"
    '<div id="pipeline-empty" class="empty" hidden></div>'
    '<div id="pipeline-content" hidden>'
    + _chart("rows", "Rows a second, by batch")
    + _table(
        "runs", "Runs, newest first",
        "Job", "State", "-Run", "-#Last batch", "-#Its rows", "#Rows a second", "-#Rows in all",
        "#Lag", "-Updated",
    )
    + '<section id="lake" hidden><h2>Tables of the lake</h2>'
    + _table(
        "tables", "Tables of the lake by name",
        "Table", "#Rows", "Last change", "-Lake",
    )
    + "</section></div>",
}  # fmt: skip
