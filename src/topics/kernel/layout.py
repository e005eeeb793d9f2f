"""The numbers both twins share: field sizes, flags, layouts, struct formats.

Owns no behaviour. Byte references: docs/internals/formats/wal.md and segment.md.
"""

from mmap import mmap
from struct import Struct
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap
Match: TypeAlias = tuple[int, bytes]
Run: TypeAlias = tuple[int, int, int, int, int, int]
"""`(type, topic_id, first_seq, count, start, end)`."""

WAL_LAYOUT: Final = 0
SEGMENT_LAYOUT: Final = 1

MATCH_EQ: Final = 1
MATCH_PREFIX: Final = 2

COLUMN_DATA: Final = 1
COLUMN_META: Final = 2
COLUMN_TAG: Final = 4
COLUMN_NODE: Final = 8
COLUMN_BYTES_MAX: Final = 0x7FFF_FFFF
"""Arrow counts the bytes of a string column with 31 bits."""

FRAME_APPEND: Final = 1
FRAME_TYPE_MAX: Final = 16

FLAG_TAG: Final = 1
FLAG_NODE: Final = 2
FLAG_DURABLE: Final = 4
FLAG_DELETED: Final = 8
"""Only in idx entries: a frame says it with its delete byte."""
FLAG_META: Final = 16
FLAG_BATCH_OPEN: Final = 32
IDX_FLAGS: Final = FLAG_TAG | FLAG_NODE | FLAG_META
"""What an idx entry repeats of its frame's flags."""

DELETED_BYTE: Final = 0xD5

WAL_HEADER: Final = Struct("<IBBQQQHHI")
SEGMENT_HEADER: Final = Struct("<IBQQQHHI")
IDX_ENTRY: Final = Struct("<IIQB3x")
TAG_RUN_HEADER: Final = Struct("<4sIIIQ")
TAG_RUN_ENTRY: Final = Struct("<QII")
U16: Final = Struct("<H")
U32: Final = Struct("<I")
U64: Final = Struct("<Q")

SIZE_BYTES: Final = 4
FRAME_OVERHEAD_BYTES: Final = 46
IDX_ENTRY_BYTES: Final = 20
TAG_RUN_HEADER_BYTES: Final = 24
TAG_RUN_ENTRY_BYTES: Final = 16
TAG_RUN_MAGIC: Final = b"TTR1"

U16_MAX: Final = 0xFFFF
U32_MAX: Final = 0xFFFF_FFFF
I64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
U64_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF

JSON_DEPTH_MAX: Final = 256
META_KEYS_MAX: Final = 64
KEY_BYTES_MAX: Final = 256
DEAD_LETTER_KEYS: Final = "$dead_letter_"
"""How keys of a meta begin that only the server writes: a redrive goes by them."""
NO_HASH: Final = U64_MAX
"""In `Batch.hashes`: a record with neither key nor tag."""
SEGMENT_ENTRIES_MAX: Final = U32_MAX // FRAME_OVERHEAD_BYTES
"""More entries never fitted a segment whose offsets are u32, so a wider gap is damage."""
