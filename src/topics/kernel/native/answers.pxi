# What the writers of one turn are told: JSON that differs only in seqs and counts.

cdef enum:
    ANSWER_LOCAL_BYTES = 1024
    # `,"last_seq":` `,"seqs":[` `]`, three u64; then a u64 and a comma for each seq.
    ANSWER_OVERHEAD = 96
    SEQ_BYTES_MAX = 21


cdef uint8_t* put_answer(
    uint8_t* out, uint64_t first_seq, uint64_t count, bytes start, bytes middle, bytes end
) noexcept:
    cdef uint64_t i
    out = put(out, <const uint8_t*> PyBytes_AS_STRING(start), PyBytes_GET_SIZE(start))
    out = put_u64(out, first_seq)
    out = put_literal(out, b',"last_seq":')
    out = put_u64(out, first_seq + (count - 1))
    out = put_literal(out, b',"seqs":[')
    for i in range(count):
        if i:
            out[0] = c","
            out += 1
        out = put_u64(out, first_seq + i)
    out[0] = c"]"
    out = put(out + 1, <const uint8_t*> PyBytes_AS_STRING(middle), PyBytes_GET_SIZE(middle))
    out = put_u64(out, count)
    return put(out, <const uint8_t*> PyBytes_AS_STRING(end), PyBytes_GET_SIZE(end))


cdef bytes format_answer(
    uint64_t first_seq, uint64_t count, bytes start, bytes middle, bytes end
):
    cdef uint8_t local[ANSWER_LOCAL_BYTES]
    cdef uint8_t* out = local
    cdef uint64_t room = (
        ANSWER_OVERHEAD + len(start) + len(middle) + len(end) + count * SEQ_BYTES_MAX
    )
    if count > U32_MAX:
        raise MemoryError
    if room > ANSWER_LOCAL_BYTES:
        out = <uint8_t*> malloc(room)
        if out == NULL:
            raise MemoryError
    try:
        return slice_bytes(out, put_answer(out, first_seq, count, start, middle, end))
    finally:
        if out != local:
            free(out)


def format_answers(
    writers, *, uint64_t first_seq, bytes start not None, bytes middle not None,
    bytes end not None,
):
    cdef list answers = []
    cdef Py_ssize_t count
    cdef bint is_over = False
    for count, _ in writers:
        if count < 1:
            raise ValueError("a write has at least one record")
        if is_over or first_seq > U64_MAX - <uint64_t> (count - 1):
            raise OverflowError("a seq is a u64")
        answers.append(format_answer(first_seq, count, start, middle, end))
        first_seq += <uint64_t> count
        is_over = first_seq == 0
    return answers
