"""The kernel in plain Python: the readable reference, and the fallback without a compiler."""

from topics.kernel.pure.answers import format_answers
from topics.kernel.pure.columns import decode_columns
from topics.kernel.pure.copy import copy_frames
from topics.kernel.pure.encode import encode_columns
from topics.kernel.pure.frame import xxh3_64
from topics.kernel.pure.gather import Gathering
from topics.kernel.pure.idx import (
    bisect_ts,
    count_live,
    delete_entries,
    evict_prefix,
    first_live,
    flag_frames,
    shift_idx,
    summarize_idx,
)
from topics.kernel.pure.intake import Intake
from topics.kernel.pure.judge import check_records
from topics.kernel.pure.parse import parse_batch
from topics.kernel.pure.partition import fnv1a_32, format_places, place_batch, split_batch
from topics.kernel.pure.project import project_records
from topics.kernel.pure.scan import find_frame, index_frames, scan_frames
from topics.kernel.pure.segment import frames_to_segment, index_segment
from topics.kernel.pure.send import send_all, send_answers, send_each
from topics.kernel.pure.stamp import stamp_batch
from topics.kernel.pure.tags import (
    build_tag_run,
    check_tag_run,
    lookup_tag_run,
    match_tags,
    merge_tag_runs,
)

__all__ = [
    "Gathering",
    "Intake",
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
