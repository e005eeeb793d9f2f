# WAL frames become segment frames, and a segment's idx is built again from its frames.

cdef enum:
    CONVERTED = 0
    CONVERT_BAD_FRAME = 1
    CONVERT_TOO_WIDE = 2

cdef enum:
    PAGE_BYTES = 4096
    # Less is not written past the cache.
    ALIGNED_BYTES_MIN = 128 * 1024

cdef uint64_t SEGMENT_ENTRIES_MAX = 0xFFFFFFFF // 46

cdef struct Stretch:
    Py_buffer frames
    Py_buffer idx
    Py_ssize_t start
    Py_ssize_t stop

cdef struct Conversion:
    Stretch* stretches
    Py_ssize_t stretches_count
    # How many frames all stretches have, and where the first goes.
    Py_ssize_t count
    uint64_t base
    uint64_t data_bytes
    uint8_t* data
    uint8_t* data_idx
    uint32_t bad_offset


cdef inline bint wal_frame_of(
    const Stretch* stretch, const Entry* entry, Frame* frame
) noexcept nogil:
    return frame_of_entry(
        <const uint8_t*> stretch.frames.buf, stretch.frames.len, 0, entry, WAL_LAYOUT, frame
    )


cdef void measure(Conversion* work) noexcept nogil:
    """Add up what the entries say, up to the first that cannot be right."""
    cdef Py_ssize_t i, j
    cdef const Stretch* stretch
    cdef Entry entry
    work.data_bytes = 0
    for i in range(work.stretches_count):
        stretch = work.stretches + i
        for j in range(stretch.start, stretch.stop):
            entry = load_entry(<const uint8_t*> stretch.idx.buf, j)
            if entry.size > <uint64_t> stretch.frames.len:
                return
            if work.base + work.data_bytes + entry.size > U32_MAX:
                return
            work.data_bytes += entry.size


cdef void put_segment_frame(uint8_t* out, const Frame* frame, bint deleted) noexcept nogil:
    cdef uint64_t hashed = frame.size - SIZE_BYTES - CHECKSUM_BYTES - 1
    store_u32(out, load_u32(frame.start))
    out += SIZE_BYTES
    out[0] = frame.flags & ~FLAG_BATCH_OPEN
    memcpy(out + 1, frame.start + SIZE_BYTES + 2, hashed - 1)
    store_u64(out + hashed, XXH3_64bits(out, hashed))
    out[hashed + CHECKSUM_BYTES] = DELETED_BYTE if deleted else 0


cdef int convert_stretch(
    Conversion* work, const Stretch* stretch, uint8_t* idx, uint64_t* used
) noexcept nogil:
    cdef Py_ssize_t i
    cdef Entry entry
    cdef Frame frame
    cdef bint deleted
    for i in range(stretch.start, stretch.stop):
        entry = load_entry(<const uint8_t*> stretch.idx.buf, i)
        deleted = entry.flags & FLAG_DELETED != 0
        if work.base + used[0] + entry.size > U32_MAX:
            return CONVERT_TOO_WIDE
        if entry.size == 0 and deleted:
            store_entry(
                idx, <uint32_t> (work.base + used[0]), 0, entry.ts,
                entry.flags & (IDX_FLAGS | FLAG_DELETED),
            )
        else:
            work.bad_offset = entry.offset
            if not wal_frame_of(stretch, &entry, &frame) or not is_intact(&frame):
                return CONVERT_BAD_FRAME
            if used[0] + frame.size > work.data_bytes:
                return CONVERT_BAD_FRAME
            put_segment_frame(work.data + used[0], &frame, deleted)
            store_entry(
                idx, <uint32_t> (work.base + used[0]), <uint32_t> frame.size, frame.ts,
                frame.flags & IDX_FLAGS | (FLAG_DELETED if deleted else 0),
            )
            used[0] += frame.size
        idx += IDX_ENTRY
    return CONVERTED


cdef int convert(Conversion* work) noexcept nogil:
    """Check and write frame by frame; sizes that moved since `measure` are refused."""
    cdef Py_ssize_t i
    cdef int outcome
    cdef const Stretch* stretch
    cdef uint64_t used = 0
    cdef uint8_t* idx = work.data_idx
    for i in range(work.stretches_count):
        stretch = work.stretches + i
        outcome = convert_stretch(work, stretch, idx, &used)
        if outcome != CONVERTED:
            return outcome
        idx += (stretch.stop - stretch.start) * IDX_ENTRY
    return CONVERTED if used == work.data_bytes else CONVERT_BAD_FRAME


cdef int check_conversion(int outcome, Conversion* work) except -1:
    if outcome == CONVERT_TOO_WIDE:
        raise ValueError(f"{work.count} frames from byte {work.base} on do not fit a segment")
    if outcome != CONVERTED:
        raise damaged("the WAL frame", work.bad_offset)
    return 0


cdef bytearray room_at(uint64_t base, uint64_t size):
    """Return room for what comes at byte `base` of a file, in step with it: where a page of the
    file begins, one of memory does. A device can then take it as it is, past the page cache.
    """
    cdef bytearray room
    cdef Py_ssize_t lead
    if size < ALIGNED_BYTES_MIN:
        return PyByteArray_FromStringAndSize(NULL, size)
    room = PyByteArray_FromStringAndSize(NULL, size + PAGE_BYTES)
    lead = (base - <uintptr_t> PyByteArray_AS_STRING(room)) % PAGE_BYTES
    del room[:lead]  # moves its start, and nothing else
    PyByteArray_Resize(room, size)
    return room


cdef tuple build_segment(Conversion* work):
    """Gives up the GIL once: to get it back from a busy event loop takes longer than the work."""
    cdef int outcome
    measure(work)
    data = room_at(work.base, work.data_bytes)
    idx = PyByteArray_FromStringAndSize(NULL, work.count * IDX_ENTRY)
    work.data = <uint8_t*> PyByteArray_AS_STRING(data)
    work.data_idx = <uint8_t*> PyByteArray_AS_STRING(idx)
    with nogil:
        outcome = convert(work)
    check_conversion(outcome, work)
    return data, idx


cdef int open_stretch(Conversion* work, frames, idx, Py_ssize_t start, Py_ssize_t stop) except -1:
    """Export the buffers of one more stretch; `close_stretches` releases them."""
    cdef Stretch* stretch = work.stretches + work.stretches_count
    PyObject_GetBuffer(frames, &stretch.frames, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &stretch.idx, PyBUF_SIMPLE)
    except:
        PyBuffer_Release(&stretch.frames)
        raise
    work.stretches_count += 1
    check_range(start, stop, stretch.idx.len // IDX_ENTRY)
    stretch.start = start
    stretch.stop = stop
    work.count += stop - start
    return 0


cdef void close_stretches(Conversion* work) noexcept:
    cdef Py_ssize_t i
    for i in range(work.stretches_count):
        PyBuffer_Release(&work.stretches[i].idx)
        PyBuffer_Release(&work.stretches[i].frames)
    free(work.stretches)


def frames_to_segment(stretches, *, Py_ssize_t base):
    cdef Conversion work
    cdef list opened = list(stretches)
    work.stretches_count = work.count = 0
    work.bad_offset = 0
    check_range(0, base, <Py_ssize_t> U32_MAX)
    work.base = base
    work.stretches = <Stretch*> malloc(max(len(opened), 1) * sizeof(Stretch))
    if work.stretches == NULL:
        raise MemoryError
    try:
        for frames, idx, start, stop in opened:
            open_stretch(&work, frames, idx, start, stop)
        return build_segment(&work)
    finally:
        close_stretches(&work)


cdef struct Reindex:
    const uint8_t* data
    uint64_t data_bytes
    uint64_t at
    uint64_t first_seq
    uint8_t* idx
    uint64_t count
    uint64_t size
    bint whole


cdef bint reserve_entries(Reindex* work, uint64_t more) noexcept nogil:
    cdef uint64_t size = work.size
    cdef uint8_t* grown
    if work.count + more <= size:
        return True
    size = max(size * 2, work.count + more)
    grown = <uint8_t*> realloc(work.idx, size * IDX_ENTRY)
    if grown == NULL:
        return False
    work.idx = grown
    work.size = size
    return True


cdef bint reindex(Reindex* work) noexcept nogil:
    """Stops at the first frame that is bad; False without memory."""
    cdef const uint8_t* stop = work.data + min_u64(work.data_bytes, U32_MAX)
    cdef Frame frame
    cdef uint64_t hole
    cdef uint64_t ts = 0
    cdef uint8_t deleted
    while work.at < work.data_bytes:
        if work.at > U32_MAX or not read_frame(
            work.data + work.at, stop, SEGMENT_LAYOUT, &frame
        ):
            return True
        if frame.seq < work.first_seq or frame.seq - work.first_seq < work.count:
            return True
        if frame.seq - work.first_seq >= SEGMENT_ENTRIES_MAX or not is_intact(&frame):
            return True
        hole = frame.seq - work.first_seq - work.count
        if not reserve_entries(work, hole + 1):
            return False
        if work.count == 0:
            ts = frame.ts
        for _ in range(hole):
            store_entry(
                work.idx + work.count * IDX_ENTRY, <uint32_t> work.at, 0, ts, FLAG_DELETED
            )
            work.count += 1
        deleted = FLAG_DELETED if frame.start[frame.size - 1] == DELETED_BYTE else 0
        store_entry(
            work.idx + work.count * IDX_ENTRY, <uint32_t> work.at, <uint32_t> frame.size,
            frame.ts, frame.flags & IDX_FLAGS | deleted,
        )
        work.count += 1
        work.at += frame.size
        ts = frame.ts
    work.whole = True
    return True


def index_segment(data, uint64_t first_seq):
    cdef Py_buffer view
    cdef Reindex work
    cdef bint done
    work.idx = NULL
    work.at = work.count = work.size = 0
    work.whole = False
    work.first_seq = first_seq
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        work.data = <const uint8_t*> view.buf
        work.data_bytes = view.len
        with nogil:
            done = reindex(&work)
        if not done:
            raise MemoryError
        idx = PyByteArray_FromStringAndSize(<char*> work.idx, work.count * IDX_ENTRY)
        return idx, work.at, 1 if work.whole else 0
    finally:
        free(work.idx)
        PyBuffer_Release(&view)
