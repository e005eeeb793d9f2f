"""Keeping freed memory is a setting, not a habit."""

import platform

from topics.allocator import keep_freed_memory


def test_nothing_is_changed_where_nothing_is_to_be_kept() -> None:
    assert not keep_freed_memory(0)


def test_the_c_library_takes_the_setting_where_it_is_glibc() -> None:
    assert keep_freed_memory(64 << 20) == (platform.libc_ver()[0] == "glibc")
