# The last step of a write: who, which seq, when, and the checksum over it all.


cdef Py_ssize_t stamp(
    uint8_t* frames, uint64_t frames_bytes, uint8_t* idx, Py_ssize_t count,
    uint64_t topic_id, uint64_t first_seq, uint64_t ts, uint8_t flags,
) noexcept nogil:
    """-1, or the entry that points outside `frames`."""
    cdef Py_ssize_t i
    cdef Entry entry
    cdef uint8_t* frame
    cdef uint8_t* checksum
    for i in range(count):
        entry = load_entry(idx, i)
        if entry.size < FRAME_OVERHEAD or <uint64_t> entry.offset + entry.size > frames_bytes:
            return i
        frame = frames + entry.offset
        checksum = frame + entry.size - CHECKSUM_BYTES
        frame[5] |= flags
        store_u64(frame + 6, topic_id)
        store_u64(frame + 14, first_seq + i)
        store_u64(frame + 22, ts)
        store_u64(checksum, XXH3_64bits(frame + SIZE_BYTES, checksum - frame - SIZE_BYTES))
        store_u64(idx + i * IDX_ENTRY + 8, ts)
    return -1


cdef int stamp_views(
    Py_buffer* frames, Py_buffer* idx, Py_ssize_t count,
    uint64_t topic_id, uint64_t first_seq, uint64_t ts, uint8_t flags,
) except -1:
    cdef Py_ssize_t bad
    if count < 0 or idx.len % IDX_ENTRY or idx.len // IDX_ENTRY != count:
        raise ValueError("the batch does not have one idx entry a frame")
    if count and first_seq > U64_MAX - <uint64_t> (count - 1):
        raise OverflowError("topic_id, seq and ts are u64")
    if frames.len < GIL_BYTES:
        bad = stamp(
            <uint8_t*> frames.buf, frames.len, <uint8_t*> idx.buf, count,
            topic_id, first_seq, ts, flags,
        )
    else:
        with nogil:
            bad = stamp(
                <uint8_t*> frames.buf, frames.len, <uint8_t*> idx.buf, count,
                topic_id, first_seq, ts, flags,
            )
    if bad >= 0:
        raise ValueError(f"entry {bad} of the batch points outside its frames")
    return 0


def stamp_batch(
    batch, *, uint64_t topic_id, uint64_t first_seq, uint64_t ts, uint8_t flags
):
    cdef Py_buffer frames
    cdef Py_buffer idx
    cdef Py_ssize_t count = batch.count
    PyObject_GetBuffer(batch.frames, &frames, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(batch.idx, &idx, PyBUF_WRITABLE)
        try:
            stamp_views(&frames, &idx, count, topic_id, first_seq, ts, flags)
        finally:
            PyBuffer_Release(&idx)
    finally:
        PyBuffer_Release(&frames)
