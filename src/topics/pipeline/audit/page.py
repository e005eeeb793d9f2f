"""The report as one HTML page: no script, no file beside it, plots drawn as SVG. Pure."""

from collections.abc import Iterable
from html import escape

from topics.operate.report import Finding
from topics.operate.text import format_size
from topics.pipeline.audit.report import AuditReport, SegmentVerdict

_COLOURS = {
    "ok": "#2f9e6e",
    "torn": "#d7a520",
    "stray": "#8a8f98",
    "missing": "#c2410c",
    "damaged": "#c81e3a",
}
_STYLE = """
:root{color-scheme:light dark;--line:#8884}
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}td,th{padding:.25rem .5rem;text-align:left;
border-bottom:1px solid var(--line);vertical-align:top}td.n,th.n{text-align:right;
font-variant-numeric:tabular-nums}.ok{color:#2f9e6e}.bad{color:#c81e3a}svg{max-width:100%}
text{fill:currentColor;font-size:12px}
"""
_WIDTH, _ROW, _LABEL = 900, 22, 220
_TOPICS_MAX = 60
_ROWS_MAX = 500


def render_page(report: AuditReport, *, made: str) -> str:
    """Return the page; `made` says when."""
    word = '<b class="ok">healthy</b>' if report.healthy else '<b class="bad">not healthy</b>'
    rate = report.bytes / report.seconds if report.seconds else 0
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>Audit of {escape(report.source)}</title><style>{_STYLE}</style>",
        f"<h1>Audit of {escape(report.source)}: {word}</h1>",
        f"<p>{len(report.segments)} segments, {report.records} records, "
        f"{format_size(report.bytes)} in {report.seconds:.1f} s "
        f"({format_size(int(rate))}/s), {escape(made)}.</p>",
        "<h2>Segments by topic and seq</h2>",
        _map(report.segments),
        "<h2>Bytes by topic</h2>",
        _bars(report.segments),
        *_lakes(report),
        *_topics(report),
        *_segments(report),
    ]
    return "\n".join(parts) + "\n</html>\n"


def _by_topic(segments: Iterable[SegmentVerdict]) -> dict[str, list[SegmentVerdict]]:
    found: dict[str, list[SegmentVerdict]] = {}
    for segment in segments:
        found.setdefault(segment.topic, []).append(segment)
    return dict(list(found.items())[:_TOPICS_MAX])


def _map(segments: list[SegmentVerdict]) -> str:
    """Draw a line a topic, a box a segment, coloured by its verdict."""
    rows = []
    topics = _by_topic(segments)
    for number, (topic, found) in enumerate(topics.items()):
        y = number * _ROW
        rows.append(f'<text x="0" y="{y + 15}">{escape(topic[:32])}</text>')
        first = min(s.first_seq for s in found)
        last = max(s.first_seq + max(s.records, 1) for s in found)
        scale = (_WIDTH - _LABEL) / max(last - first, 1)
        for segment in found:
            x = _LABEL + (segment.first_seq - first) * scale
            width = max(segment.records * scale - 1, 1.5)
            title = f"{segment.first_seq}: {segment.records} records, {segment.verdict}"
            colour = _COLOURS[segment.verdict]
            rows.append(
                f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 8}" '
                f'fill="{colour}"><title>{escape(title)}</title></rect>'
            )
    return _svg(rows, len(topics))


def _bars(segments: list[SegmentVerdict]) -> str:
    """Draw the bytes of each topic, hot, cold and what is in no sealed segment."""
    rows = []
    topics = _by_topic(segments)
    sizes = {topic: sum(s.bytes for s in found) for topic, found in topics.items()}
    scale = (_WIDTH - _LABEL - 100) / max([*sizes.values(), 1])
    for number, (topic, found) in enumerate(topics.items()):
        y, x = number * _ROW, float(_LABEL)
        rows.append(f'<text x="0" y="{y + 15}">{escape(topic[:32])}</text>')
        for tier, colour in (("hot", "#d9822b"), ("cold", "#3b82c4"), ("tail", "#8a8f98")):
            size = sum(s.bytes for s in found if s.tier == tier)
            width = size * scale
            rows.append(
                f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 8}" '
                f'fill="{colour}"><title>{tier}: {format_size(size)}</title></rect>'
            )
            x += width
        rows.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{format_size(sizes[topic])}</text>')
    return _svg(rows, len(topics))


def _svg(rows: list[str], count: int) -> str:
    height = max(count, 1) * _ROW
    box = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">{"".join(rows)}</svg>'


def _lakes(report: AuditReport) -> Iterable[str]:
    for lake in report.lakes:
        yield f"<h2>Lake {escape(lake.table)}</h2>"
        yield (
            f"<p>{lake.log_records} records in the log, {lake.lake_rows} rows in the lake: "
            f"{lake.missing} missing, {lake.doubled} doubled, {lake.altered} altered; "
            f"{lake.only_in_lake} that the log has dropped since.</p>"
        )
        for what, topics in (("dropped", lake.dropped_topics), ("made anew", lake.earlier_lives)):
            if topics:
                yield f"<p>Topics that were {what} since: {escape(', '.join(topics))}.</p>"
        if lake.faults:
            yield _table(
                ("topic", "partition", "seq", "fault"),
                [(f.topic, f.partition, f.seq, f.fault) for f in lake.faults],
            )


def _topics(report: AuditReport) -> Iterable[str]:
    yield "<h2>Topics</h2>"
    yield _table(
        ("topic", "earliest", "head", "verdict", "findings"),
        [
            (
                t.name or f"{t.topic_id:016x}",
                t.earliest_seq,
                t.head_seq,
                t.verdict,
                _say(t.findings),
            )
            for t in report.topics[:_ROWS_MAX]
        ],
    )


def _segments(report: AuditReport) -> Iterable[str]:
    """Show what is bad first; the rest as far as a page can take it."""
    yield "<h2>Segments</h2>"
    order = sorted(report.segments, key=lambda s: s.verdict == "ok")
    yield _table(
        ("topic", "first seq", "records", "bytes", "tier", "verdict", "findings"),
        [
            (s.topic, s.first_seq, s.records, s.bytes, s.tier, s.verdict, _say(s.findings))
            for s in order[:_ROWS_MAX]
        ],
    )
    if len(order) > _ROWS_MAX:
        yield f"<p>and {len(order) - _ROWS_MAX} more; the JSON report has them all.</p>"


def _say(findings: list[Finding]) -> str:
    return "; ".join(
        finding.message if finding.offset is None else f"{finding.message} (byte {finding.offset})"
        for finding in findings
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    def cell(value: object) -> str:
        number = ' class="n"' if isinstance(value, int) else ""
        return f"<td{number}>{escape(str(value))}</td>"

    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{body}</table>"
