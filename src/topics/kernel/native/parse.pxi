# From a request body to unstamped WAL frames, in two passes: the first checks the grammar and
# notes where each field lies, the second copies into buffers of the exact size.

cdef enum:
    META_KEYS_MAX = 64
    KEY_BYTES_MAX = 256
    KEY_MEMBER_BYTES = 8
    # What fits here is parsed without malloc; most requests do.
    LOCAL_RECORDS = 8
    MEMBERS = 10
    # The longest name has 20 letters, an escape 6 bytes.
    NAME_BYTES_MAX = 120

    FIELD_UNKNOWN = 0
    FIELD_DATA = 1
    FIELD_TAG = 2
    FIELD_NODE = 3
    FIELD_META = 4
    FIELD_RECORDS = 5
    FIELD_KEY = 6
    # From here on those of refusals.ENVELOPE_FIELDS, in their order.
    FIELD_CREATE = 7
    FIELD_CONFIG = 8
    FIELD_PRODUCER_ID = 9
    FIELD_PRODUCER_SEQ = 10
    FIELD_IDEMPOTENCY_KEY = 11
    FIELD_DISABLE_BACKPRESSURE = 12
    FIELD_QUEUE = 13
    FIELD_OP = 14
    FIELD_TOPIC = 15
    FIELD_REQUEST_ID = 16

    TEXT_ABSENT = 0
    TEXT_PLAIN = 1
    TEXT_ESCAPED = 2
    TEXT_OWNED = 3
    TEXT_NO_STRING = 4

    META_ABSENT = 0
    META_OBJECT = 1
    META_NO_OBJECT = 2

    RECORDS_MISSING = -1
    RECORDS_NO_ARRAY = -2

cdef int NOT_AN_OBJECT = _refusals.NOT_AN_OBJECT
cdef int NO_RECORDS = _refusals.NO_RECORDS
cdef int RECORDS_NOT_AN_ARRAY = _refusals.RECORDS_NOT_AN_ARRAY
cdef int RECORDS_EMPTY = _refusals.RECORDS_EMPTY
cdef int TOO_MANY_RECORDS = _refusals.TOO_MANY_RECORDS
cdef int DEFAULT_NODE_NOT_A_STRING = _refusals.DEFAULT_NODE_NOT_A_STRING
cdef int RECORD_NOT_AN_OBJECT = _refusals.RECORD_NOT_AN_OBJECT
cdef int NO_DATA = _refusals.NO_DATA
cdef int TAG_NOT_A_STRING = _refusals.TAG_NOT_A_STRING
cdef int KEY_NOT_A_STRING = _refusals.KEY_NOT_A_STRING
cdef int NODE_NOT_A_STRING = _refusals.NODE_NOT_A_STRING
cdef int META_NOT_AN_OBJECT = _refusals.META_NOT_AN_OBJECT
cdef int META_TOO_MANY_KEYS = _refusals.META_TOO_MANY_KEYS
cdef int META_TOO_LONG = _refusals.META_TOO_LONG
cdef int META_OF_SERVER = _refusals.META_OF_SERVER
cdef int RECORD_TOO_LARGE = _refusals.RECORD_TOO_LARGE
cdef int BATCH_TOO_WIDE = _refusals.BATCH_TOO_WIDE
cdef int UNKNOWN_FIELD = _refusals.UNKNOWN_FIELD
cdef int UNKNOWN_RECORD_FIELD = _refusals.UNKNOWN_RECORD_FIELD
cdef tuple ENVELOPE_FIELDS = _refusals.ENVELOPE_FIELDS
cdef int OUT_OF_MEMORY = -1

cdef struct Text:
    const uint8_t* at
    uint64_t size
    int kind

cdef struct Record:
    const uint8_t* data
    uint64_t data_len
    const uint8_t* meta
    uint64_t meta_len
    Text tag
    Text node
    # Only for partitions: the key, and how it was spelled if it has to stand in the meta.
    Text key
    const uint8_t* key_raw
    uint64_t key_raw_len
    bint key_in_meta
    uint32_t meta_keys
    uint8_t meta_kind
    bint is_object

cdef struct Member:
    const uint8_t* value  # NULL: it was not sent
    const uint8_t* value_end

cdef struct Limits:
    Py_ssize_t records
    uint64_t record_bytes
    uint64_t meta_bytes
    uint64_t tag_bytes
    uint64_t node_bytes
    bint keyed
    bint dead_letters

cdef struct Body:
    const uint8_t* start
    const uint8_t* end
    Fault fault
    Py_ssize_t count
    Text node
    Record* records
    Py_ssize_t records_size
    bint has_members
    # What a semantic check found, and how large the frames will be.
    Py_ssize_t where
    uint64_t limit
    uint64_t frames_bytes
    Limits limits
    Record local_records[LOCAL_RECORDS]
    # By field; the last of two that have one name counts. Not set before one was sent.
    Member members[MEMBERS]


cdef void open_body(Body* body, const uint8_t* start, Py_ssize_t size) noexcept nogil:
    body.start = start
    body.end = start + size
    body.fault.reason = 0
    body.count = RECORDS_MISSING
    body.node.kind = TEXT_ABSENT
    body.records = body.local_records
    body.records_size = LOCAL_RECORDS
    body.has_members = False
    body.where = 0
    body.limit = 0
    body.frames_bytes = 0


cdef void close_text(Text* text) noexcept nogil:
    if text.kind == TEXT_OWNED:
        free(<void*> text.at)
        text.kind = TEXT_ABSENT


cdef Py_ssize_t kept_records(const Body* body) noexcept nogil:
    """How many records are noted: not one more than allowed."""
    if body.count < 0:
        return 0
    return body.count if body.count < body.limits.records else max(body.limits.records, 0)


cdef void close_body(Body* body) noexcept nogil:
    cdef Py_ssize_t i
    close_text(&body.node)
    for i in range(kept_records(body)):
        close_text(&body.records[i].tag)
        close_text(&body.records[i].node)
        close_text(&body.records[i].key)
    if body.records != body.local_records:
        free(body.records)


cdef void* grow(
    void* items, void* local_items, Py_ssize_t* size, size_t item_bytes
) noexcept nogil:
    """Double an array that may still be the local one; NULL without memory, the old one stays."""
    cdef Py_ssize_t new_size = size[0] * 2
    cdef void* grown
    if items != local_items:
        grown = realloc(items, new_size * item_bytes)
    else:
        new_size = size[0] * 8
        grown = malloc(new_size * item_bytes)
        if grown != NULL:
            memcpy(grown, items, size[0] * item_bytes)
    if grown != NULL:
        size[0] = new_size
    return grown


cdef Record* next_record(Body* body) noexcept nogil:
    """Room for record number `count`; NULL without memory."""
    cdef void* grown
    if body.count == body.records_size:
        grown = grow(body.records, body.local_records, &body.records_size, sizeof(Record))
        if grown == NULL:
            return NULL
        body.records = <Record*> grown
    return body.records + body.count


cdef inline Member* member_of(Body* body, int field) noexcept nogil:
    if not body.has_members:
        body.has_members = True
        memset(body.members, 0, sizeof(body.members))
    return body.members + (field - FIELD_CREATE)


cdef int name_member(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    if size == 6:
        if memcmp(at, b"create", 6) == 0:
            return FIELD_CREATE
        if memcmp(at, b"config", 6) == 0:
            return FIELD_CONFIG
    elif size == 11:
        if memcmp(at, b"producer_id", 11) == 0:
            return FIELD_PRODUCER_ID
    elif size == 12:
        if memcmp(at, b"producer_seq", 12) == 0:
            return FIELD_PRODUCER_SEQ
    elif size == 15:
        if memcmp(at, b"idempotency_key", 15) == 0:
            return FIELD_IDEMPOTENCY_KEY
    elif size == 20:
        if memcmp(at, b"disable_backpressure", 20) == 0:
            return FIELD_DISABLE_BACKPRESSURE
    elif size == 2:
        if memcmp(at, b"op", 2) == 0:
            return FIELD_OP
    elif size == 5:
        if memcmp(at, b"topic", 5) == 0:
            return FIELD_TOPIC
        if memcmp(at, b"queue", 5) == 0:
            return FIELD_QUEUE
    elif size == 10:
        if memcmp(at, b"request_id", 10) == 0:
            return FIELD_REQUEST_ID
    return FIELD_UNKNOWN


cdef inline int name_field(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    if size == 4:
        if memcmp(at, b"data", 4) == 0:
            return FIELD_DATA
        if memcmp(at, b"node", 4) == 0:
            return FIELD_NODE
        if memcmp(at, b"meta", 4) == 0:
            return FIELD_META
    elif size == 3:
        if memcmp(at, b"tag", 3) == 0:
            return FIELD_TAG
        if memcmp(at, b"key", 3) == 0:
            return FIELD_KEY
    elif size == 7:
        if memcmp(at, b"records", 7) == 0:
            return FIELD_RECORDS
    else:
        return name_member(at, size)
    return FIELD_UNKNOWN


cdef int name_escaped_field(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Keys may be written with escapes."""
    cdef uint8_t name[NAME_BYTES_MAX]
    cdef Py_ssize_t decoded
    if size > NAME_BYTES_MAX:
        return FIELD_UNKNOWN
    decoded = unescape(at, at + size, name)
    return FIELD_UNKNOWN if decoded < 0 else name_field(name, decoded)


cdef inline const uint8_t* read_field_name(
    const uint8_t* at, const uint8_t* end, int* field, Fault* fault
) noexcept nogil:
    cdef bint escaped
    cdef const uint8_t* key_end
    cdef const uint8_t* behind = skip_key(at, end, &key_end, &escaped, fault)
    if behind == NULL:
        return NULL
    if escaped:
        field[0] = name_escaped_field(at + 1, key_end - at - 2)
    else:
        field[0] = name_field(at + 1, key_end - at - 2)
    return behind


cdef inline const uint8_t* read_text(
    const uint8_t* at, const uint8_t* end, int depth, Text* text, Fault* fault
) noexcept nogil:
    cdef bint escaped
    cdef const uint8_t* behind
    if at < end and at[0] == c'"':
        behind = skip_string(at, end, &escaped)
        if behind == NULL:
            return fail(fault, NOT_A_VALUE, at)
        text.kind = TEXT_ESCAPED if escaped else TEXT_PLAIN
        text.at = at + 1
        text.size = behind - at - 2
        return behind
    behind = skip_value(at, end, depth, fault)
    if behind != NULL:
        text.kind = TEXT_ABSENT if at[0] == c"n" else TEXT_NO_STRING
    return behind


cdef inline const uint8_t* read_meta(
    const uint8_t* at, const uint8_t* end, Record* record, Fault* fault
) noexcept nogil:
    cdef uint64_t keys
    cdef const uint8_t* behind
    if at < end and at[0] == c"{":
        behind = skip_members(at, end, 4, &keys, fault)
        if behind != NULL:
            record.meta_kind = META_OBJECT
            record.meta_keys = <uint32_t> min_u64(keys, META_KEYS_MAX + 1)
            record.meta = at
            record.meta_len = behind - at
        return behind
    behind = skip_value(at, end, 3, fault)
    if behind != NULL:
        record.meta_kind = META_ABSENT if at[0] == c"n" else META_NO_OBJECT
    return behind


cdef inline const uint8_t* read_key(
    const uint8_t* at, const uint8_t* end, Record* record, Fault* fault
) noexcept nogil:
    cdef const uint8_t* behind = read_text(at, end, 3, &record.key, fault)
    record.key_raw = at
    if behind != NULL:
        record.key_raw_len = behind - at
    return behind


cdef const uint8_t* read_record(
    const uint8_t* at, const uint8_t* end, bint keyed, Record* record, Fault* fault
) noexcept nogil:
    """Note the fields of one element of `records`, whatever it is."""
    cdef const uint8_t* value
    cdef int field
    cdef bint closed = False
    record.data = NULL
    record.tag.kind = record.node.kind = record.key.kind = TEXT_ABSENT
    record.key_in_meta = False
    record.meta_kind = META_ABSENT
    record.is_object = at < end and at[0] == c"{"
    if not record.is_object:
        return skip_value(at, end, 2, fault)
    at = skip_ws(at + 1, end)
    if at < end and at[0] == c"}":
        return at + 1
    while not closed:
        value = read_field_name(at, end, &field, fault)
        if value == NULL:
            return NULL
        if field == FIELD_DATA:
            at = skip_value(value, end, 3, fault)
            if at != NULL:
                record.data = value
                record.data_len = at - value
        elif field == FIELD_TAG:
            at = read_text(value, end, 3, &record.tag, fault)
        elif field == FIELD_NODE:
            at = read_text(value, end, 3, &record.node, fault)
        elif field == FIELD_META:
            at = read_meta(value, end, record, fault)
        elif field == FIELD_KEY:
            at = read_key(value, end, record, fault) if keyed else skip_value(value, end, 3, fault)
        else:
            return fail(fault, UNKNOWN_RECORD_FIELD, at)
        if at == NULL:
            return NULL
        at = skip_separator(at, end, c"}", NOT_A_MEMBER_END, &closed, fault)
        if at == NULL:
            return NULL
    return at


cdef const uint8_t* read_records(const uint8_t* at, Body* body) noexcept nogil:
    cdef const uint8_t* end = body.end
    cdef Record surplus
    cdef Record* record
    cdef bint closed = False
    if at == end or at[0] != c"[":
        body.count = RECORDS_NO_ARRAY
        return skip_value(at, end, 1, &body.fault)
    body.count = 0
    at = skip_ws(at + 1, end)
    if at < end and at[0] == c"]":
        return at + 1
    while not closed:
        record = &surplus
        if body.count < body.limits.records:
            record = next_record(body)
            if record == NULL:
                return fail(&body.fault, OUT_OF_MEMORY, at)
        at = read_record(at, end, body.limits.keyed, record, &body.fault)
        if at == NULL:
            return NULL
        body.count += 1
        at = skip_separator(at, end, c"]", NOT_AN_ELEMENT_END, &closed, &body.fault)
        if at == NULL:
            return NULL
    return at


cdef const uint8_t* read_top(const uint8_t* at, Body* body) noexcept nogil:
    """Read the members of the top-level object; the cursor stands on its brace."""
    cdef const uint8_t* end = body.end
    cdef const uint8_t* value
    cdef Member* member
    cdef int field
    cdef bint closed = False
    at = skip_ws(at + 1, end)
    if at < end and at[0] == c"}":
        return at + 1
    while not closed:
        value = read_field_name(at, end, &field, &body.fault)
        if value == NULL:
            return NULL
        if field == FIELD_RECORDS:
            at = read_records(value, body)
        elif field == FIELD_NODE:
            at = read_text(value, end, 1, &body.node, &body.fault)
        elif field >= FIELD_CREATE:
            member = member_of(body, field)
            member.value = value
            at = skip_value(value, end, 1, &body.fault)
            member.value_end = at
        else:
            return fail(&body.fault, UNKNOWN_FIELD, at)
        if at == NULL:
            return NULL
        at = skip_separator(at, end, c"}", NOT_A_MEMBER_END, &closed, &body.fault)
        if at == NULL:
            return NULL
    return at


cdef void read_body(Body* body) noexcept nogil:
    """The first pass: grammar."""
    cdef const uint8_t* at = skip_ws(body.start, body.end)
    cdef bint is_object = at < body.end and at[0] == c"{"
    at = read_top(at, body) if is_object else skip_value(at, body.end, 0, &body.fault)
    if at == NULL:
        return
    at = skip_ws(at, body.end)
    if at != body.end:
        fail(&body.fault, TRAILING, at)
    elif not is_object:
        fail(&body.fault, NOT_AN_OBJECT, body.start)


cdef int check_text(Text* text, uint64_t size_max, int not_a_string, Body* body) noexcept nogil:
    """0, or the reason; the two reasons behind `not_a_string` are the other faults of a text."""
    cdef uint8_t* decoded
    cdef Py_ssize_t size
    if text.kind == TEXT_ABSENT:
        return 0
    if text.kind == TEXT_NO_STRING:
        return not_a_string
    if text.kind == TEXT_ESCAPED:
        decoded = <uint8_t*> malloc(text.size)
        if decoded == NULL:
            return OUT_OF_MEMORY
        size = unescape(text.at, text.at + text.size, decoded)
        text.at = decoded
        text.kind = TEXT_OWNED
        if size < 0:
            return not_a_string + 1
        text.size = size
    if text.size > size_max:
        body.limit = size_max
        return not_a_string + 2
    return 0


cdef int check_meta(const Record* record, Body* body) noexcept nogil:
    if record.meta_kind == META_ABSENT:
        return 0
    if record.meta_kind == META_NO_OBJECT:
        return META_NOT_AN_OBJECT
    if record.meta_keys > META_KEYS_MAX:
        body.limit = META_KEYS_MAX
        return META_TOO_MANY_KEYS
    if record.meta_len > body.limits.meta_bytes:
        body.limit = body.limits.meta_bytes
        return META_TOO_LONG
    if not body.limits.dead_letters and names_dead_letter(record.meta, record.meta_len):
        return META_OF_SERVER
    return 0


cdef inline uint64_t key_meta_len(const Record* record) noexcept nogil:
    """How long the meta gets with `{"$key":…` in front: the brace of a meta with keys is its."""
    cdef uint64_t rest = 1
    if record.meta_kind == META_OBJECT and record.meta_keys:
        rest = record.meta_len
    return KEY_MEMBER_BYTES + record.key_raw_len + rest


cdef inline uint64_t payload_len(const Record* record) noexcept nogil:
    if record.key_in_meta:
        return SIZE_BYTES + record.data_len + key_meta_len(record)
    if record.meta_kind == META_OBJECT:
        return SIZE_BYTES + record.data_len + record.meta_len
    return record.data_len


cdef inline const Text* node_of(const Record* record, const Body* body) noexcept nogil:
    return &body.node if record.node.kind == TEXT_ABSENT else &record.node


cdef inline const Text* tag_of(const Record* record) noexcept nogil:
    return &record.key if record.tag.kind == TEXT_ABSENT else &record.tag


cdef inline uint64_t text_len(const Text* text) noexcept nogil:
    return 0 if text.kind == TEXT_ABSENT else text.size


cdef inline uint64_t frame_bytes(const Record* record, const Body* body) noexcept nogil:
    return (
        FRAME_OVERHEAD
        + text_len(node_of(record, body))
        + text_len(tag_of(record))
        + payload_len(record)
    )


cdef inline bint same_text(const Text* a, const Text* b) noexcept nogil:
    return a.size == b.size and memcmp(a.at, b.at, a.size) == 0


cdef int settle_key(Record* record, Body* body) noexcept nogil:
    """Check the key and decide where it is kept: as the tag, or beside another tag in the meta."""
    cdef int reason = check_text(&record.key, KEY_BYTES_MAX, KEY_NOT_A_STRING, body)
    if reason or record.key.kind == TEXT_ABSENT:
        return reason
    record.key_in_meta = (
        record.tag.kind != TEXT_ABSENT and not same_text(&record.key, &record.tag)
    )
    return 0


cdef int check_record(Record* record, Body* body) noexcept nogil:
    cdef int reason
    cdef uint64_t size
    if not record.is_object:
        return RECORD_NOT_AN_OBJECT
    if record.data == NULL:
        return NO_DATA
    reason = check_text(&record.tag, body.limits.tag_bytes, TAG_NOT_A_STRING, body)
    if reason:
        return reason
    reason = settle_key(record, body)
    if reason:
        return reason
    reason = check_text(&record.node, body.limits.node_bytes, NODE_NOT_A_STRING, body)
    if reason:
        return reason
    reason = check_meta(record, body)
    if reason:
        return reason
    size = record.data_len
    if record.meta_kind == META_OBJECT:
        size += record.meta_len
    if size > body.limits.record_bytes:
        body.limit = body.limits.record_bytes
        return RECORD_TOO_LARGE
    body.frames_bytes += frame_bytes(record, body)
    if body.frames_bytes > U32_MAX:
        body.where = 0
        body.limit = U32_MAX
        return BATCH_TOO_WIDE
    return 0


cdef int check_body(Body* body) noexcept nogil:
    """Between the passes: everything but grammar, in the order of topics.kernel.refusals."""
    cdef int reason
    cdef Py_ssize_t i
    if body.count == RECORDS_MISSING:
        return NO_RECORDS
    if body.count == RECORDS_NO_ARRAY:
        return RECORDS_NOT_AN_ARRAY
    if body.count == 0:
        return RECORDS_EMPTY
    if body.count > body.limits.records:
        body.where = body.count
        body.limit = body.limits.records
        return TOO_MANY_RECORDS
    reason = check_text(&body.node, body.limits.node_bytes, DEFAULT_NODE_NOT_A_STRING, body)
    if reason:
        return reason
    for i in range(body.count):
        body.where = i
        reason = check_record(body.records + i, body)
        if reason:
            return reason
    return 0


cdef inline uint8_t* put(uint8_t* out, const uint8_t* at, uint64_t size) noexcept nogil:
    memcpy(out, at, size)
    return out + size


cdef uint8_t* encode_key_meta(uint8_t* out, const Record* record) noexcept nogil:
    """The payload of a record whose key stands in its meta; as long as `payload_len` says."""
    store_u32(out, <uint32_t> record.data_len)
    out = put(out + SIZE_BYTES, record.data, record.data_len)
    out = put(out, <const uint8_t*> b'{"$key":', KEY_MEMBER_BYTES)
    out = put(out, record.key_raw, record.key_raw_len)
    if record.meta_kind == META_OBJECT and record.meta_keys:
        out[0] = c","
        return put(out + 1, record.meta + 1, record.meta_len - 1)
    out[0] = c"}"
    return out + 1


cdef uint8_t* encode_frame(
    uint8_t* out, const Record* record, const Body* body, uint8_t flags, uint8_t* idx_flags
) noexcept nogil:
    cdef const Text* node = node_of(record, body)
    cdef const Text* tag = tag_of(record)
    cdef uint64_t size = payload_len(record)
    cdef uint64_t node_len = text_len(node)
    cdef uint64_t tag_len = text_len(tag)
    idx_flags[0] = (
        (FLAG_TAG if tag.kind != TEXT_ABSENT else 0)
        | (FLAG_NODE if node.kind != TEXT_ABSENT else 0)
        | (FLAG_META if record.meta_kind == META_OBJECT or record.key_in_meta else 0)
    )
    store_u32(out, <uint32_t> (FRAME_OVERHEAD - SIZE_BYTES + node_len + tag_len + size))
    out[4] = FRAME_APPEND
    out[5] = flags | idx_flags[0]
    store_u64(out + 6, 0)
    store_u64(out + 14, 0)
    store_u64(out + 22, 0)
    store_u16(out + 30, <uint16_t> node_len)
    store_u16(out + 32, <uint16_t> tag_len)
    store_u32(out + 34, <uint32_t> size)
    out += 38
    if node_len:
        out = put(out, node.at, node_len)
    if tag_len:
        out = put(out, tag.at, tag_len)
    if record.key_in_meta:
        out = encode_key_meta(out, record)
    elif record.meta_kind == META_OBJECT:
        store_u32(out, <uint32_t> record.data_len)
        out = put(out + SIZE_BYTES, record.data, record.data_len)
        out = put(out, record.meta, record.meta_len)
    else:
        out = put(out, record.data, record.data_len)
    store_u64(out, 0)
    return out + CHECKSUM_BYTES


cdef void encode_body(
    const Body* body, uint8_t* frames, uint64_t offset, uint8_t* idx
) noexcept nogil:
    """The second pass: copy. The frames take exactly `frames_bytes`, as `check_body` added up."""
    cdef uint8_t* out = frames + offset
    cdef uint8_t* behind
    cdef uint8_t idx_flags
    cdef uint8_t open_flag
    cdef Py_ssize_t i
    for i in range(body.count):
        open_flag = FLAG_BATCH_OPEN if i + 1 < body.count else 0
        behind = encode_frame(out, body.records + i, body, open_flag, &idx_flags)
        store_entry(idx, <uint32_t> (out - frames), <uint32_t> (behind - out), 0, idx_flags)
        idx += IDX_ENTRY
        out = behind


cdef inline uint64_t hash_record(const Record* record) noexcept nogil:
    """What says where a record belongs."""
    cdef const Text* key = &record.key if record.key.kind != TEXT_ABSENT else &record.tag
    return NO_HASH if key.kind == TEXT_ABSENT else fnv1a(key.at, key.size)


cdef bytes hash_records(const Body* body):
    cdef bytes hashes = PyBytes_FromStringAndSize(NULL, body.count * 8)
    cdef uint8_t* out = <uint8_t*> PyBytes_AS_STRING(hashes)
    cdef Py_ssize_t i
    for i in range(body.count):
        store_u64(out + i * 8, hash_record(body.records + i))
    return hashes


cdef object slice_bytes(const uint8_t* at, const uint8_t* end):
    return PyBytes_FromStringAndSize(<const char*> at, end - at)


cdef dict build_envelope(const Body* body):
    cdef dict envelope = {}
    cdef const Member* member
    cdef int i
    for i in range(MEMBERS):
        member = body.members + i
        if member.value != NULL:
            envelope[ENVELOPE_FIELDS[i]] = slice_bytes(member.value, member.value_end)
    return envelope


cdef int raise_fault(const Body* body) except -1:
    """Raise what stopped the first pass."""
    cdef bint escaped
    cdef const uint8_t* at = body.fault.at
    cdef int reason = body.fault.reason
    if reason == UNKNOWN_FIELD or reason == UNKNOWN_RECORD_FIELD:
        raise _field_refusal(
            slice_bytes(at, skip_string(at, body.end, &escaped)),
            body.count if reason == UNKNOWN_RECORD_FIELD else None,
        )
    return raise_refusal(reason, at - body.start, JSON_DEPTH_MAX if reason == TOO_DEEP else 0)


cdef int raise_refusal(int reason, Py_ssize_t where, uint64_t limit) except -1:
    if reason == OUT_OF_MEMORY:
        raise MemoryError
    raise _refusal(reason, where, limit)


cdef object build_batch(Body* body):
    cdef bint large = body.end - body.start >= GIL_BYTES
    cdef int reason
    cdef object frames
    cdef object idx
    cdef uint8_t* frames_at
    cdef uint8_t* idx_at
    if large:
        with nogil:
            read_body(body)
    else:
        read_body(body)
    if body.fault.reason:
        raise_fault(body)
    reason = check_body(body)
    if reason:
        raise_refusal(reason, body.where, body.limit)
    frames = PyByteArray_FromStringAndSize(NULL, body.frames_bytes)
    idx = PyByteArray_FromStringAndSize(NULL, body.count * IDX_ENTRY)
    frames_at = <uint8_t*> PyByteArray_AS_STRING(frames)
    idx_at = <uint8_t*> PyByteArray_AS_STRING(idx)
    if large:
        with nogil:
            encode_body(body, frames_at, 0, idx_at)
    else:
        encode_body(body, frames_at, 0, idx_at)
    return Batch(
        frames,
        idx,
        body.count,
        body.frames_bytes - <uint64_t> FRAME_OVERHEAD * body.count,
        build_envelope(body) if body.has_members else {},
        hash_records(body) if body.limits.keyed else b"",
    )


cdef void set_limits(
    Limits* limits,
    Py_ssize_t max_records,
    Py_ssize_t max_record_bytes,
    Py_ssize_t max_meta_bytes,
    Py_ssize_t max_tag_bytes,
    Py_ssize_t max_node_bytes,
    bint keyed,
    bint dead_letters,
) noexcept:
    limits.records = max_records
    limits.record_bytes = min_u64(max(max_record_bytes, 0), U32_MAX - SIZE_BYTES)
    limits.meta_bytes = max(max_meta_bytes, 0)
    limits.tag_bytes = min_u64(max(max_tag_bytes, 0), U16_MAX)
    limits.node_bytes = min_u64(max(max_node_bytes, 0), U16_MAX)
    limits.keyed = keyed
    limits.dead_letters = dead_letters


def parse_batch(
    body,
    *,
    Py_ssize_t max_records,
    Py_ssize_t max_record_bytes,
    Py_ssize_t max_meta_bytes,
    Py_ssize_t max_tag_bytes,
    Py_ssize_t max_node_bytes,
    bint keyed=False,
    bint dead_letters=False,
):
    cdef Py_buffer view
    cdef Body parsed
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    open_body(&parsed, <const uint8_t*> view.buf, view.len)
    set_limits(
        &parsed.limits, max_records, max_record_bytes, max_meta_bytes, max_tag_bytes,
        max_node_bytes, keyed, dead_letters,
    )
    try:
        return build_batch(&parsed)
    finally:
        close_body(&parsed)
        PyBuffer_Release(&view)
