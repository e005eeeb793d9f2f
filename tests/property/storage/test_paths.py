"""Names of files: what is parsed is what was built, and nothing else is taken for one of ours."""

from hypothesis import given
from hypothesis import strategies as st

from topics.storage.disk import paths

U64 = st.integers(0, 2**64 - 1)
SEQS = st.integers(1, 2**64 - 1)


def last(path: str) -> str:
    return path.rpartition("/")[2]


@given(number=U64, other=SEQS, shard=st.integers(0, 99), shards=st.integers(2, 99))
def test_every_name_comes_back(number: int, other: int, shard: int, shards: int) -> None:
    assert paths.parse_snapshot_name(last(paths.snapshot_path(number))) == number
    assert paths.parse_wal_file_name(paths.wal_file_name(number)) == number
    assert paths.parse_topic_dir_name(last(paths.topic_dir(number))) == number
    assert paths.parse_segment_name(last(paths.segment_data_path(1, other))) == (other, "data")
    assert paths.parse_segment_name(last(paths.segment_idx_path(1, other))) == (other, "idx")
    assert paths.parse_tag_run_name(last(paths.tag_run_path(1, 1, other))) == (1, other)
    assert paths.parse_shard_dir_name(last(paths.wal_shard_dir(shard, shards=shards))) == shard


@given(number=U64)
def test_a_temporary_name_is_none_of_ours(number: int) -> None:
    names = [
        last(paths.snapshot_path(number)),
        paths.wal_file_name(number),
        last(paths.segment_data_path(1, number)),
        last(paths.segment_idx_path(1, number)),
        last(paths.tag_run_path(1, number, number)),
    ]
    for name in names:
        assert parsed(name + paths.TEMPORARY_SUFFIX) == [None] * 6


@given(name=st.text(max_size=40) | st.from_regex(r"(wal|seg|tags|snapshot|shard)[-.].*"))
def test_parsing_any_name_gives_a_number_or_nothing(name: str) -> None:
    for found in parsed(name):
        assert found is None or found is not False


@given(numbers=st.lists(st.integers(1, 10**16 - 1), min_size=2, max_size=5))
def test_names_sort_like_their_numbers(numbers: list[int]) -> None:
    for name in (paths.wal_file_name, lambda n: paths.segment_data_path(1, n)):
        assert sorted(map(name, numbers)) == [name(n) for n in sorted(numbers)]


def test_one_shard_lies_flat() -> None:
    assert paths.wal_shard_dir(0, shards=1) == "wal"
    assert paths.wal_shard_dir(0, shards=2) == "wal/shard-00"


def parsed(name: str) -> list[object]:
    return [
        paths.parse_snapshot_name(name),
        paths.parse_wal_file_name(name),
        paths.parse_shard_dir_name(name),
        paths.parse_topic_dir_name(name),
        paths.parse_segment_name(name),
        paths.parse_tag_run_name(name),
    ]
