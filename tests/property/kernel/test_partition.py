"""Properties of a write to partitions: what a key becomes, where it belongs, and the split."""

import json
import struct
from typing import Any

from hypothesis import given
from hypothesis.strategies import (
    DataObject,
    binary,
    data,
    dictionaries,
    integers,
    lists,
    none,
    permutations,
    sampled_from,
    text,
)
from tests.property.kernel.bodies import LIMITS, quoted, scalars
from tests.property.kernel.frames import FLAG_OPEN, edits, harm
from tests.property.kernel.twins import agreed, is_refused

from topics.errors import RequestError
from topics.kernel import Batch

NO_HASH = 2**64 - 1
short = text(max_size=10)


def fnv1a(key: bytes) -> int:
    """FNV-1a with 32 bits, as its authors write it down."""
    digest = 0x811C9DC5
    for octet in key:
        digest ^= octet
        digest = digest * 0x01000193 % 2**32
    return digest


def decode(batch: Batch) -> list[tuple[str | None, Any, Any]]:
    """Return `(tag, data, meta)` of every frame, read by the format page."""
    found = []
    for offset, size, _, flags in struct.iter_unpack("<IIQB3x", bytes(batch.idx)):
        frame = bytes(batch.frames[offset : offset + size])
        node_len, tag_len, data_len = struct.unpack_from("<HHI", frame, 30)
        tag = frame[38 + node_len : 38 + node_len + tag_len].decode()
        payload = frame[38 + node_len + tag_len :][:data_len]
        meta = None
        if flags & 16:
            (length,) = struct.unpack_from("<I", payload)
            meta, payload = json.loads(payload[4 + length :]), payload[4 : 4 + length]
        found.append((tag if flags & 1 else None, json.loads(payload), meta))
    return found


@given(choose=data())
def test_a_key_is_kept_as_the_tag_or_beside_another_tag_in_the_meta(choose: DataObject) -> None:
    spelled, meant = [], []
    for number in range(choose.draw(integers(1, 4), label="records")):
        key, tag = choose.draw(none() | short), choose.draw(none() | short)
        meta = choose.draw(none() | dictionaries(short, scalars, max_size=2))
        members = [f'"data":{number}']
        members += [] if key is None else [f'"key":{choose.draw(quoted(key))}']
        members += [] if tag is None else [f'"tag":{choose.draw(quoted(tag))}']
        members += [] if meta is None else [f'"meta":{json.dumps(meta)}']
        spelled.append("{" + ",".join(choose.draw(permutations(members))) + "}")
        if key is not None and tag not in (None, key):
            meta = {"$key": key, **{k: v for k, v in (meta or {}).items() if k != "$key"}}
        named = tag if key is None else key
        digest = NO_HASH if named is None else fnv1a(named.encode())
        meant.append(((key if tag is None else tag, number, meta), digest))
    body = f'{{"records":[{",".join(spelled)}]}}'.encode()
    batch = agreed("parse_batch", body, **LIMITS, keyed=True)
    assert isinstance(batch, Batch)
    assert decode(batch) == [record for record, _ in meant]
    assert batch.hashes == b"".join(struct.pack("<Q", digest) for _, digest in meant)
    assert batch.payload_bytes == len(batch.frames) - 46 * batch.count


FAULTY_FIELDS = {
    "tag": ['"ok"', "null", "5"],
    "key": ['"ok"', '""', "null", "5", "[]", '"\\ud800"', '"' + "é" * 128 + '"', f'"{"k" * 257}"'],
    "node": ['"ok"', "null", "[]"],
    "meta": ["{ }", "null", "[]", '{"a":"' + "m" * 512 + '"}'],
    "data": ["1", "null", '"' + "d" * 5000 + '"'],
}  # fmt: skip


@given(choose=data())
def test_the_twins_name_the_same_fault_of_a_keyed_body(choose: DataObject) -> None:
    records = []
    for _ in range(choose.draw(integers(1, 3), label="records")):
        members = [
            f'"{name}":{choose.draw(sampled_from(FAULTY_FIELDS[name]))}'
            for name in choose.draw(permutations([*FAULTY_FIELDS, "key"]))
        ]
        records.append("{" + ",".join(members) + "}")
    agreed("parse_batch", f'{{"records":[{",".join(records)}]}}'.encode(), **LIMITS, keyed=True)


@given(raw=sampled_from(["5", "[]", '"\\udc00"', f'"{"k" * 257}"']))
def test_a_bad_key_is_refused_for_partitions_and_unknown_elsewhere(raw: str) -> None:
    body = f'{{"records":[{{"data":1,"key":{raw}}}]}}'.encode()
    error, message = agreed("parse_batch", body, **LIMITS, keyed=True)
    assert error is RequestError
    assert message.startswith("record 0: 'key' ")
    plain = agreed("parse_batch", body, **LIMITS)
    assert decode(plain) == [(None, 1, None)]
    assert plain.hashes == b""


@given(key=binary())
def test_the_hash_is_fnv1a_with_32_bits(key: bytes) -> None:
    assert agreed("fnv1a_32", key) == fnv1a(key)


@given(
    hashes=lists(integers(0, 2**32 - 1) | sampled_from([NO_HASH])),
    partitions=integers(1, 2000),
    choose=data(),
)
def test_a_place_is_the_hash_modulo_the_partitions(
    hashes: list[int], partitions: int, choose: DataObject
) -> None:
    spare = choose.draw(integers(0, partitions - 1))
    raw = b"".join(struct.pack("<Q", digest) for digest in hashes)
    places = agreed("place_batch", raw, partitions=partitions, spare=spare)
    meant = [spare if digest == NO_HASH else digest % partitions for digest in hashes]
    assert list(struct.unpack(f"<{len(hashes)}H", places)) == meant


@given(partitions=integers(-2, 70_000), spare=integers(-2, 70_000), raw=binary(max_size=9))
def test_places_that_cannot_be_are_refused_alike(partitions: int, spare: int, raw: bytes) -> None:
    result = agreed("place_batch", raw, partitions=partitions, spare=spare)
    sound = 0 <= spare < partitions <= 0xFFFF and len(raw) % 8 == 0
    assert is_refused(result) is not sound


def parse(count: int) -> Batch:
    records = ",".join(f'{{"data":{i}{"9" * (i % 5)},"tag":"t{i}"}}' for i in range(count))
    batch = agreed("parse_batch", f'{{"records":[{records}]}}'.encode(), **LIMITS)
    assert isinstance(batch, Batch)
    return batch


@given(places=lists(sampled_from([0, 1, 2, 7, 1023]), min_size=1, max_size=40))
def test_a_split_deals_every_frame_to_its_partition_in_order(places: list[int]) -> None:
    batch = parse(len(places))
    parts = agreed("split_batch", batch, struct.pack(f"<{len(places)}H", *places))
    assert [place for place, _ in parts] == sorted(set(places))
    records = decode(batch)
    for place, part in parts:
        assert decode(part) == [r for r, p in zip(records, places, strict=True) if p == place]
        flags = [part.frames[o + 5] for o, *_ in struct.iter_unpack("<IIQB3x", bytes(part.idx))]
        assert [bool(f & FLAG_OPEN) for f in flags] == [True] * (part.count - 1) + [False]
        assert part.payload_bytes == len(part.frames) - 46 * part.count


@given(places=lists(integers(0, 3), min_size=1, max_size=6), changes=edits, cut=integers(0, 3))
def test_a_split_of_a_harmed_batch_reads_nothing_outside_of_it(
    places: list[int], changes: list[tuple[int, int, bytes]], cut: int
) -> None:
    batch = parse(len(places))
    batch.idx = bytearray(harm(bytes(batch.idx), changes))
    agreed("split_batch", batch, struct.pack(f"<{len(places)}H", *places)[cut:])


@given(
    places=lists(integers(0, 5) | sampled_from([1023])),
    firsts=lists(integers(1, 2**63), min_size=6, max_size=6),
    known=integers(0, 4),
)
def test_places_are_shown_with_the_seqs_that_are_known(
    places: list[int], firsts: list[int], known: int
) -> None:
    raw = struct.pack(f"<{len(places)}H", *places)
    first_seqs = dict(enumerate(firsts)) | {1023: 7}
    counts = dict.fromkeys(first_seqs, known)
    shown = json.loads(agreed("format_places", raw, first_seqs, counts))
    used = [places[:i].count(place) for i, place in enumerate(places)]
    assert shown == [
        [place, first_seqs[place] + before if before < known else 0]
        for place, before in zip(places, used, strict=True)
    ]
