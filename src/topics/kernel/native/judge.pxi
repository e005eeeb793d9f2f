# Could these records have been appended? For frames that somebody else has built.

cdef enum:
    JUDGED = 0
    R_NO_DATA = 17
    R_TAG_TOO_LONG = 20
    R_NODE_TOO_LONG = 23
    R_META_NOT_AN_OBJECT = 24
    R_META_TOO_MANY_KEYS = 25
    R_META_TOO_LONG = 26
    R_RECORD_TOO_LARGE = 27
    R_RECORD_STRANGE = 32
    R_DATA_NOT_JSON = 33
    R_TAG_NOT_TEXT = 34
    R_NODE_NOT_TEXT = 35
    R_TIME_STEPS_BACK = 36
    R_SEGMENT_TOO_WIDE = 37
    R_META_OF_SERVER = 38

    FLAG_DURABLE = 4
    KNOWN_FLAGS = 23
    DATA_DEPTH = 3

cdef struct Sizes:
    uint64_t record
    uint64_t meta
    uint64_t tag
    uint64_t node


cdef inline bint is_text(const uint8_t* at, uint64_t size) noexcept nogil:
    """Whether these bytes are UTF-8."""
    cdef const uint8_t* end = at + size
    while at < end:
        if at[0] < 0x80:
            at += 1
            continue
        at = skip_multibyte(at, end)
        if at == NULL:
            return False
    return True


cdef inline int judge_text(
    const Piece* text, uint64_t limit, int no_text, int too_long
) noexcept nogil:
    if text.at == NULL:
        return JUDGED
    if not is_text(text.at, text.size):
        return no_text
    return too_long if text.size > limit else JUDGED


cdef int judge_meta(const Piece* meta, uint64_t limit) noexcept nogil:
    cdef Fault fault
    cdef uint64_t keys = 0
    cdef const uint8_t* end = meta.at + meta.size
    if meta.size == 0 or meta.at[0] != c"{":
        return R_META_NOT_AN_OBJECT
    if skip_members(meta.at, end, DATA_DEPTH + 1, &keys, &fault) != end:
        return R_META_NOT_AN_OBJECT
    if keys > META_KEYS_MAX:
        return R_META_TOO_MANY_KEYS
    if meta.size > limit:
        return R_META_TOO_LONG
    return R_META_OF_SERVER if names_dead_letter(meta.at, meta.size) else JUDGED


cdef int judge(const Piece* pieces, const Sizes* sizes) noexcept nogil:
    """The pieces are data, meta, tag and node."""
    cdef Fault fault
    cdef int outcome
    cdef const uint8_t* end = pieces[0].at + pieces[0].size
    if pieces[0].at == NULL:
        return R_NO_DATA
    if skip_value(pieces[0].at, end, DATA_DEPTH, &fault) != end:
        return R_DATA_NOT_JSON
    outcome = judge_text(pieces + 2, sizes.tag, R_TAG_NOT_TEXT, R_TAG_TOO_LONG)
    if outcome == JUDGED:
        outcome = judge_text(pieces + 3, sizes.node, R_NODE_NOT_TEXT, R_NODE_TOO_LONG)
    if outcome == JUDGED and pieces[1].at != NULL:
        outcome = judge_meta(pieces + 1, sizes.meta)
    if outcome == JUDGED and <uint64_t> pieces[0].size + pieces[1].size > sizes.record:
        outcome = R_RECORD_TOO_LARGE
    return outcome


cdef int judge_frame(const Frame* frame, const Sizes* sizes) noexcept nogil:
    cdef Row row
    cdef uint64_t meta_at = 0
    if frame.flags & ~KNOWN_FLAGS:
        return R_RECORD_STRANGE
    if frame.tag_len and not frame.flags & FLAG_TAG:
        return R_TAG_NOT_TEXT
    if frame.node_len and not frame.flags & FLAG_NODE:
        return R_NODE_NOT_TEXT
    if frame.flags & FLAG_META:
        if frame.data_len < SIZE_BYTES or load_u32(frame.data) > frame.data_len - SIZE_BYTES:
            return R_RECORD_STRANGE
        meta_at = <uint64_t> SIZE_BYTES + load_u32(frame.data)
    note_row(&row, frame, meta_at)
    return judge(row.pieces, sizes)


cdef int judge_all(
    const uint8_t* data, uint64_t data_bytes, const uint8_t* idx, Py_ssize_t count,
    uint64_t topic_id, const Sizes* sizes, Py_ssize_t* where,
) noexcept nogil:
    cdef Entry entry
    cdef Frame frame
    cdef Py_ssize_t i
    cdef int outcome
    for i in range(count):
        where[0] = i
        entry = load_entry(idx, i)
        if not frame_of_entry(data, data_bytes, 0, &entry, SEGMENT_LAYOUT, &frame):
            return R_RECORD_STRANGE
        if frame.topic_id != topic_id:
            return R_RECORD_STRANGE
        outcome = judge_frame(&frame, sizes)
        if outcome != JUDGED:
            return outcome
    return JUDGED


cdef int raise_judged(int outcome, Py_ssize_t where, const Sizes* sizes) except -1:
    cdef uint64_t limit = 0
    if outcome == R_META_TOO_MANY_KEYS:
        limit = META_KEYS_MAX
    elif outcome == R_META_TOO_LONG:
        limit = sizes.meta
    elif outcome == R_TAG_TOO_LONG:
        limit = sizes.tag
    elif outcome == R_NODE_TOO_LONG:
        limit = sizes.node
    elif outcome == R_RECORD_TOO_LARGE:
        limit = sizes.record
    raise _refusal(outcome, where, limit)


def check_records(
    data,
    idx,
    *,
    uint64_t topic_id,
    uint64_t max_record_bytes,
    uint64_t max_meta_bytes,
    uint64_t max_tag_bytes,
    uint64_t max_node_bytes,
):
    cdef Py_buffer view
    cdef Py_buffer idx_view
    cdef Sizes sizes
    cdef Py_ssize_t where = 0
    cdef int outcome
    sizes.record = max_record_bytes
    sizes.meta = max_meta_bytes
    sizes.tag = max_tag_bytes
    sizes.node = max_node_bytes
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &idx_view, PyBUF_SIMPLE)
        try:
            with nogil:
                outcome = judge_all(
                    <const uint8_t*> view.buf, view.len, <const uint8_t*> idx_view.buf,
                    idx_view.len // IDX_ENTRY, topic_id, &sizes, &where,
                )
            if outcome != JUDGED:
                raise_judged(outcome, where, &sizes)
        finally:
            PyBuffer_Release(&idx_view)
    finally:
        PyBuffer_Release(&view)
