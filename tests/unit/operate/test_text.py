"""Text for people."""

import pytest

from topics.operate.text import format_range, format_size, plural, printable


def test_nothing_in_a_name_can_steer_a_terminal() -> None:
    assert printable("a\x1b[2Jb\x07\x9bc\u202ed\u2028e\n") == "a?[2Jb??c?d?e?"
    assert printable("Grüße, 世界 ✓") == "Grüße, 世界 ✓"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 60, "1048576.0 TiB"),
    ],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert format_size(size) == text


def test_ranges_and_counts_are_readable() -> None:
    assert format_range(7, 9) == "seqs 7 to 9"
    assert format_range(7, 7) == format_range(7, None) == "seq 7"
    assert format_range(None, None) == ""
    assert (plural(1, "file"), plural(2000, "file")) == ("1 file", "2,000 files")
