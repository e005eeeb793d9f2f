# Frames of one topic, on their way to become frames of another.

cdef enum:
    # From topic to lengths: the same in both layouts.
    FIELDS_BYTES = 32


cdef bint measure_copies(Projector* work) noexcept nogil:
    """How large all copies can be; False where the entries say more than there is."""
    cdef Py_ssize_t i
    cdef Entry entry
    work.size = 0
    for i in range(work.stop):
        entry = load_entry(work.idx, i)
        if not entry.flags & FLAG_DELETED:
            work.size += entry.size
    return work.size <= work.buffer_bytes and work.size <= U32_MAX


cdef inline void put_copy(uint8_t* out, const Frame* frame, uint8_t flags) noexcept nogil:
    cdef const uint8_t* fields = frame.node - FIELDS_BYTES
    store_u32(out, load_u32(frame.start))
    out[SIZE_BYTES] = FRAME_APPEND
    out[SIZE_BYTES + 1] = flags
    memcpy(out + SIZE_BYTES + 2, fields, frame.checksum + CHECKSUM_BYTES - fields)


cdef int copy_entries(Projector* work, uint8_t* idx) noexcept nogil:
    cdef Entry entry
    cdef Frame frame
    cdef uint64_t meta_at
    cdef uint8_t flags
    cdef int outcome
    while work.at < work.stop:
        entry = load_entry(work.idx, work.at)
        if not entry.flags & FLAG_DELETED:
            outcome = read_entry(work, &entry, &frame, &meta_at)
            if outcome == PROJECTED and frame.size > work.size - work.used:
                outcome = PROJECT_BAD_FRAME  # the idx has changed since it was measured
            if outcome != PROJECTED:
                return outcome
            if work.matcher.operator == MATCH_NONE or tag_matches(&work.matcher, &frame):
                flags = frame.flags & IDX_FLAGS
                put_copy(work.out + work.used, &frame, flags)
                store_entry(
                    idx + work.count * IDX_ENTRY, <uint32_t> work.used, <uint32_t> frame.size,
                    entry.ts, flags,
                )
                work.used += frame.size
                work.count += 1
        work.at += 1
    return PROJECTED


cdef tuple copy_all(Projector* work):
    cdef int outcome
    if not measure_copies(work):
        raise CorruptData(
            f"the entries from record {work.first_seq} on say more than their bytes hold"
        )
    frames = PyByteArray_FromStringAndSize(NULL, work.size)
    idx = PyByteArray_FromStringAndSize(NULL, work.stop * IDX_ENTRY)
    work.out = <uint8_t*> PyByteArray_AS_STRING(frames)
    cdef uint8_t* entries = <uint8_t*> PyByteArray_AS_STRING(idx)
    if work.size < GIL_BYTES:
        outcome = copy_entries(work, entries)
    else:
        with nogil:
            outcome = copy_entries(work, entries)
    if outcome != PROJECTED:
        raise_bad_record(outcome, work)
    PyByteArray_Resize(frames, <Py_ssize_t> work.used)
    PyByteArray_Resize(idx, work.count * IDX_ENTRY)
    return frames, idx


def copy_frames(
    buffer,
    idx,
    *,
    Py_ssize_t base,
    int layout,
    uint64_t first_seq,
    match,
    bint verify,
):
    cdef Py_buffer view
    cdef Py_buffer idx_view
    cdef Projector work
    work.base = base
    work.layout = layout
    work.first_seq = first_seq
    work.verify = verify
    work.at = work.count = work.used = 0
    open_matcher(match, &work.matcher)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &idx_view, PyBUF_SIMPLE)
        try:
            work.buffer = <const uint8_t*> view.buf
            work.buffer_bytes = view.len
            work.idx = <const uint8_t*> idx_view.buf
            work.stop = idx_view.len // IDX_ENTRY
            return copy_all(&work)
        finally:
            PyBuffer_Release(&idx_view)
    finally:
        PyBuffer_Release(&view)
