# Frames to columns: the buffers of Arrow arrays, so that nobody makes an object a record.
#
# Every wanted frame is looked at once: checked, its data copied while it is near, the place of its
# other parts noted. Those fill their columns in loops of their own, whose size is known by then.

cdef enum:
    COLUMN_DATA = 1
    COLUMN_META = 2
    COLUMN_TAG = 4
    COLUMN_NODE = 8

    COLUMNS_DONE = 0
    COLUMNS_TOO_BIG = 5
    COLUMNS_GROW = 6

cdef uint64_t COLUMN_BYTES_MAX = 0x7FFFFFFF
cdef uint64_t I64_MAX = 0x7FFFFFFFFFFFFFFF

# A part that a record does not have is at NULL; an empty one is not.
cdef struct Piece:
    const uint8_t* at
    uint32_t size

# Data, meta, tag and node; a column of data needs no note, it is filled at once.
cdef struct Row:
    Piece pieces[4]

# The columns of seq, time and data while they fill; data that nobody asked for is at NULL.
cdef struct Filling:
    uint8_t* seqs
    uint8_t* times
    uint8_t* offsets
    uint8_t* heap
    uint64_t room
    uint64_t end
    bint notes  # rows are noted: not before one has more than data, which many topics never have

# What the rows hold of each column, in all.
cdef struct Sums:
    uint64_t sizes[4]
    Py_ssize_t present[4]


cdef inline Piece data_of(const Frame* frame, uint64_t meta_at) noexcept nogil:
    cdef Piece data
    data.at = frame.data
    data.size = frame.data_len
    if frame.flags & FLAG_META:
        data.at = frame.data + SIZE_BYTES
        data.size = <uint32_t> (meta_at - SIZE_BYTES)
    return data


cdef inline void note_row(Row* row, const Frame* frame, uint64_t meta_at) noexcept nogil:
    row.pieces[0] = data_of(frame, meta_at)
    row.pieces[1].at = row.pieces[2].at = row.pieces[3].at = NULL
    row.pieces[1].size = row.pieces[2].size = row.pieces[3].size = 0
    if frame.flags & FLAG_META:
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
    for which in range(1, 4):
        sums.sizes[which] += row.pieces[which].size
        sums.present[which] += row.pieces[which].at != NULL


cdef inline bint copy_data(Filling* filling, Piece data, Py_ssize_t at) noexcept nogil:
    """Put the data of row `at` at the end of its column; False if it has no room left."""
    if data.size > filling.room - filling.end:
        return False
    memcpy(filling.heap + filling.end, data.at, data.size)
    filling.end += data.size
    store_u32(filling.offsets + 4 * (at + 1), <uint32_t> filling.end)
    return True


cdef int collect_rows(
    Projector* work, bint reads_frames, Row* rows, Sums* sums, Filling* filling
) noexcept nogil:
    """Take every live entry that matches: its seq, time and data, and a note of its other parts.

    `work.count` says how many. Where the data finds no room it can go on with more.
    """
    cdef Entry entry
    cdef uint64_t seq
    cdef uint64_t ts
    cdef Frame frame
    cdef uint64_t meta_at
    cdef int outcome
    while work.at < work.stop:
        entry = load_entry(work.idx, work.at)
        if entry.flags & FLAG_DELETED:
            work.at += 1
            continue
        seq = work.first_seq + work.at
        ts = entry.ts
        work.bad_offset = entry.offset
        if reads_frames:
            outcome = read_entry(work, &entry, &frame, &meta_at)
            if outcome != PROJECTED:
                return outcome
            if work.matcher.operator != MATCH_NONE and not tag_matches(&work.matcher, &frame):
                work.at += 1
                continue
            ts = frame.ts
            if filling.heap != NULL and not copy_data(
                filling, data_of(&frame, meta_at), work.count
            ):
                return COLUMNS_GROW
            if not filling.notes and frame.flags & (FLAG_META | FLAG_TAG | FLAG_NODE):
                filling.notes = True
                memset(rows, 0, work.count * sizeof(Row))
            if filling.notes:
                note_row(rows + work.count, &frame, meta_at)
                sum_row(rows + work.count, sums)
        if seq > I64_MAX or ts > I64_MAX:
            return COLUMNS_TOO_BIG
        store_u64(filling.seqs + 8 * work.count, seq)
        store_u64(filling.times + 8 * work.count, ts)
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
        raise_too_much()
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


cdef object raise_too_much():
    raise ValueError("a column takes more than 2 GiB: decode fewer records at a time")


cdef uint64_t data_room(const Projector* work) noexcept nogil:
    """Sum up the frames of live entries, at most what there is: data is shorter than its frame."""
    cdef uint64_t room = 0
    cdef Entry entry
    cdef Py_ssize_t i
    for i in range(work.at, work.stop):
        entry = load_entry(work.idx, i)
        if not entry.flags & FLAG_DELETED:
            room += entry.size
    return min(room, work.buffer_bytes, COLUMN_BYTES_MAX)


cdef int grow_heap(Filling* filling, PyObject** heap) except -1:
    """Give data more room: only frames that lie inside of others need it."""
    if filling.room == COLUMN_BYTES_MAX:
        raise_too_much()
    filling.room = min(2 * filling.room + GIL_BYTES, COLUMN_BYTES_MAX)
    resize_bytes(heap, filling.room)
    filling.heap = <uint8_t*> PyBytes_AS_STRING(<object> heap[0])
    return 0


cdef object take_bytes(PyObject** made, Py_ssize_t size):
    """Give what was made, shortened in its place; it has no other owner."""
    resize_bytes(made, size)
    taken = <object> made[0]
    Py_XDECREF(made[0])
    made[0] = NULL
    return taken


cdef object decode_rows(Projector* work, int columns, Row* rows, PyObject** made):
    """Fill the columns; `made` keeps those of seq, time and data until they are whole."""
    cdef bint reads_frames = columns != 0 or work.matcher.operator != MATCH_NONE or work.verify
    cdef Py_ssize_t most = work.stop - work.at
    cdef object data = None
    cdef Filling filling
    cdef Sums sums
    cdef int outcome
    memset(&sums, 0, sizeof(Sums))
    memset(&filling, 0, sizeof(Filling))
    made[0] = new_bytes(NULL, 8 * most)
    made[1] = new_bytes(NULL, 8 * most)
    filling.seqs = <uint8_t*> PyBytes_AS_STRING(<object> made[0])
    filling.times = <uint8_t*> PyBytes_AS_STRING(<object> made[1])
    if columns & COLUMN_DATA:
        filling.room = data_room(work)
        made[2] = new_bytes(NULL, 4 * (most + 1))
        made[3] = new_bytes(NULL, filling.room)
        filling.offsets = <uint8_t*> PyBytes_AS_STRING(<object> made[2])
        filling.heap = <uint8_t*> PyBytes_AS_STRING(<object> made[3])
        store_u32(filling.offsets, 0)
    while True:
        with nogil:
            outcome = collect_rows(work, reads_frames, rows, &sums, &filling)
        if outcome != COLUMNS_GROW:
            break
        grow_heap(&filling, made + 3)
    if outcome == COLUMNS_TOO_BIG:
        raise CorruptData(
            f"record {work.first_seq + <uint64_t> work.at} at byte {work.bad_offset} "
            "has a seq or a time that is too big"
        )
    if outcome != COLUMNS_DONE:
        raise_bad_record(outcome, work)
    if columns & COLUMN_DATA:
        offsets = take_bytes(made + 2, 4 * (work.count + 1))
        data = Column(offsets, take_bytes(made + 3, filling.end), b"", 0)
    return Columns(
        work.count,
        take_bytes(made, 8 * work.count),
        take_bytes(made + 1, 8 * work.count),
        data,
        build_column(rows, work.count, 1, &sums) if columns & COLUMN_META else None,
        build_column(rows, work.count, 2, &sums) if columns & COLUMN_TAG else None,
        build_column(rows, work.count, 3, &sums) if columns & COLUMN_NODE else None,
    )


cdef object decode_all(Projector* work, int columns):
    cdef PyObject* made[4]
    cdef int i
    cdef Row* rows = <Row*> malloc(max(work.stop - work.at, 1) * sizeof(Row))
    if rows == NULL:
        raise MemoryError
    memset(made, 0, sizeof(made))
    try:
        return decode_rows(work, columns, rows, made)
    finally:
        free(rows)
        for i in range(4):
            Py_XDECREF(made[i])


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
