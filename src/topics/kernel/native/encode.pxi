# Columns to a segment: the way back from `decode_columns`.
#
# First every row is judged and what it takes is added up; then all frames are written at once.

cdef struct TextColumn:
    const uint8_t* offsets
    const uint8_t* heap
    const uint8_t* validity
    uint64_t heap_bytes

cdef struct Encoder:
    TextColumn columns[4]
    const uint8_t* times
    Py_ssize_t start
    Py_ssize_t stop
    Py_ssize_t where
    uint64_t topic_id
    uint64_t first_seq
    uint64_t base
    uint64_t data_bytes
    Sizes sizes
    uint8_t* data
    uint8_t* idx

cdef enum:
    ENCODE_OUTSIDE = -1


cdef inline bint load_piece(const TextColumn* column, Py_ssize_t i, Piece* piece) noexcept nogil:
    """False if the text is outside its heap."""
    cdef int64_t at
    cdef int64_t end
    piece.at = NULL
    piece.size = 0
    if column.offsets == NULL:
        return True
    if column.validity != NULL and not column.validity[i >> 3] >> (i & 7) & 1:
        return True
    at = <int64_t> <int> load_u32(column.offsets + 4 * i)
    end = <int64_t> <int> load_u32(column.offsets + 4 * (i + 1))
    if at < 0 or at > end or <uint64_t> end > column.heap_bytes:
        return False
    piece.at = column.heap + at
    piece.size = <uint32_t> (end - at)
    return True


cdef inline bint is_ws(uint8_t byte) noexcept nogil:
    return byte == c" " or byte == c"\n" or byte == c"\r" or byte == c"\t"


cdef inline void trim(Piece* piece) noexcept nogil:
    while piece.size and is_ws(piece.at[0]):
        piece.at += 1
        piece.size -= 1
    while piece.size and is_ws(piece.at[piece.size - 1]):
        piece.size -= 1


cdef inline bint load_pieces(const Encoder* work, Py_ssize_t i, Piece* pieces) noexcept nogil:
    cdef int which
    for which in range(4):
        if not load_piece(&work.columns[which], i, pieces + which):
            return False
    trim(pieces)
    trim(pieces + 1)
    return True


cdef inline uint64_t frame_size(const Piece* pieces) noexcept nogil:
    cdef uint64_t size = FRAME_OVERHEAD
    cdef int which
    for which in range(4):
        size += pieces[which].size
    return size + (SIZE_BYTES if pieces[1].at != NULL else 0)


cdef int judge_rows(Encoder* work) noexcept nogil:
    cdef Piece pieces[4]
    cdef Py_ssize_t i
    cdef int outcome
    cdef int64_t ts
    cdef int64_t before = 0
    cdef uint64_t size
    work.data_bytes = 0
    for i in range(work.start, work.stop):
        work.where = i
        if not load_pieces(work, i, pieces):
            return ENCODE_OUTSIDE
        outcome = judge(pieces, &work.sizes)
        if outcome != JUDGED:
            return outcome
        ts = <int64_t> load_u64(work.times + 8 * i)
        if ts < before:
            return R_TIME_STEPS_BACK
        before = ts
        size = frame_size(pieces)
        if work.base + work.data_bytes + size > U32_MAX:
            return R_SEGMENT_TOO_WIDE
        work.data_bytes += size
    return JUDGED


cdef inline uint8_t* put_piece(uint8_t* out, const Piece* piece) noexcept nogil:
    if piece.size:
        memcpy(out, piece.at, piece.size)
    return out + piece.size


cdef uint8_t put_frame(
    uint8_t* out, const Piece* pieces, uint64_t size, uint64_t topic_id, uint64_t seq, uint64_t ts
) noexcept nogil:
    """Write one frame; return its flags."""
    cdef uint8_t* body = out + SIZE_BYTES
    cdef uint8_t* at
    cdef uint8_t flags = 0
    if pieces[2].at != NULL:
        flags |= FLAG_TAG
    if pieces[3].at != NULL:
        flags |= FLAG_NODE
    if pieces[1].at != NULL:
        flags |= FLAG_META
    store_u32(out, <uint32_t> (size - SIZE_BYTES))
    body[0] = flags
    store_u64(body + 1, topic_id)
    store_u64(body + 9, seq)
    store_u64(body + 17, ts)
    store_u16(body + 25, <uint16_t> pieces[3].size)
    store_u16(body + 27, <uint16_t> pieces[2].size)
    store_u32(body + 29, <uint32_t> (size - FRAME_OVERHEAD - pieces[2].size - pieces[3].size))
    at = put_piece(put_piece(body + 33, pieces + 3), pieces + 2)
    if flags & FLAG_META:
        store_u32(at, pieces[0].size)
        at += SIZE_BYTES
    at = put_piece(put_piece(at, pieces), pieces + 1)
    store_u64(at, XXH3_64bits(body, at - body))
    at[CHECKSUM_BYTES] = 0
    return flags


cdef int put_rows(Encoder* work) noexcept nogil:
    """Write what `judge_rows` added up; sizes that moved since are refused, not trusted."""
    cdef Piece pieces[4]
    cdef Py_ssize_t i
    cdef uint64_t used = 0
    cdef uint64_t size
    cdef uint64_t ts
    cdef uint8_t flags
    cdef uint8_t* idx = work.idx
    for i in range(work.start, work.stop):
        work.where = i
        if not load_pieces(work, i, pieces):
            return ENCODE_OUTSIDE
        size = frame_size(pieces)
        if used + size > work.data_bytes or pieces[2].size > U16_MAX or pieces[3].size > U16_MAX:
            return ENCODE_OUTSIDE
        ts = load_u64(work.times + 8 * i)
        flags = put_frame(
            work.data + used, pieces, size, work.topic_id,
            work.first_seq + <uint64_t> (i - work.start), ts,
        )
        store_entry(idx, <uint32_t> (work.base + used), <uint32_t> size, ts, flags)
        idx += IDX_ENTRY
        used += size
    return JUDGED if used == work.data_bytes else ENCODE_OUTSIDE


cdef int check_rows(int outcome, Encoder* work) except -1:
    if outcome == ENCODE_OUTSIDE:
        raise ValueError(f"text {work.where} of a column is outside its heap")
    if outcome != JUDGED:
        raise_judged(outcome, work.where, &work.sizes)
    return 0


cdef tuple encode_rows(Encoder* work):
    cdef int outcome
    with nogil:
        outcome = judge_rows(work)
    check_rows(outcome, work)
    data = PyByteArray_FromStringAndSize(NULL, work.data_bytes)
    idx = PyByteArray_FromStringAndSize(NULL, (work.stop - work.start) * IDX_ENTRY)
    work.data = <uint8_t*> PyByteArray_AS_STRING(data)
    work.idx = <uint8_t*> PyByteArray_AS_STRING(idx)
    with nogil:
        outcome = put_rows(work)
    check_rows(outcome, work)
    return data, idx


cdef int open_column(
    object column, Py_ssize_t count, TextColumn* out, Py_buffer* views, int* opened
) except -1:
    """Export the buffers of a column; the caller releases `views` up to `opened`."""
    cdef Py_buffer* offsets
    cdef Py_buffer* heap
    cdef Py_buffer* validity
    memset(out, 0, sizeof(TextColumn))
    if column is None:
        return 0
    for part in (column.offsets, column.heap, column.validity):
        PyObject_GetBuffer(part, views + opened[0], PyBUF_SIMPLE)
        opened[0] += 1
    offsets = views + opened[0] - 3
    heap = offsets + 1
    validity = offsets + 2
    if offsets.len != (count + 1) * 4 or (validity.len and validity.len < (count + 7) // 8):
        raise ValueError("a column does not have one text a record")
    out.offsets = <const uint8_t*> offsets.buf
    # An empty buffer may be at NULL, which would read as a text that is not there.
    out.heap = <const uint8_t*> heap.buf if heap.buf != NULL else out.offsets
    out.heap_bytes = heap.len
    out.validity = <const uint8_t*> validity.buf if validity.len else NULL
    return 0


def encode_columns(
    columns,
    *,
    Py_ssize_t start,
    Py_ssize_t stop,
    uint64_t topic_id,
    uint64_t first_seq,
    Py_ssize_t base,
    uint64_t max_record_bytes,
    uint64_t max_meta_bytes,
    uint64_t max_tag_bytes,
    uint64_t max_node_bytes,
):
    cdef Py_ssize_t count = columns.count
    cdef Py_buffer views[13]
    cdef Encoder work
    cdef int opened = 0
    cdef int i
    check_range(start, stop, count)
    check_range(0, base, <Py_ssize_t> U32_MAX)
    work.start = start
    work.stop = stop
    work.topic_id = topic_id
    work.first_seq = first_seq
    work.base = base
    work.where = 0
    work.sizes.record = max_record_bytes
    work.sizes.meta = max_meta_bytes
    work.sizes.tag = max_tag_bytes
    work.sizes.node = max_node_bytes
    try:
        PyObject_GetBuffer(columns.ts, views, PyBUF_SIMPLE)
        opened = 1
        if columns.data is None or views[0].len != count * 8:
            raise ValueError("records need a column of data, and a time each")
        if first_seq > U64_MAX - <uint64_t> count:
            raise OverflowError("topic_id and seq are u64")
        work.times = <const uint8_t*> views[0].buf
        open_column(columns.data, count, &work.columns[0], views, &opened)
        open_column(columns.meta, count, &work.columns[1], views, &opened)
        open_column(columns.tag, count, &work.columns[2], views, &opened)
        open_column(columns.node, count, &work.columns[3], views, &opened)
        return encode_rows(&work)
    finally:
        for i in range(opened):
            PyBuffer_Release(views + i)
