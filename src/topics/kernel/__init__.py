"""The inner loops: body → frames → disk → frames → reply, at the speed of C where C is there.

Two twins do the same: `_native`, built from Cython, and `pure`, the readable reference that takes
over, with a warning, where the extension was not built. `TOPICS_PURE_PYTHON=1` asks for `pure`.
Keeps: no input, however hostile, makes either read outside the buffers it was given.
Byte references: docs/internals/formats/wal.md and segment.md.
"""

import os
import warnings
from typing import TYPE_CHECKING, Literal

from topics.kernel.batch import Batch, Column, Columns, IdxSummary, Projection, Scan
from topics.kernel.layout import (
    COLUMN_DATA,
    COLUMN_META,
    COLUMN_NODE,
    COLUMN_TAG,
    DELETED_BYTE,
    FLAG_BATCH_OPEN,
    FLAG_DELETED,
    FLAG_DURABLE,
    FLAG_META,
    FLAG_NODE,
    FLAG_TAG,
    FRAME_OVERHEAD_BYTES,
    IDX_ENTRY_BYTES,
    MATCH_EQ,
    MATCH_PREFIX,
    SEGMENT_LAYOUT,
    WAL_LAYOUT,
    Buffer,
    Match,
    Run,
)

IMPLEMENTATION: Literal["native", "pure"]

if TYPE_CHECKING:
    from topics.kernel import pure as _twin

    IMPLEMENTATION = "pure"
else:
    # The environment decides here, not a config: the twin is chosen before any config is read.
    _wants_pure = os.environ.get("TOPICS_PURE_PYTHON", "") not in ("", "0")  # noqa: TID251
    try:
        if _wants_pure:
            raise ImportError  # noqa: TRY301 - one way into the twin
        from topics.kernel import _native as _twin

        IMPLEMENTATION = "native"
    except ImportError:
        from topics.kernel import pure as _twin

        IMPLEMENTATION = "pure"
        if not _wants_pure:
            warnings.warn(
                "topics.kernel runs in plain Python, ten to forty times slower: install a C "
                "compiler, Cython and xxhash.h (libxxhash-dev or pyarrow), then install again",
                RuntimeWarning,
                stacklevel=2,
            )

Gathering = _twin.Gathering
Intake = _twin.Intake
bisect_ts = _twin.bisect_ts
build_tag_run = _twin.build_tag_run
check_records = _twin.check_records
check_tag_run = _twin.check_tag_run
copy_frames = _twin.copy_frames
count_live = _twin.count_live
decode_columns = _twin.decode_columns
delete_entries = _twin.delete_entries
encode_columns = _twin.encode_columns
evict_prefix = _twin.evict_prefix
find_frame = _twin.find_frame
first_live = _twin.first_live
flag_frames = _twin.flag_frames
fnv1a_32 = _twin.fnv1a_32
format_answers = _twin.format_answers
format_places = _twin.format_places
frames_to_segment = _twin.frames_to_segment
index_frames = _twin.index_frames
index_segment = _twin.index_segment
lookup_tag_run = _twin.lookup_tag_run
match_tags = _twin.match_tags
merge_tag_runs = _twin.merge_tag_runs
parse_batch = _twin.parse_batch
place_batch = _twin.place_batch
project_records = _twin.project_records
scan_frames = _twin.scan_frames
send_all = _twin.send_all
send_answers = _twin.send_answers
send_each = _twin.send_each
shift_idx = _twin.shift_idx
split_batch = _twin.split_batch
stamp_batch = _twin.stamp_batch
summarize_idx = _twin.summarize_idx
xxh3_64 = _twin.xxh3_64

__all__ = [
    "COLUMN_DATA",
    "COLUMN_META",
    "COLUMN_NODE",
    "COLUMN_TAG",
    "DELETED_BYTE",
    "FLAG_BATCH_OPEN",
    "FLAG_DELETED",
    "FLAG_DURABLE",
    "FLAG_META",
    "FLAG_NODE",
    "FLAG_TAG",
    "FRAME_OVERHEAD_BYTES",
    "IDX_ENTRY_BYTES",
    "IMPLEMENTATION",
    "MATCH_EQ",
    "MATCH_PREFIX",
    "SEGMENT_LAYOUT",
    "WAL_LAYOUT",
    "Batch",
    "Buffer",
    "Column",
    "Columns",
    "Gathering",
    "IdxSummary",
    "Intake",
    "Match",
    "Projection",
    "Run",
    "Scan",
    "bisect_ts",
    "build_tag_run",
    "check_records",
    "check_tag_run",
    "copy_frames",
    "count_live",
    "decode_columns",
    "delete_entries",
    "encode_columns",
    "evict_prefix",
    "find_frame",
    "first_live",
    "flag_frames",
    "fnv1a_32",
    "format_answers",
    "format_places",
    "frames_to_segment",
    "index_frames",
    "index_segment",
    "lookup_tag_run",
    "match_tags",
    "merge_tag_runs",
    "parse_batch",
    "place_batch",
    "project_records",
    "scan_frames",
    "send_all",
    "send_answers",
    "send_each",
    "shift_idx",
    "split_batch",
    "stamp_batch",
    "summarize_idx",
    "xxh3_64",
]
