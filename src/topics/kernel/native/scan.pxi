# WAL frames read back: whole batches as runs, and the next frame behind damage.

cdef struct RunOfFrames:
    uint64_t topic_id
    uint64_t first_seq
    uint64_t count
    Py_ssize_t start
    Py_ssize_t end
    uint8_t type

cdef struct Scanner:
    const uint8_t* buffer
    Py_ssize_t at
    Py_ssize_t stop
    RunOfFrames* runs
    Py_ssize_t runs_count
    Py_ssize_t runs_size
    # The state behind the last whole batch: a run that grew since is cut back to it.
    Py_ssize_t whole_end
    Py_ssize_t whole_runs
    uint64_t whole_count
    Py_ssize_t whole_run_end
    bint clean


cdef inline bint read_intact(const uint8_t* at, const uint8_t* stop, Frame* frame) noexcept nogil:
    return (
        read_frame(at, stop, WAL_LAYOUT, frame)
        and 1 <= frame.type <= FRAME_TYPE_MAX
        and is_intact(frame)
    )


cdef inline bint continues(const RunOfFrames* run, const Frame* frame) noexcept nogil:
    return (
        run.type == FRAME_APPEND
        and frame.type == FRAME_APPEND
        and run.topic_id == frame.topic_id
        and frame.seq > run.first_seq
        and frame.seq - run.first_seq == run.count
    )


cdef RunOfFrames* add_run(Scanner* scanner, const Frame* frame) noexcept nogil:
    """The new last run, NULL without memory."""
    cdef RunOfFrames* run
    cdef Py_ssize_t size
    if scanner.runs_count == scanner.runs_size:
        size = scanner.runs_size * 2 if scanner.runs_size else 64
        run = <RunOfFrames*> realloc(scanner.runs, size * sizeof(RunOfFrames))
        if run == NULL:
            return NULL
        scanner.runs = run
        scanner.runs_size = size
    run = scanner.runs + scanner.runs_count
    scanner.runs_count += 1
    run.type = frame.type
    run.topic_id = frame.topic_id
    run.first_seq = frame.seq
    run.count = 1
    run.start = scanner.at
    run.end = scanner.at + <Py_ssize_t> frame.size
    return run


cdef bint scan(Scanner* scanner) noexcept nogil:
    """False without memory."""
    cdef const uint8_t* stop = scanner.buffer + scanner.stop
    cdef Frame frame
    cdef RunOfFrames* run = NULL
    cdef Py_ssize_t i
    while read_intact(scanner.buffer + scanner.at, stop, &frame):
        if run != NULL and continues(run, &frame):
            run.count += 1
            run.end += <Py_ssize_t> frame.size
        else:
            run = add_run(scanner, &frame)
            if run == NULL:
                return False
        scanner.at += <Py_ssize_t> frame.size
        if not frame.flags & FLAG_BATCH_OPEN:
            scanner.whole_end = scanner.at
            scanner.whole_runs = scanner.runs_count
            scanner.whole_count = run.count
            scanner.whole_run_end = run.end
    scanner.clean = True
    for i in range(scanner.at, min(scanner.at + SIZE_BYTES, scanner.stop)):
        if scanner.buffer[i]:
            scanner.clean = False
    return True


cdef list build_runs(Scanner* scanner):
    cdef list runs = []
    cdef RunOfFrames* run
    cdef Py_ssize_t i
    if scanner.whole_runs:
        run = scanner.runs + scanner.whole_runs - 1
        run.count = scanner.whole_count
        run.end = scanner.whole_run_end
    for i in range(scanner.whole_runs):
        run = scanner.runs + i
        runs.append((run.type, run.topic_id, run.first_seq, run.count, run.start, run.end))
    return runs


def scan_frames(buffer, Py_ssize_t start, Py_ssize_t stop):
    cdef Py_buffer view
    cdef Scanner scanner
    cdef bint done
    scanner.runs = NULL
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        check_range(start, stop, view.len)
        scanner.buffer = <const uint8_t*> view.buf
        scanner.at = scanner.whole_end = start
        scanner.stop = stop
        scanner.runs_count = scanner.runs_size = scanner.whole_runs = 0
        with nogil:
            done = scan(&scanner)
        if not done:
            raise MemoryError
        return Scan(build_runs(&scanner), scanner.whole_end, scanner.at, scanner.clean)
    finally:
        free(scanner.runs)
        PyBuffer_Release(&view)


cdef inline const uint8_t* skip_zeros(const uint8_t* at, const uint8_t* stop) noexcept nogil:
    while stop - at >= 32 and not (
        load_u64(at) | load_u64(at + 8) | load_u64(at + 16) | load_u64(at + 24)
    ):
        at += 32
    while at < stop and not at[0]:
        at += 1
    return at


cdef Py_ssize_t find(const uint8_t* buffer, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t* at = buffer + start
    cdef const uint8_t* stop = buffer + size
    cdef const uint8_t* nonzero
    cdef Frame frame
    while stop - at >= FRAME_OVERHEAD:
        if load_u32(at) == 0:
            # A size of zero begins no frame: the next that may has a byte of its size set.
            nonzero = skip_zeros(at + SIZE_BYTES, stop)
            at = nonzero - SIZE_BYTES + 1
        elif 1 <= at[4] <= FRAME_TYPE_MAX and read_intact(at, stop, &frame):
            return at - buffer
        else:
            at += 1
    return -1


def find_frame(buffer, Py_ssize_t start, Py_ssize_t stop):
    cdef Py_buffer view
    cdef Py_ssize_t found
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        check_range(start, stop, view.len)
        with nogil:
            found = find(<const uint8_t*> view.buf, start, stop)
        return found
    finally:
        PyBuffer_Release(&view)


cdef Py_ssize_t count_appends(
    const uint8_t* at, const uint8_t* end, const uint8_t** bad
) noexcept nogil:
    """How many Append frames lie in [at, end); `bad` is the first that is none, or NULL."""
    cdef Py_ssize_t count = 0
    cdef Frame frame
    bad[0] = NULL
    while at < end:
        if not read_frame(at, end, WAL_LAYOUT, &frame) or frame.type != FRAME_APPEND:
            bad[0] = at
            return count
        at += frame.size
        count += 1
    return count


cdef bint index_appends(
    const uint8_t* start, const uint8_t* end, uint8_t* idx, Py_ssize_t count
) noexcept nogil:
    """False if another thread changed the frames since they were counted."""
    cdef const uint8_t* at = start
    cdef Frame frame
    cdef Py_ssize_t i
    for i in range(count):
        if not read_frame(at, end, WAL_LAYOUT, &frame):
            return False
        store_entry(
            idx + i * IDX_ENTRY, <uint32_t> (at - start), <uint32_t> frame.size, frame.ts,
            frame.flags & IDX_FLAGS,
        )
        at += frame.size
    return at == end


cdef object build_frame_idx(const uint8_t* buffer, Py_ssize_t start, Py_ssize_t end):
    cdef const uint8_t* bad
    cdef Py_ssize_t count
    cdef uint8_t* idx_at
    cdef bint done
    with nogil:
        count = count_appends(buffer + start, buffer + end, &bad)
    if bad != NULL:
        raise damaged("the WAL frame", bad - buffer)
    if <uint64_t> (end - start) > U32_MAX:
        raise CorruptData(f"the stretch at byte {start} is longer than an idx can address")
    idx = PyByteArray_FromStringAndSize(NULL, count * IDX_ENTRY)
    idx_at = <uint8_t*> PyByteArray_AS_STRING(idx)
    with nogil:
        done = index_appends(buffer + start, buffer + end, idx_at, count)
    if not done:
        raise damaged("the WAL frame", start)
    return idx


def index_frames(buffer, Py_ssize_t start, Py_ssize_t end):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        check_range(start, end, view.len)
        return build_frame_idx(<const uint8_t*> view.buf, start, end)
    finally:
        PyBuffer_Release(&view)
