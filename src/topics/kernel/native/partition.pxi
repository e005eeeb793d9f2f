# From one batch to one batch a partition.

cdef uint64_t NO_HASH = 0xFFFFFFFFFFFFFFFF

cdef struct Part:
    uint8_t* frames
    uint8_t* idx
    uint64_t frames_bytes
    uint64_t written
    Py_ssize_t count
    Py_ssize_t done


cdef inline uint32_t fnv1a(const uint8_t* at, uint64_t size) noexcept nogil:
    cdef uint32_t digest = 2166136261U
    cdef uint64_t i
    for i in range(size):
        digest = (digest ^ at[i]) * <uint32_t> 16777619
    return digest


def fnv1a_32(data):
    cdef Py_buffer view
    cdef uint32_t digest
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    digest = fnv1a(<const uint8_t*> view.buf, view.len)
    PyBuffer_Release(&view)
    return digest


cdef inline uint16_t place_of(
    uint64_t digest, Py_ssize_t partitions, Py_ssize_t spare
) noexcept nogil:
    return <uint16_t> (spare if digest == NO_HASH else digest % <uint64_t> partitions)


cdef int check_partitions(Py_ssize_t partitions, Py_ssize_t spare) except -1:
    if not (1 <= partitions <= <Py_ssize_t> U16_MAX and 0 <= spare < partitions):
        raise ValueError(f"{spare} is not one of {partitions} partitions")
    return 0


def place_batch(hashes, *, Py_ssize_t partitions, Py_ssize_t spare):
    cdef Py_buffer view
    cdef bytes places
    cdef uint8_t* out
    cdef uint64_t digest
    cdef Py_ssize_t i
    check_partitions(partitions, spare)
    PyObject_GetBuffer(hashes, &view, PyBUF_SIMPLE)
    try:
        if view.len % 8:
            raise ValueError("a hash is an unsigned 64-bit number")
        places = PyBytes_FromStringAndSize(NULL, view.len // 4)
        out = <uint8_t*> PyBytes_AS_STRING(places)
        for i in range(view.len // 8):
            digest = load_u64(<const uint8_t*> view.buf + i * 8)
            store_u16(out + i * 2, place_of(digest, partitions, spare))
        return places
    finally:
        PyBuffer_Release(&view)


cdef inline uint8_t* put_number(uint8_t* out, uint64_t number) noexcept nogil:
    cdef uint8_t digits[20]
    cdef int size = 0
    while True:
        digits[size] = <uint8_t> (c"0" + number % 10)
        size += 1
        number //= 10
        if not number:
            break
    while size:
        size -= 1
        out[0] = digits[size]
        out += 1
    return out


def format_places(places, dict first_seqs, dict counts):
    # A pair is at most [65535,18446744073709551615] and a comma: 29 bytes.
    cdef Py_buffer view
    cdef uint64_t* following = NULL
    cdef uint64_t* ends = NULL
    cdef uint8_t* text = NULL
    cdef uint8_t* out
    cdef uint64_t first
    cdef uint64_t most
    cdef uint64_t seq
    cdef Py_ssize_t i
    cdef Py_ssize_t count
    cdef Py_ssize_t last = 0
    cdef Py_ssize_t place
    PyObject_GetBuffer(places, &view, PyBUF_SIMPLE)
    try:
        if view.len % 2:
            raise ValueError("a place is an unsigned 16-bit number")
        count = view.len // 2
        for i in range(count):
            last = max(last, load_u16(<const uint8_t*> view.buf + i * 2))
        following = <uint64_t*> calloc(last + 1, 8)
        ends = <uint64_t*> calloc(last + 1, 8)
        text = <uint8_t*> malloc(count * 29 + 2)
        if following == NULL or ends == NULL or text == NULL:
            raise MemoryError
        for number, most in counts.items():
            if most and 0 <= number <= last:
                place = number
                first = first_seqs[number]
                following[place] = first
                ends[place] = first + most
        out = text
        out[0] = c"["
        out += 1
        for i in range(count):
            place = load_u16(<const uint8_t*> view.buf + i * 2)
            seq = 0
            if following[place] < ends[place]:
                seq = following[place]
                following[place] += 1
            if i:
                out[0] = c","
                out += 1
            out[0] = c"["
            out = put_number(out + 1, place)
            out[0] = c","
            out = put_number(out + 1, seq)
            out[0] = c"]"
            out += 1
        out[0] = c"]"
        return PyBytes_FromStringAndSize(<const char*> text, out + 1 - text)
    finally:
        free(following)
        free(ends)
        free(text)
        PyBuffer_Release(&view)


cdef int measure_parts(
    Py_buffer* frames, Py_buffer* idx, Py_buffer* places, Py_ssize_t count, Part* parts
) except -1:
    """Add up what each partition gets; every entry is checked here."""
    cdef Py_ssize_t i
    cdef Entry entry
    cdef Part* part
    for i in range(count):
        entry = load_entry(<const uint8_t*> idx.buf, i)
        if (
            entry.size < FRAME_OVERHEAD
            or <uint64_t> entry.offset + entry.size > <uint64_t> frames.len
        ):
            raise ValueError(f"entry {i} of the batch points outside its frames")
        part = parts + load_u16(<const uint8_t*> places.buf + i * 2)
        part.frames_bytes += entry.size
        part.count += 1
    return 0


cdef void copy_parts(
    Py_buffer* frames, Py_buffer* idx, Py_buffer* places, Py_ssize_t count, Part* parts
) noexcept nogil:
    """Copy each frame to its part, which is exactly as large as was measured."""
    cdef Py_ssize_t i
    cdef Entry entry
    cdef Part* part
    cdef uint8_t* out
    for i in range(count):
        entry = load_entry(<const uint8_t*> idx.buf, i)
        part = parts + load_u16(<const uint8_t*> places.buf + i * 2)
        if part.done == part.count or part.written + entry.size > part.frames_bytes:
            return  # somebody changed the batch meanwhile
        out = part.frames + part.written
        memcpy(out, <const uint8_t*> frames.buf + entry.offset, entry.size)
        store_entry(
            part.idx + part.done * IDX_ENTRY, <uint32_t> part.written, entry.size,
            entry.ts, entry.flags,
        )
        part.written += entry.size
        part.done += 1
        if part.done < part.count:
            out[5] |= FLAG_BATCH_OPEN
        else:
            out[5] &= <uint8_t> ~FLAG_BATCH_OPEN


cdef list split_views(
    Py_buffer* frames, Py_buffer* idx, Py_buffer* places, Py_ssize_t count
):
    cdef Py_ssize_t last = 0
    cdef Py_ssize_t i
    cdef Part* parts
    cdef list split = []
    if (
        count < 0
        or idx.len % IDX_ENTRY or idx.len // IDX_ENTRY != count
        or places.len % 2 or places.len // 2 != count
    ):
        raise ValueError("the batch does not have one idx entry and one place a frame")
    for i in range(count):
        last = max(last, load_u16(<const uint8_t*> places.buf + i * 2))
    parts = <Part*> calloc(last + 1, sizeof(Part))
    if parts == NULL:
        raise MemoryError
    try:
        measure_parts(frames, idx, places, count, parts)
        for i in range(last + 1):
            if parts[i].count:
                part_frames = PyByteArray_FromStringAndSize(NULL, parts[i].frames_bytes)
                part_idx = PyByteArray_FromStringAndSize(NULL, parts[i].count * IDX_ENTRY)
                parts[i].frames = <uint8_t*> PyByteArray_AS_STRING(part_frames)
                parts[i].idx = <uint8_t*> PyByteArray_AS_STRING(part_idx)
                payload_bytes = parts[i].frames_bytes - <uint64_t> FRAME_OVERHEAD * parts[i].count
                part = Batch(part_frames, part_idx, parts[i].count, payload_bytes, {})
                split.append((i, part))
        copy_parts(frames, idx, places, count, parts)
    finally:
        free(parts)
    return split


def split_batch(batch, places):
    cdef Py_buffer frames
    cdef Py_buffer idx
    cdef Py_buffer place_view
    PyObject_GetBuffer(batch.frames, &frames, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(batch.idx, &idx, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(places, &place_view, PyBUF_SIMPLE)
            try:
                return split_views(&frames, &idx, &place_view, batch.count)
            finally:
                PyBuffer_Release(&place_view)
        finally:
            PyBuffer_Release(&idx)
    finally:
        PyBuffer_Release(&frames)
