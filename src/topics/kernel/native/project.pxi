# Frames to reply JSON: payloads are spliced as they were sent, never parsed again.

cdef extern from *:
    """
    static const char kernel_digits[201] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
        "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
        "888990919293949596979899";

    /* Write a number in decimal, two digits a step; returns the place behind it. */
    static inline uint8_t *put_u64(uint8_t *out, uint64_t value) {
        uint8_t digits[20];
        uint8_t *at = digits + 20;
        while (value >= 100) {
            at -= 2;
            memcpy(at, kernel_digits + value % 100 * 2, 2);
            value /= 100;
        }
        if (value >= 10) {
            at -= 2;
            memcpy(at, kernel_digits + value * 2, 2);
        } else {
            *--at = (uint8_t)('0' + value);
        }
        const size_t size = (size_t)(digits + 20 - at);
        memcpy(out, at, size);
        return out + size;
    }

    /* The compiler knows the length of a literal, and copies it with one or two stores. */
    static inline uint8_t *put_literal(uint8_t *out, const char *literal) {
        memcpy(out, literal, strlen(literal));
        return out + strlen(literal);
    }
    """
    uint8_t* put_u64(uint8_t* out, uint64_t value) noexcept nogil
    uint8_t* put_literal(uint8_t* out, const char* literal) noexcept nogil

cdef enum:
    MATCH_NONE = 0
    MATCH_EQ = 1
    MATCH_PREFIX = 2

    LOCAL_NODES = 8
    # `,{"$seq":` `,"$ts":` `,"$node":""` `,"$tag":""` `,"meta":` `,"data":` `}` and two u64.
    RECORD_JSON_OVERHEAD = 128

    PROJECTED = 0
    PROJECT_GROW = 1
    PROJECT_BAD_FRAME = 2
    PROJECT_BAD_PAYLOAD = 3
    PROJECT_BAD_CHECKSUM = 4

cdef const char* HEX_DIGITS = b"0123456789abcdef"

cdef struct Needle:
    const uint8_t* at
    uint64_t size

cdef struct Matcher:
    int operator
    Needle needle

cdef struct Projector:
    const uint8_t* buffer
    uint64_t buffer_bytes
    const uint8_t* idx
    int64_t base
    uint64_t first_seq
    Py_ssize_t at
    Py_ssize_t stop
    Py_ssize_t count
    Py_ssize_t limit
    Py_ssize_t budget
    int layout
    bint include_meta
    bint include_tags
    bint include_data
    bint verify
    Matcher matcher
    Needle* nodes
    Py_ssize_t nodes_count
    # The output, and how much room the next record needs when it says PROJECT_GROW.
    uint8_t* out
    uint64_t used
    uint64_t size
    uint64_t wanted
    uint32_t bad_offset
    # Records of one batch share their time: it is put into digits once.
    uint64_t ts
    uint8_t ts_digits[20]
    Py_ssize_t ts_size
    Needle local_nodes[LOCAL_NODES]


cdef inline bint equals(const Needle* needle, const uint8_t* at, uint64_t size) noexcept nogil:
    return needle.size == size and memcmp(needle.at, at, size) == 0


cdef inline bint tag_matches(const Matcher* matcher, const Frame* frame) noexcept nogil:
    """An untagged record matches nothing, not even an empty prefix."""
    if not frame.flags & FLAG_TAG:
        return False
    if matcher.operator == MATCH_EQ:
        return equals(&matcher.needle, frame.tag, frame.tag_len)
    return (
        matcher.needle.size <= frame.tag_len
        and memcmp(matcher.needle.at, frame.tag, matcher.needle.size) == 0
    )


cdef bint is_skipped_node(const Projector* work, const Frame* frame) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(work.nodes_count):
        if equals(work.nodes + i, frame.node, frame.node_len):
            return True
    return False


cdef uint8_t* put_escape(uint8_t* out, uint8_t byte) noexcept nogil:
    cdef uint8_t letter = 0
    if byte == c'"' or byte == c"\\":
        letter = byte
    elif byte == 8:
        letter = c"b"
    elif byte == 9:
        letter = c"t"
    elif byte == 10:
        letter = c"n"
    elif byte == 12:
        letter = c"f"
    elif byte == 13:
        letter = c"r"
    out[0] = c"\\"
    if letter:
        out[1] = letter
        return out + 2
    out[1] = c"u"
    out[2] = out[3] = c"0"
    out[4] = c"0" + (byte >> 4)
    out[5] = HEX_DIGITS[byte & 15]
    return out + 6


cdef inline uint8_t* put_escaped(uint8_t* out, const uint8_t* at, uint64_t size) noexcept nogil:
    cdef uint64_t i
    cdef uint8_t byte
    for i in range(size):
        byte = at[i]
        if byte < 0x20 or byte == c'"' or byte == c"\\":
            out = put_escape(out, byte)
        else:
            out[0] = byte
            out += 1
    return out


cdef inline uint8_t* put_ts(uint8_t* out, Projector* work, uint64_t ts) noexcept nogil:
    if ts != work.ts or work.ts_size == 0:
        work.ts = ts
        work.ts_size = put_u64(work.ts_digits, ts) - work.ts_digits
    memcpy(out, work.ts_digits, 20)
    return out + work.ts_size


cdef inline uint8_t* put_record(
    uint8_t* out, Projector* work, const Frame* frame, uint64_t meta_at
) noexcept nogil:
    """Write one record; the caller made room for `RECORD_JSON_OVERHEAD` and its parts."""
    out = put_literal(out, b'{"$seq":')
    out = put_u64(out, frame.seq)
    out = put_literal(out, b',"$ts":')
    out = put_ts(out, work, frame.ts)
    if frame.flags & FLAG_NODE:
        out = put_literal(out, b',"$node":"')
        out = put_escaped(out, frame.node, frame.node_len)
        out = put_literal(out, b'"')
    if work.include_tags and frame.flags & FLAG_TAG:
        out = put_literal(out, b',"$tag":"')
        out = put_escaped(out, frame.tag, frame.tag_len)
        out = put_literal(out, b'"')
    if frame.flags & FLAG_META:
        if work.include_meta:
            out = put_literal(out, b',"meta":')
            out = put(out, frame.data + meta_at, frame.data_len - meta_at)
        if work.include_data:
            out = put_literal(out, b',"data":')
            out = put(out, frame.data + SIZE_BYTES, meta_at - SIZE_BYTES)
    elif work.include_data:
        out = put_literal(out, b',"data":')
        out = put(out, frame.data, frame.data_len)
    return put_literal(out, b"}")


cdef inline int read_entry(
    Projector* work, const Entry* entry, Frame* frame, uint64_t* meta_at
) noexcept nogil:
    work.bad_offset = entry.offset
    if not frame_of_entry(
        work.buffer, work.buffer_bytes, work.base, entry, work.layout, frame
    ) or frame.seq != work.first_seq + work.at:
        return PROJECT_BAD_FRAME
    meta_at[0] = 0
    if frame.flags & FLAG_META:
        if frame.data_len < SIZE_BYTES:
            return PROJECT_BAD_PAYLOAD
        meta_at[0] = <uint64_t> load_u32(frame.data) + SIZE_BYTES
        if meta_at[0] > frame.data_len:
            return PROJECT_BAD_PAYLOAD
    if work.verify and not is_intact(frame):
        return PROJECT_BAD_CHECKSUM
    return PROJECTED


cdef int project(Projector* work) noexcept nogil:
    """Go on until done or faulty; PROJECT_GROW asks for room and is called again."""
    cdef Entry entry
    cdef Frame frame
    cdef uint64_t meta_at
    cdef uint8_t* out
    cdef uint8_t* behind
    cdef int outcome
    while work.at < work.stop and work.count < work.limit:
        entry = load_entry(work.idx, work.at)
        if entry.flags & FLAG_DELETED:
            work.at += 1
            continue
        outcome = read_entry(work, &entry, &frame, &meta_at)
        if outcome != PROJECTED:
            return outcome
        if work.nodes_count and frame.flags & FLAG_NODE and is_skipped_node(work, &frame):
            work.at += 1
            continue
        if work.matcher.operator != MATCH_NONE and not tag_matches(&work.matcher, &frame):
            work.at += 1
            continue
        work.wanted = (
            <uint64_t> RECORD_JSON_OVERHEAD
            + 6 * (<uint64_t> frame.node_len + frame.tag_len)
            + frame.data_len
        )
        if work.wanted > work.size - work.used:
            return PROJECT_GROW
        out = work.out + work.used
        if work.count:
            out[0] = c","
            out += 1
        behind = put_record(out, work, &frame, meta_at)
        if work.count and behind - work.out > work.budget:
            return PROJECTED
        work.used = behind - work.out
        work.count += 1
        work.at += 1
    return PROJECTED


cdef uint64_t guess_json_bytes(const Projector* work) noexcept nogil:
    """Room to begin with: what the entries span, no more than the budget; a wrong guess grows."""
    cdef Py_ssize_t entries = min(work.stop - work.at, work.limit)
    cdef Entry first
    cdef Entry last
    cdef uint64_t guess
    if entries <= 0:
        return 0
    first = load_entry(work.idx, work.at)
    last = load_entry(work.idx, work.at + entries - 1)
    guess = <uint64_t> last.offset + last.size - min_u64(first.offset, last.offset)
    guess = min_u64(guess, max(work.budget, 0)) + <uint64_t> entries * 32
    return min_u64(guess, 1 << 24) + 1024


cdef object project_all(Projector* work, bint large):
    """Run the loop, growing the bytes object it writes into whenever it asks."""
    cdef PyObject* json = NULL
    cdef int outcome = PROJECT_GROW
    work.size = guess_json_bytes(work)
    json = new_bytes(NULL, work.size)
    try:
        while True:
            work.out = <uint8_t*> PyBytes_AS_STRING(<object> json)
            if large:
                with nogil:
                    outcome = project(work)
            else:
                outcome = project(work)
            if outcome == PROJECT_GROW:
                work.size = max(work.size * 2, work.used + work.wanted)
                resize_bytes(&json, work.size)
            elif outcome == PROJECTED:
                resize_bytes(&json, work.used)
                return Projection(<object> json, work.count, work.at)
            else:
                raise_bad_record(outcome, work)
    finally:
        Py_XDECREF(json)


cdef int raise_bad_record(int outcome, const Projector* work) except -1:
    cdef uint64_t seq = work.first_seq + work.at
    cdef uint32_t offset = work.bad_offset
    if outcome == PROJECT_BAD_FRAME:
        raise CorruptData(f"record {seq} is not at byte {offset}, where its index says it is")
    if outcome == PROJECT_BAD_PAYLOAD:
        raise CorruptData(f"record {seq} at byte {offset} has a payload that does not add up")
    raise CorruptData(f"record {seq} at byte {offset} does not match its checksum")


cdef int open_matcher(object match, Matcher* matcher) except -1:
    """Point into the needle; the caller keeps `match` alive."""
    cdef bytes needle
    matcher.operator = MATCH_NONE
    if match is None:
        return 0
    operator, needle = match
    if operator != MATCH_EQ and operator != MATCH_PREFIX:
        raise ValueError(f"{operator} is no match operator")
    matcher.operator = operator
    matcher.needle.at = <const uint8_t*> PyBytes_AS_STRING(needle)
    matcher.needle.size = len(needle)
    return 0


cdef int open_nodes(tuple skip_nodes, Projector* work) except -1:
    """Point into the nodes; the caller keeps the tuple alive."""
    cdef Py_ssize_t i
    cdef bytes node
    work.nodes_count = len(skip_nodes)
    if work.nodes_count > LOCAL_NODES:
        work.nodes = <Needle*> malloc(work.nodes_count * sizeof(Needle))
        if work.nodes == NULL:
            raise MemoryError
    for i in range(work.nodes_count):
        node = skip_nodes[i]
        work.nodes[i].at = <const uint8_t*> PyBytes_AS_STRING(node)
        work.nodes[i].size = len(node)
    return 0


def project_records(
    buffer,
    idx,
    *,
    Py_ssize_t base,
    int layout,
    uint64_t first_seq,
    Py_ssize_t start,
    Py_ssize_t stop,
    Py_ssize_t limit,
    Py_ssize_t budget,
    tuple skip_nodes not None,
    match,
    bint include_meta,
    bint include_tags,
    bint include_data,
    bint verify,
):
    cdef Py_buffer view
    cdef Py_buffer idx_view
    cdef Projector work
    work.base = base
    work.layout = layout
    work.first_seq = first_seq
    work.at = start
    work.stop = stop
    work.limit = limit
    work.budget = budget
    work.include_meta = include_meta
    work.include_tags = include_tags
    work.include_data = include_data
    work.verify = verify
    work.count = work.used = work.ts = work.ts_size = 0
    work.nodes = work.local_nodes
    open_matcher(match, &work.matcher)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(idx, &idx_view, PyBUF_SIMPLE)
        try:
            check_range(start, stop, idx_view.len // IDX_ENTRY)
            open_nodes(skip_nodes, &work)
            work.buffer = <const uint8_t*> view.buf
            work.buffer_bytes = view.len
            work.idx = <const uint8_t*> idx_view.buf
            return project_all(&work, stop - start > GIL_ENTRIES or budget > 16 * GIL_BYTES)
        finally:
            if work.nodes != work.local_nodes:
                free(work.nodes)
            PyBuffer_Release(&idx_view)
    finally:
        PyBuffer_Release(&view)
