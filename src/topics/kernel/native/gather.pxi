# The bodies of many small writes, read one behind the other into one batch.

cdef enum:
    FIRST_FRAMES_BYTES = 4096
    FIRST_IDX_BYTES = 320
    # More is not worth waiting for, and would pass by the bounds of the queue.
    GATHERED_BYTES_MAX = 4 << 20
    # From here on it takes longer than to give the GIL up and get it back. A turn of many such
    # bodies takes a millisecond: so long each thread that makes segments would wait, many times.
    GIL_BODY_BYTES = 4096


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
            max_node_bytes, False, False,
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

    cdef bint read_plain(self, Body* body) noexcept nogil:
        """Read a body; False for one that is wrong, large, or more than its records."""
        if body.end - body.start > self.body_bytes_max:
            return False
        read_body(body)
        return not (
            body.fault.reason
            or body.has_members
            # At a glance, before anything is judged: whoever does not fit is read once more.
            or <uint64_t> body.count * FRAME_OVERHEAD > <uint64_t> self.body_bytes_max
            or check_body(body)
            or body.frames_bytes > <uint64_t> self.body_bytes_max
        )

    cdef bint read_apart(self, Body* body) noexcept:
        """Read a body, without the GIL if it is a large one."""
        cdef bint is_plain
        if body.end - body.start < GIL_BODY_BYTES:
            return self.read_plain(body)
        with nogil:
            is_plain = self.read_plain(body)
        return is_plain

    cdef bint has_room(self, uint64_t frames_bytes) noexcept:
        return self.frames_bytes + frames_bytes <= GATHERED_BYTES_MAX

    cdef Py_ssize_t put_body(self, Body* body) except -1:
        if not self.read_apart(body) or not self.has_room(body.frames_bytes):
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
            return self.put_body(&parsed)
        finally:
            close_body(&parsed)
            PyBuffer_Release(&view)

    def add_batch(self, batch):
        cdef bytearray frames = batch.frames
        cdef bytearray idx = bytearray(batch.idx)
        cdef Py_ssize_t count = batch.count
        if count < 0 or len(idx) % IDX_ENTRY or len(idx) // IDX_ENTRY != count:
            raise ValueError("the batch does not have one idx entry a frame")
        if not self.has_room(len(frames)):
            return False
        shift_idx(idx, <int64_t> self.frames_bytes)
        self.make_room(len(frames), count)
        memcpy(self.frames_at() + self.frames_bytes, PyByteArray_AS_STRING(frames), len(frames))
        memcpy(self.idx_end(), PyByteArray_AS_STRING(idx), count * IDX_ENTRY)
        self.frames_bytes += <uint64_t> len(frames)
        self.count += count
        return True

    cdef int put_record(self, const Record* record, const Body* body, uint8_t flags) except -1:
        cdef uint8_t* out
        cdef uint8_t idx_flags
        cdef uint64_t size = frame_bytes(record, body)
        self.make_room(size, 1)  # most often it is there
        out = self.frames_at() + self.frames_bytes
        encode_frame(out, record, body, flags, &idx_flags)
        store_entry(self.idx_end(), <uint32_t> self.frames_bytes, <uint32_t> size, 0, idx_flags)
        self.frames_bytes += size
        self.count += 1
        return 0

    def deal(self, body, list gatherings, *, Py_ssize_t spare):
        cdef Py_buffer view
        cdef Body parsed
        check_partitions(len(gatherings), spare)
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        open_body(&parsed, <const uint8_t*> view.buf, view.len)
        parsed.limits = self.limits
        parsed.limits.keyed = True
        try:
            return deal_body(&parsed, gatherings, spare) if self.read_apart(&parsed) else None
        finally:
            close_body(&parsed)
            PyBuffer_Release(&view)

    def take(self):
        cdef bytearray frames = self.frames
        cdef bytearray idx = self.idx
        cdef uint64_t frames_bytes = self.frames_bytes
        cdef Py_ssize_t count = self.count
        self.clear()
        PyByteArray_Resize(frames, <Py_ssize_t> frames_bytes)
        PyByteArray_Resize(idx, count * IDX_ENTRY)
        return Batch(frames, idx, count, frames_bytes - <uint64_t> FRAME_OVERHEAD * count, {})


cdef struct Share:
    uint64_t frames_bytes
    Py_ssize_t count


cdef object deal_body(Body* body, list gatherings, Py_ssize_t spare):
    """Deal the records of a body that was read: to all of its gatherings, or to none."""
    cdef Py_ssize_t partitions = len(gatherings)
    cdef bytes places = PyBytes_FromStringAndSize(NULL, body.count * 2)
    cdef uint8_t* place = <uint8_t*> PyBytes_AS_STRING(places)
    cdef Share* shares = <Share*> calloc(partitions, sizeof(Share))
    cdef Py_ssize_t i
    if shares == NULL:
        raise MemoryError
    try:
        for i in range(body.count):
            store_u16(place + i * 2, place_of(hash_record(body.records + i), partitions, spare))
            shares[load_u16(place + i * 2)].frames_bytes += frame_bytes(body.records + i, body)
            shares[load_u16(place + i * 2)].count += 1
        for i in range(partitions):
            if shares[i].count and not (<Gathering?> gatherings[i]).has_room(shares[i].frames_bytes):
                return None
        dealt = [(i, shares[i].count) for i in range(partitions) if shares[i].count]
        for i, _ in dealt:
            (<Gathering> gatherings[i]).make_room(shares[i].frames_bytes, shares[i].count)
        put_dealt(body, gatherings, place, shares)
        return places, dealt
    finally:
        free(shares)


cdef int put_dealt(Body* body, list gatherings, const uint8_t* places, Share* shares) except -1:
    """Write each frame to its gathering; the last of each closes what that one got."""
    cdef Py_ssize_t i
    cdef Share* share
    cdef Gathering gathering
    for i in range(body.count):
        share = shares + load_u16(places + i * 2)
        gathering = <Gathering> gatherings[load_u16(places + i * 2)]
        share.count -= 1
        gathering.put_record(body.records + i, body, FLAG_BATCH_OPEN if share.count else 0)
    return 0
