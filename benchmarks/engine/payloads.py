"""The records every measurement uses: 200 bytes of JSON each, with or without tags."""

RECORD_BYTES = 200
BATCH = 1000


def record(number: int, *, tag: str | None = None) -> bytes:
    """Return the JSON of one record whose `data` is about 200 bytes long."""
    data = b'{"id":%d,"customer":"c-%05d","total":129.90,"items":[3,14,159],"note":"' % (
        number,
        number % 100_000,
    )
    data += b"x" * (RECORD_BYTES - len(data) - 2) + b'"}'
    return b'{"data":' + data + (b',"tag":"%s"}' % tag.encode() if tag else b"}")


def body(first: int = 0, *, count: int = BATCH, tags: int = 0) -> bytes:
    """Return the JSON body of one write; with `tags`, record i has tag `customer:(i mod tags)`."""
    records = (
        record(i, tag=f"customer:{i % tags:07d}" if tags else None)
        for i in range(first, first + count)
    )
    return b'{"records":[' + b",".join(records) + b"]}"
