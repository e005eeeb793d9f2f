# Tags: looked up in frames, gathered into sorted runs, merged, and found again.

cdef enum:
    TAG_RUN_HEADER = 24
    TAG_RUN_ENTRY = 16

cdef uint32_t TAG_RUN_MAGIC = 0x31525454  # "TTR1"

cdef struct TagRef:
    # The first eight bytes of the tag as a big-endian number: most comparisons end there.
    uint64_t prefix
    uint64_t seq
    const uint8_t* at
    uint32_t size

cdef struct TagRefs:
    TagRef* items
    Py_ssize_t count
    Py_ssize_t size

cdef struct TagRun:
    const uint8_t* entries
    const uint8_t* heap
    uint64_t count
    uint64_t heap_len


cdef inline TagRef make_ref(const uint8_t* at, uint32_t size, uint64_t seq) noexcept nogil:
    cdef TagRef ref
    cdef uint32_t i
    ref.prefix = 0
    for i in range(8):
        ref.prefix = ref.prefix << 8 | (at[i] if i < size else 0)
    ref.at = at
    ref.size = size
    ref.seq = seq
    return ref


cdef inline int compare_tags(const TagRef* a, const TagRef* b) noexcept nogil:
    cdef int order
    if a.prefix != b.prefix:
        return -1 if a.prefix < b.prefix else 1
    order = memcmp(a.at, b.at, min(a.size, b.size))
    if order:
        return order
    return (a.size > b.size) - (a.size < b.size)


cdef int compare_refs(const void* left, const void* right) noexcept nogil:
    cdef const TagRef* a = <const TagRef*> left
    cdef const TagRef* b = <const TagRef*> right
    cdef int order = compare_tags(a, b)
    if order:
        return order
    return (a.seq > b.seq) - (a.seq < b.seq)


cdef int compare_u64(const void* left, const void* right) noexcept nogil:
    cdef uint64_t a = (<const uint64_t*> left)[0]
    cdef uint64_t b = (<const uint64_t*> right)[0]
    return (a > b) - (a < b)


cdef inline bint add_ref(
    TagRefs* refs, const uint8_t* at, uint32_t size, uint64_t seq
) noexcept nogil:
    """False without memory."""
    cdef TagRef* grown
    cdef Py_ssize_t new_size
    if refs.count == refs.size:
        new_size = refs.size * 2 if refs.size else 256
        grown = <TagRef*> realloc(refs.items, new_size * sizeof(TagRef))
        if grown == NULL:
            return False
        refs.items = grown
        refs.size = new_size
    refs.items[refs.count] = make_ref(at, size, seq)
    refs.count += 1
    return True


cdef enum:
    GATHERED = -1
    GATHER_NO_MEMORY = -2


cdef Py_ssize_t gather_tags(
    const uint8_t* buffer, uint64_t size, int64_t base, int layout,
    const uint8_t* idx, Py_ssize_t start, Py_ssize_t stop,
    const Matcher* matcher, uint64_t first_seq, TagRefs* refs,
) noexcept nogil:
    """Note the live tagged entries that match, or all; GATHERED, or the entry that is bad."""
    cdef Py_ssize_t i
    cdef Entry entry
    cdef Frame frame
    for i in range(start, stop):
        entry = load_entry(idx, i)
        if entry.flags & (FLAG_DELETED | FLAG_TAG) != FLAG_TAG:
            continue
        if not frame_of_entry(buffer, size, base, &entry, layout, &frame):
            return i
        if matcher.operator != MATCH_NONE and not tag_matches(matcher, &frame):
            continue
        if frame.flags & FLAG_TAG:
            if not add_ref(refs, frame.tag, frame.tag_len, first_seq + i):
                return GATHER_NO_MEMORY
    return GATHERED


cdef int check_gathered(Py_ssize_t outcome, const uint8_t* idx) except -1:
    if outcome == GATHER_NO_MEMORY:
        raise MemoryError
    if outcome != GATHERED:
        offset = load_u32(idx + outcome * IDX_ENTRY)
        raise CorruptData(
            f"entry {outcome} is not at byte {offset}, where its index says it is"
        )
    return 0


def match_tags(
    buffer, idx, *, Py_ssize_t base, int layout, Py_ssize_t start, Py_ssize_t stop, match not None
):
    cdef Py_buffer view
    cdef Py_buffer idx_view
    cdef Matcher matcher
    cdef TagRefs refs
    cdef Py_ssize_t outcome
    cdef Py_ssize_t i
    refs.items = NULL
    refs.count = refs.size = 0
    open_matcher(match, &matcher)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &idx_view, PyBUF_SIMPLE)
        try:
            check_range(start, stop, idx_view.len // IDX_ENTRY)
            with nogil:
                outcome = gather_tags(
                    <const uint8_t*> view.buf, view.len, base, layout,
                    <const uint8_t*> idx_view.buf, start, stop, &matcher, 0, &refs,
                )
            check_gathered(outcome, <const uint8_t*> idx_view.buf)
            return [refs.items[i].seq for i in range(refs.count)]
        finally:
            PyBuffer_Release(&idx_view)
    finally:
        free(refs.items)
        PyBuffer_Release(&view)


cdef bint is_sorted(const TagRef* items, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(1, count):
        if compare_refs(items + i - 1, items + i) > 0:
            return False
    return True


cdef void sort_refs(TagRefs* refs, Py_ssize_t* kept, uint64_t* heap_len) noexcept nogil:
    """Sort by (tag, seq), drop pairs that come twice, and add up the distinct tags."""
    cdef Py_ssize_t i
    cdef Py_ssize_t last = -1
    heap_len[0] = 0
    if not is_sorted(refs.items, refs.count):
        qsort(refs.items, refs.count, sizeof(TagRef), compare_refs)
    for i in range(refs.count):
        if last < 0 or compare_tags(refs.items + last, refs.items + i):
            heap_len[0] += refs.items[i].size
        elif refs.items[last].seq == refs.items[i].seq:
            continue
        last += 1
        refs.items[last] = refs.items[i]
    kept[0] = last + 1


cdef void encode_run(const TagRefs* refs, Py_ssize_t count, uint64_t heap_len, uint8_t* out) noexcept nogil:
    cdef uint8_t* entry = out + TAG_RUN_HEADER
    cdef uint8_t* heap = entry + count * TAG_RUN_ENTRY
    cdef uint64_t used = 0
    cdef uint64_t tag_at = 0
    cdef const TagRef* ref
    cdef Py_ssize_t i
    for i in range(count):
        ref = refs.items + i
        if i == 0 or compare_tags(ref - 1, ref):
            tag_at = used
            memcpy(heap + used, ref.at, ref.size)
            used += ref.size
        store_u64(entry, ref.seq)
        store_u32(entry + 8, <uint32_t> tag_at)
        store_u32(entry + 12, ref.size)
        entry += TAG_RUN_ENTRY
    store_u32(out, TAG_RUN_MAGIC)
    store_u32(out + 4, <uint32_t> count)
    store_u32(out + 8, <uint32_t> heap_len)
    store_u32(out + 12, 0)
    store_u64(
        out + 16,
        XXH3_64bits(out + TAG_RUN_HEADER, <uint64_t> count * TAG_RUN_ENTRY + heap_len),
    )


cdef object build_run(TagRefs* refs):
    cdef Py_ssize_t count
    cdef uint64_t heap_len
    cdef uint8_t* out
    if refs.count == 0:
        return b""
    with nogil:
        sort_refs(refs, &count, &heap_len)
    if heap_len > U32_MAX or <uint64_t> count > U32_MAX:
        raise ValueError("the tags of one run are longer than 4 GiB")
    run = PyBytes_FromStringAndSize(NULL, TAG_RUN_HEADER + count * TAG_RUN_ENTRY + heap_len)
    out = <uint8_t*> PyBytes_AS_STRING(run)
    with nogil:
        encode_run(refs, count, heap_len, out)
    return run


def build_tag_run(data, idx, uint64_t first_seq):
    cdef Py_buffer view
    cdef Py_buffer idx_view
    cdef Matcher matcher
    cdef TagRefs refs
    cdef Py_ssize_t outcome
    refs.items = NULL
    refs.count = refs.size = 0
    matcher.operator = MATCH_NONE
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &idx_view, PyBUF_SIMPLE)
        try:
            with nogil:
                outcome = gather_tags(
                    <const uint8_t*> view.buf, view.len, 0, SEGMENT_LAYOUT,
                    <const uint8_t*> idx_view.buf, 0, idx_view.len // IDX_ENTRY,
                    &matcher, first_seq, &refs,
                )
            check_gathered(outcome, <const uint8_t*> idx_view.buf)
            return build_run(&refs)
        finally:
            PyBuffer_Release(&idx_view)
    finally:
        free(refs.items)
        PyBuffer_Release(&view)


cdef bint open_run(const Py_buffer* view, TagRun* run) noexcept nogil:
    """False unless the header holds and the sizes add up."""
    cdef const uint8_t* at = <const uint8_t*> view.buf
    if view.len < TAG_RUN_HEADER or load_u32(at) != TAG_RUN_MAGIC or load_u32(at + 12):
        return False
    run.count = load_u32(at + 4)
    run.heap_len = load_u32(at + 8)
    run.entries = at + TAG_RUN_HEADER
    if <uint64_t> view.len != TAG_RUN_HEADER + run.count * TAG_RUN_ENTRY + run.heap_len:
        return False
    run.heap = run.entries + run.count * TAG_RUN_ENTRY
    return True


cdef inline bint load_pair(const TagRun* run, uint64_t i, TagRef* ref) noexcept nogil:
    """False if the entry points outside the heap."""
    cdef const uint8_t* at = run.entries + i * TAG_RUN_ENTRY
    cdef uint32_t offset = load_u32(at + 8)
    cdef uint32_t size = load_u32(at + 12)
    if <uint64_t> offset + size > run.heap_len:
        return False
    ref[0] = make_ref(run.heap + offset, size, load_u64(at))
    return True


cdef int open_some_run(const Py_buffer* view, TagRun* run) except -1:
    """As `open_run`, but empty bytes are a run without pairs and a bad one is an error."""
    run.entries = run.heap = NULL
    run.count = run.heap_len = 0
    if view.len and not open_run(view, run):
        raise_bad_run()
    return 0


cdef int raise_bad_run() except -1:
    raise CorruptData("the tag run is damaged: remove it and it is built again")


cdef int gather_run(const TagRun* run, TagRefs* refs) noexcept nogil:
    """1 when done, 0 for a bad run, -1 without memory."""
    cdef TagRef ref
    cdef uint64_t i
    cdef Py_ssize_t first = refs.count
    for i in range(run.count):
        if not load_pair(run, i, &ref):
            return 0
        if not add_ref(refs, ref.at, ref.size, ref.seq):
            return -1
    return is_sorted(refs.items + first, refs.count - first)


cdef object merge_views(Py_buffer* views, Py_ssize_t count, TagRefs* refs):
    cdef TagRun run
    cdef Py_ssize_t i
    cdef int outcome
    for i in range(count):
        open_some_run(views + i, &run)
        with nogil:
            outcome = gather_run(&run, refs)
        if outcome < 0:
            raise MemoryError
        if not outcome:
            raise_bad_run()
    return build_run(refs)


def merge_tag_runs(runs):
    cdef list inputs = list(runs)
    cdef Py_ssize_t opened = 0
    cdef Py_ssize_t i
    cdef TagRefs refs
    cdef Py_buffer* views = <Py_buffer*> malloc(max(len(inputs), 1) * sizeof(Py_buffer))
    if views == NULL:
        raise MemoryError
    refs.items = NULL
    refs.count = refs.size = 0
    try:
        for run in inputs:
            PyObject_GetBuffer(run, views + opened, PyBUF_SIMPLE)
            opened += 1
        return merge_views(views, opened, &refs)
    finally:
        for i in range(opened):
            PyBuffer_Release(views + i)
        free(views)
        free(refs.items)


cdef struct Lookup:
    TagRun run
    Matcher matcher
    uint64_t* seqs
    Py_ssize_t count
    Py_ssize_t size


cdef int lookup(Lookup* work) noexcept nogil:
    """1 when done, 0 for a bad run, -1 without memory."""
    cdef TagRef needle = make_ref(work.matcher.needle.at, work.matcher.needle.size, 0)
    cdef TagRef ref
    cdef uint64_t low = 0
    cdef uint64_t high = work.run.count
    cdef uint64_t middle
    cdef uint64_t* grown
    while low < high:
        middle = low + (high - low) // 2
        if not load_pair(&work.run, middle, &ref):
            return 0
        if compare_tags(&ref, &needle) < 0:
            low = middle + 1
        else:
            high = middle
    while low < work.run.count:
        if not load_pair(&work.run, low, &ref):
            return 0
        if work.matcher.operator == MATCH_EQ and ref.size != needle.size:
            break
        if ref.size < needle.size or memcmp(ref.at, needle.at, needle.size):
            break
        if work.count == work.size:
            work.size = work.size * 2 if work.size else 64
            grown = <uint64_t*> realloc(work.seqs, work.size * sizeof(uint64_t))
            if grown == NULL:
                return -1
            work.seqs = grown
        work.seqs[work.count] = ref.seq
        work.count += 1
        low += 1
    if work.count:
        qsort(work.seqs, work.count, sizeof(uint64_t), compare_u64)
    return 1


def lookup_tag_run(run, match not None):
    cdef Py_buffer view
    cdef Lookup work
    cdef int outcome
    work.seqs = NULL
    work.count = work.size = 0
    open_matcher(match, &work.matcher)
    PyObject_GetBuffer(run, &view, PyBUF_SIMPLE)
    try:
        open_some_run(&view, &work.run)
        if view.len < GIL_BYTES:
            outcome = lookup(&work)
        else:
            with nogil:
                outcome = lookup(&work)
        if outcome < 0:
            raise MemoryError
        if not outcome:
            raise_bad_run()
        return array("Q", PyBytes_FromStringAndSize(<char*> work.seqs, work.count * 8))
    finally:
        free(work.seqs)
        PyBuffer_Release(&view)


def check_tag_run(run):
    cdef Py_buffer view
    cdef TagRun opened
    cdef bint sound
    PyObject_GetBuffer(run, &view, PyBUF_SIMPLE)
    with nogil:
        sound = open_run(&view, &opened) and (
            XXH3_64bits(opened.entries, view.len - TAG_RUN_HEADER)
            == load_u64(opened.entries - 8)
        )
    PyBuffer_Release(&view)
    return sound
