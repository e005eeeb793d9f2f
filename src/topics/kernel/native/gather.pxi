# The bodies of many small writes, read one behind the other into one batch.

cdef enum:
    FIRST_FRAMES_BYTES = 4096
    FIRST_IDX_BYTES = 320
    # More is not worth waiting for, and would pass by the bounds of the queue.
    GATHERED_BYTES_MAX = 4 << 20


cdef int reserve(bytearray buffer, uint64_t size) except -1:
    """Make room for `size` bytes, twice as much as there was at least."""
    cdef uint64_t room = <uint64_t> PyByteArray_GET_SIZE(buffer)
    if size > room:
        PyByteArray_Resize(buffer, <Py_ssize_t> max(size, room * 2))
    return 0


cdef class Gathering:
    cdef bytearray frames
    cdef bytearray idx
    cdef uint64_t frames_bytes
    cdef Py_ssize_t count
    cdef Py_ssize_t body_bytes_max
    cdef Limits limits

    def __cinit__(
        self,
        *,
        Py_ssize_t max_bytes,
        Py_ssize_t max_records,
        Py_ssize_t max_record_bytes,
        Py_ssize_t max_meta_bytes,
        Py_ssize_t max_tag_bytes,
        Py_ssize_t max_node_bytes,
    ):
        self.body_bytes_max = max_bytes
        set_limits(
            &self.limits, max_records, max_record_bytes, max_meta_bytes, max_tag_bytes,
            max_node_bytes, False,
        )
        self.clear()

    cdef int clear(self) except -1:
        self.frames = PyByteArray_FromStringAndSize(NULL, FIRST_FRAMES_BYTES)
        self.idx = PyByteArray_FromStringAndSize(NULL, FIRST_IDX_BYTES)
        self.frames_bytes = 0
        self.count = 0
        return 0

    cdef int make_room(self, uint64_t frames_bytes, Py_ssize_t count) except -1:
        reserve(self.frames, self.frames_bytes + frames_bytes)
        reserve(self.idx, <uint64_t> (self.count + count) * IDX_ENTRY)
        return 0

    cdef uint8_t* frames_at(self) noexcept:
        return <uint8_t*> PyByteArray_AS_STRING(self.frames)

    cdef uint8_t* idx_end(self) noexcept:
        return <uint8_t*> PyByteArray_AS_STRING(self.idx) + self.count * IDX_ENTRY

    cdef Py_ssize_t put_body(self, Body* body) except -1:
        read_body(body)
        if (
            body.fault.reason
            or body.members_count
            # At a glance, before anything is judged: whoever does not fit is read once more.
            or <uint64_t> body.count * FRAME_OVERHEAD > <uint64_t> self.body_bytes_max
            or check_body(body)
            or body.frames_bytes > <uint64_t> self.body_bytes_max
            or self.frames_bytes + body.frames_bytes > GATHERED_BYTES_MAX
        ):
            return 0
        self.make_room(body.frames_bytes, body.count)
        encode_body(body, self.frames_at(), self.frames_bytes, self.idx_end())
        self.frames_bytes += body.frames_bytes
        self.count += body.count
        return body.count

    def add(self, body):
        cdef Py_buffer view
        cdef Body parsed
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        open_body(&parsed, <const uint8_t*> view.buf, view.len)
        parsed.limits = self.limits
        try:
            return 0 if view.len > self.body_bytes_max else self.put_body(&parsed)
        finally:
            close_body(&parsed)
            PyBuffer_Release(&view)

    def add_batch(self, batch):
        cdef bytearray frames = batch.frames
        cdef bytearray idx = bytearray(batch.idx)
        cdef Py_ssize_t count = batch.count
        if count < 0 or len(idx) % IDX_ENTRY or len(idx) // IDX_ENTRY != count:
            raise ValueError("the batch does not have one idx entry a frame")
        if self.frames_bytes + <uint64_t> len(frames) > GATHERED_BYTES_MAX:
            return False
        shift_idx(idx, <int64_t> self.frames_bytes)
        self.make_room(len(frames), count)
        memcpy(self.frames_at() + self.frames_bytes, PyByteArray_AS_STRING(frames), len(frames))
        memcpy(self.idx_end(), PyByteArray_AS_STRING(idx), count * IDX_ENTRY)
        self.frames_bytes += <uint64_t> len(frames)
        self.count += count
        return True

    def take(self):
        cdef bytearray frames = self.frames
        cdef bytearray idx = self.idx
        cdef uint64_t frames_bytes = self.frames_bytes
        cdef Py_ssize_t count = self.count
        self.clear()
        PyByteArray_Resize(frames, <Py_ssize_t> frames_bytes)
        PyByteArray_Resize(idx, count * IDX_ENTRY)
        return Batch(frames, idx, count, frames_bytes - <uint64_t> FRAME_OVERHEAD * count, {})
