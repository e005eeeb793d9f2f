# One frame at one place, WAL or segment layout: is it whole, and does its checksum hold?

cdef enum:
    WAL_LAYOUT = 0
    SEGMENT_LAYOUT = 1

    FRAME_APPEND = 1
    FRAME_TYPE_MAX = 16
    FRAME_OVERHEAD = 46
    SIZE_BYTES = 4
    CHECKSUM_BYTES = 8

    FLAG_TAG = 1
    FLAG_NODE = 2
    FLAG_DELETED = 8
    FLAG_META = 16
    FLAG_BATCH_OPEN = 32
    IDX_FLAGS = 19

    IDX_ENTRY = 20

cdef uint8_t DELETED_BYTE = 0xD5
cdef int64_t BASE_MAX = 1 << 62

cdef struct Frame:
    const uint8_t* start
    const uint8_t* node
    const uint8_t* tag
    const uint8_t* data
    const uint8_t* checksum
    uint64_t topic_id
    uint64_t seq
    uint64_t ts
    uint64_t size
    uint32_t data_len
    uint16_t node_len
    uint16_t tag_len
    uint8_t type
    uint8_t flags

cdef struct Entry:
    uint64_t ts
    uint32_t offset
    uint32_t size
    uint8_t flags


cdef inline bint read_frame(
    const uint8_t* at, const uint8_t* stop, int layout, Frame* frame
) noexcept nogil:
    """False unless a frame whose lengths add up lies whole in [at, stop)."""
    cdef const uint8_t* fields
    cdef uint64_t size
    if stop - at < FRAME_OVERHEAD:
        return False
    size = <uint64_t> load_u32(at) + SIZE_BYTES
    if size > <uint64_t> (stop - at):
        return False
    if layout == WAL_LAYOUT:
        frame.type = at[4]
        fields = at + 5
    else:
        frame.type = FRAME_APPEND
        fields = at + 4
    frame.node_len = load_u16(fields + 25)
    frame.tag_len = load_u16(fields + 27)
    frame.data_len = load_u32(fields + 29)
    if size != <uint64_t> FRAME_OVERHEAD + frame.node_len + frame.tag_len + frame.data_len:
        return False
    frame.flags = fields[0]
    frame.topic_id = load_u64(fields + 1)
    frame.seq = load_u64(fields + 9)
    frame.ts = load_u64(fields + 17)
    frame.start = at
    frame.size = size
    frame.node = fields + 33
    frame.tag = frame.node + frame.node_len
    frame.data = frame.tag + frame.tag_len
    frame.checksum = frame.data + frame.data_len
    return True


cdef inline bint is_intact(const Frame* frame) noexcept nogil:
    cdef const uint8_t* body = frame.start + SIZE_BYTES
    return XXH3_64bits(body, frame.checksum - body) == load_u64(frame.checksum)


cdef inline Entry load_entry(const uint8_t* idx, Py_ssize_t i) noexcept nogil:
    cdef Entry entry
    cdef const uint8_t* at = idx + i * IDX_ENTRY
    entry.offset = load_u32(at)
    entry.size = load_u32(at + 4)
    entry.ts = load_u64(at + 8)
    entry.flags = at[16]
    return entry


cdef inline void store_entry(
    uint8_t* at, uint32_t offset, uint32_t size, uint64_t ts, uint8_t flags
) noexcept nogil:
    store_u32(at, offset)
    store_u32(at + 4, size)
    store_u64(at + 8, ts)
    store_u32(at + 16, flags)


cdef inline bint frame_of_entry(
    const uint8_t* buffer, uint64_t size, int64_t base, const Entry* entry, int layout, Frame* frame
) noexcept nogil:
    """The Append frame that an entry points at, whatever nonsense the entry holds."""
    cdef int64_t at
    if base < -BASE_MAX or base > BASE_MAX:
        return False
    at = <int64_t> entry.offset - base
    if at < 0 or <uint64_t> at > size:
        return False
    return (
        read_frame(buffer + at, buffer + size, layout, frame)
        and frame.size == entry.size
        and frame.type == FRAME_APPEND
    )


cdef object damaged(object what, Py_ssize_t at):
    return CorruptData(f"{what} at byte {at} is damaged: restore the file from a copy")
