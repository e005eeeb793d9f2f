# Questions that the 20-byte entries answer without looking at a frame.


cdef const uint8_t* open_entries(
    object idx, Py_ssize_t start, Py_ssize_t stop, Py_buffer* view
) except NULL:
    """Export an idx and check the range; the caller releases the view."""
    PyObject_GetBuffer(idx, view, PyBUF_SIMPLE)
    try:
        check_range(start, stop, view.len // IDX_ENTRY)
    except ValueError:
        PyBuffer_Release(view)
        raise
    # An empty buffer may be at NULL, which would read as an error here.
    return <const uint8_t*> view.buf if view.buf != NULL else <const uint8_t*> view


def count_live(idx, Py_ssize_t start, Py_ssize_t stop):
    cdef Py_buffer view
    cdef const uint8_t* entries = open_entries(idx, start, stop, &view)
    cdef Py_ssize_t i
    cdef Py_ssize_t records = 0
    cdef int64_t size_sum = 0
    for i in range(start, stop):
        if not entries[i * IDX_ENTRY + 16] & FLAG_DELETED:
            records += 1
            size_sum += <int64_t> load_u32(entries + i * IDX_ENTRY + 4) - FRAME_OVERHEAD
    PyBuffer_Release(&view)
    return records, size_sum


def shift_idx(idx, int64_t delta):
    cdef Py_buffer view
    cdef uint8_t* entries
    cdef Py_ssize_t i
    cdef Py_ssize_t count
    cdef int64_t offset
    PyObject_GetBuffer(idx, &view, PyBUF_WRITABLE)
    entries = <uint8_t*> view.buf
    count = view.len // IDX_ENTRY
    for i in range(count):
        offset = <int64_t> load_u32(entries + i * IDX_ENTRY) + delta
        if offset < 0 or offset > <int64_t> 0xFFFFFFFF:
            for i in range(i):
                store_u32(
                    entries + i * IDX_ENTRY,
                    <uint32_t> (<int64_t> load_u32(entries + i * IDX_ENTRY) - delta),
                )
            PyBuffer_Release(&view)
            raise OverflowError("an offset is an unsigned 32-bit number")
        store_u32(entries + i * IDX_ENTRY, <uint32_t> offset)
    PyBuffer_Release(&view)


def first_live(idx, Py_ssize_t start, Py_ssize_t stop):
    cdef Py_buffer view
    cdef const uint8_t* entries = open_entries(idx, start, stop, &view)
    while start < stop and entries[start * IDX_ENTRY + 16] & FLAG_DELETED:
        start += 1
    PyBuffer_Release(&view)
    return start


def evict_prefix(
    idx, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t need_records, Py_ssize_t need_bytes
):
    cdef Py_buffer view
    cdef const uint8_t* entries = open_entries(idx, start, stop, &view)
    cdef Entry entry
    cdef Py_ssize_t i = start
    cdef Py_ssize_t index = start
    cdef Py_ssize_t records = 0
    cdef int64_t size_sum = 0
    while i < stop and (records < need_records or size_sum < need_bytes):
        entry = load_entry(entries, i)
        i += 1
        if not entry.flags & FLAG_DELETED:
            index = i
            records += 1
            size_sum += <int64_t> entry.size - FRAME_OVERHEAD
    PyBuffer_Release(&view)
    return index, records, size_sum


def bisect_ts(idx, Py_ssize_t start, Py_ssize_t stop, ts):
    cdef Py_buffer view
    cdef uint64_t wanted = 0 if ts < 0 else ts
    cdef const uint8_t* entries = open_entries(idx, start, stop, &view)
    cdef Py_ssize_t low = start
    cdef Py_ssize_t high = stop
    cdef Py_ssize_t middle
    while low < high:
        middle = low + (high - low) // 2
        if load_u64(entries + middle * IDX_ENTRY + 8) < wanted:
            low = middle + 1
        else:
            high = middle
    PyBuffer_Release(&view)
    return low


def delete_entries(idx, seqs, uint64_t first_seq):
    cdef Py_buffer view
    cdef Py_buffer seqs_view
    cdef uint8_t* entries
    cdef uint8_t* entry
    cdef uint64_t* found
    cdef uint64_t seq
    cdef Py_ssize_t count
    cdef Py_ssize_t i
    cdef Py_ssize_t records = 0
    cdef int64_t size_sum = 0
    PyObject_GetBuffer(seqs, &seqs_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &view, PyBUF_WRITABLE)
        try:
            entries = <uint8_t*> view.buf
            count = view.len // IDX_ENTRY
            dead = PyBytes_FromStringAndSize(NULL, seqs_view.len)
            found = <uint64_t*> PyBytes_AS_STRING(dead)
            for i in range(seqs_view.len // 8):
                seq = load_u64(<const uint8_t*> seqs_view.buf + i * 8)
                if seq < first_seq or seq - first_seq >= <uint64_t> count:
                    raise ValueError(f"seq {seq} is none of {count} from {first_seq} on")
                entry = entries + (seq - first_seq) * IDX_ENTRY
                if not entry[16] & FLAG_DELETED:
                    entry[16] |= FLAG_DELETED
                    store_u64(<uint8_t*> (found + records), seq)
                    records += 1
                    size_sum += <int64_t> load_u32(entry + 4) - FRAME_OVERHEAD
        finally:
            PyBuffer_Release(&view)
    finally:
        PyBuffer_Release(&seqs_view)
    return array("Q", dead[: records * 8]), size_sum


def flag_frames(data, idx, seqs, uint64_t first_seq, *, uint64_t base):
    cdef Py_buffer view
    cdef Py_buffer idx_view
    cdef Py_buffer seqs_view
    cdef uint8_t* bytes_at
    cdef Entry entry
    cdef uint64_t seq
    cdef uint64_t at
    cdef Py_ssize_t count
    cdef Py_ssize_t i
    PyObject_GetBuffer(seqs, &seqs_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &idx_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
            try:
                bytes_at = <uint8_t*> view.buf
                count = idx_view.len // IDX_ENTRY
                for i in range(seqs_view.len // 8):
                    seq = load_u64(<const uint8_t*> seqs_view.buf + i * 8)
                    if seq < first_seq or seq - first_seq >= <uint64_t> count:
                        raise ValueError(f"seq {seq} is none of {count} from {first_seq} on")
                    entry = load_entry(<const uint8_t*> idx_view.buf, seq - first_seq)
                    if entry.size == 0:
                        continue
                    at = <uint64_t> entry.offset + entry.size - 1
                    if at < base or at - base >= <uint64_t> view.len:
                        raise ValueError(f"the frame of seq {seq} is not in these bytes")
                    bytes_at[at - base] = DELETED_BYTE
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&idx_view)
    finally:
        PyBuffer_Release(&seqs_view)


cdef struct Summary:
    Py_ssize_t entries
    Py_ssize_t live_records
    int64_t live_bytes
    Py_ssize_t tagged_records
    uint64_t first_ts
    uint64_t last_ts
    uint64_t data_end
    Py_ssize_t bad_index


cdef void summarize(const uint8_t* idx, Summary* sums) noexcept nogil:
    cdef Py_ssize_t i
    cdef Entry entry
    cdef bint deleted
    for i in range(sums.entries):
        entry = load_entry(idx, i)
        deleted = entry.flags & FLAG_DELETED != 0
        if (
            entry.offset != sums.data_end
            or entry.ts < sums.last_ts
            or load_u32(idx + i * IDX_ENTRY + 16) >> 8
            or (entry.size < FRAME_OVERHEAD and not (deleted and entry.size == 0))
        ):
            sums.bad_index = i
            return
        if i == 0:
            sums.first_ts = entry.ts
        sums.last_ts = entry.ts
        sums.data_end += entry.size
        if not deleted:
            sums.live_records += 1
            sums.live_bytes += <int64_t> entry.size - FRAME_OVERHEAD
            sums.tagged_records += entry.flags & FLAG_TAG


def summarize_idx(idx):
    cdef Py_buffer view
    cdef Summary sums
    PyObject_GetBuffer(idx, &view, PyBUF_SIMPLE)
    sums.entries = view.len // IDX_ENTRY
    sums.bad_index = sums.entries if view.len % IDX_ENTRY else -1
    sums.live_records = sums.tagged_records = 0
    sums.live_bytes = 0
    sums.first_ts = sums.last_ts = sums.data_end = 0
    with nogil:
        summarize(<const uint8_t*> view.buf, &sums)
    PyBuffer_Release(&view)
    return IdxSummary(
        sums.entries, sums.live_records, sums.live_bytes, sums.tagged_records,
        sums.first_ts, sums.last_ts, sums.data_end, sums.bad_index,
    )
