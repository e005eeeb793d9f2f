# Frames to columns: the buffers of Arrow arrays, so that nobody makes an object a record.
#
# First every wanted frame is looked at once, checked, and its place noted; then each column is
# filled in a loop of its own, whose size is known by then.

cdef enum:
    COLUMN_DATA = 1
    COLUMN_META = 2
    COLUMN_TAG = 4
    COLUMN_NODE = 8

    COLUMNS_DONE = 0
    COLUMNS_TOO_BIG = 5

cdef uint64_t COLUMN_BYTES_MAX = 0x7FFFFFFF
cdef uint64_t I64_MAX = 0x7FFFFFFFFFFFFFFF

# A part that a record does not have is at NULL; an empty one is not.
cdef struct Piece:
    const uint8_t* at
    uint32_t size

cdef struct Row:
    uint64_t seq
    uint64_t ts
    Piece pieces[4]

# What the rows hold of each column, in all.
cdef struct Sums:
    uint64_t sizes[4]
    Py_ssize_t present[4]


cdef inline void note_row(Row* row, const Frame* frame, uint64_t meta_at) noexcept nogil:
    row.pieces[1].at = row.pieces[2].at = row.pieces[3].at = NULL
    row.pieces[1].size = row.pieces[2].size = row.pieces[3].size = 0
    row.pieces[0].at = frame.data
    row.pieces[0].size = frame.data_len
    if frame.flags & FLAG_META:
        row.pieces[0].at = frame.data + SIZE_BYTES
        row.pieces[0].size = <uint32_t> (meta_at - SIZE_BYTES)
        row.pieces[1].at = frame.data + meta_at
        row.pieces[1].size = <uint32_t> (frame.data_len - meta_at)
    if frame.flags & FLAG_TAG:
        row.pieces[2].at = frame.tag
        row.pieces[2].size = frame.tag_len
    if frame.flags & FLAG_NODE:
        row.pieces[3].at = frame.node
        row.pieces[3].size = frame.node_len


cdef inline void sum_row(const Row* row, Sums* sums) noexcept nogil:
    cdef int which
    for which in range(4):
        sums.sizes[which] += row.pieces[which].size
        sums.present[which] += row.pieces[which].at != NULL


cdef int collect_rows(
    Projector* work, bint reads_frames, Row* rows, Sums* sums
) noexcept nogil:
    """Note every live entry that matches; `work.count` says how many."""
    cdef Entry entry
    cdef Frame frame
    cdef uint64_t meta_at
    cdef int outcome
    cdef Row* row
    while work.at < work.stop:
        entry = load_entry(work.idx, work.at)
        if entry.flags & FLAG_DELETED:
            work.at += 1
            continue
        row = rows + work.count
        row.seq = work.first_seq + work.at
        row.ts = entry.ts
        work.bad_offset = entry.offset
        if reads_frames:
            outcome = read_entry(work, &entry, &frame, &meta_at)
            if outcome != PROJECTED:
                return outcome
            if work.matcher.operator != MATCH_NONE and not tag_matches(&work.matcher, &frame):
                work.at += 1
                continue
            row.ts = frame.ts
            note_row(row, &frame, meta_at)
            sum_row(row, sums)
        if row.seq > I64_MAX or row.ts > I64_MAX:
            return COLUMNS_TOO_BIG
        work.at += 1
        work.count += 1
    return COLUMNS_DONE


cdef void fill_column(
    const Row* rows,
    Py_ssize_t count,
    int which,
    uint8_t* offsets,
    uint8_t* heap,
    uint8_t* validity,
) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t end = 0
    cdef const Piece* piece
    store_u32(offsets, 0)
    for i in range(count):
        piece = &rows[i].pieces[which]
        if piece.at != NULL:
            memcpy(heap + end, piece.at, piece.size)
            end += piece.size
            validity[i >> 3] |= 1 << (i & 7)
        store_u32(offsets + 4 * (i + 1), end)


cdef object build_column(const Row* rows, Py_ssize_t count, int which, const Sums* sums):
    cdef uint64_t total = sums.sizes[which]
    cdef Py_ssize_t nulls = count - sums.present[which]
    if total > COLUMN_BYTES_MAX:
        raise ValueError("a column takes more than 2 GiB: decode fewer records at a time")
    if nulls == count and count:
        return Column(bytes(4 * (count + 1)), b"", bytes((count + 7) // 8), nulls)
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    cdef bytes heap = PyBytes_FromStringAndSize(NULL, total)
    cdef bytearray validity = PyByteArray_FromStringAndSize(NULL, (count + 7) // 8)
    cdef uint8_t* offsets_at = <uint8_t*> PyBytes_AS_STRING(offsets)
    cdef uint8_t* heap_at = <uint8_t*> PyBytes_AS_STRING(heap)
    cdef uint8_t* validity_at = <uint8_t*> PyByteArray_AS_STRING(validity)
    memset(validity_at, 0, (count + 7) // 8)
    if total < GIL_BYTES:
        fill_column(rows, count, which, offsets_at, heap_at, validity_at)
    else:
        with nogil:
            fill_column(rows, count, which, offsets_at, heap_at, validity_at)
    return Column(offsets, heap, bytes(validity) if nulls else b"", nulls)


cdef object build_columns(const Row* rows, Py_ssize_t count, int columns, const Sums* sums):
    cdef bytes seqs = PyBytes_FromStringAndSize(NULL, 8 * count)
    cdef bytes times = PyBytes_FromStringAndSize(NULL, 8 * count)
    cdef uint8_t* seqs_at = <uint8_t*> PyBytes_AS_STRING(seqs)
    cdef uint8_t* times_at = <uint8_t*> PyBytes_AS_STRING(times)
    cdef Py_ssize_t i
    for i in range(count):
        store_u64(seqs_at + 8 * i, rows[i].seq)
        store_u64(times_at + 8 * i, rows[i].ts)
    return Columns(
        count,
        seqs,
        times,
        build_column(rows, count, 0, sums) if columns & COLUMN_DATA else None,
        build_column(rows, count, 1, sums) if columns & COLUMN_META else None,
        build_column(rows, count, 2, sums) if columns & COLUMN_TAG else None,
        build_column(rows, count, 3, sums) if columns & COLUMN_NODE else None,
    )


cdef object decode_all(Projector* work, int columns):
    cdef bint reads_frames = columns != 0 or work.matcher.operator != MATCH_NONE or work.verify
    cdef Row* rows = <Row*> malloc(max(work.stop - work.at, 1) * sizeof(Row))
    cdef Sums sums
    cdef int outcome
    if rows == NULL:
        raise MemoryError
    memset(&sums, 0, sizeof(Sums))
    try:
        with nogil:
            outcome = collect_rows(work, reads_frames, rows, &sums)
        if outcome == COLUMNS_TOO_BIG:
            raise CorruptData(
                f"record {work.first_seq + <uint64_t> work.at} at byte {work.bad_offset} "
                "has a seq or a time that is too big"
            )
        if outcome != COLUMNS_DONE:
            raise_bad_record(outcome, work)
        return build_columns(rows, work.count, columns, &sums)
    finally:
        free(rows)


def decode_columns(
    buffer,
    idx,
    *,
    Py_ssize_t base,
    int layout,
    uint64_t first_seq,
    Py_ssize_t start,
    Py_ssize_t stop,
    int columns,
    match,
    bint verify,
):
    cdef Py_buffer view
    cdef Py_buffer idx_view
    cdef Projector work
    work.base = base
    work.layout = layout
    work.first_seq = first_seq
    work.at = start
    work.stop = stop
    work.verify = verify
    work.count = 0
    open_matcher(match, &work.matcher)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &idx_view, PyBUF_SIMPLE)
        try:
            check_range(start, stop, idx_view.len // IDX_ENTRY)
            work.buffer = <const uint8_t*> view.buf
            work.buffer_bytes = view.len
            work.idx = <const uint8_t*> idx_view.buf
            return decode_all(&work, columns)
        finally:
            PyBuffer_Release(&idx_view)
    finally:
        PyBuffer_Release(&view)
