# The same bytes to many sockets, or to each its own.

cdef extern from *:
    """
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    #define SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)
    """
    int SEND_FLAGS

cdef enum:
    # So many take longer than a thread should keep the GIL.
    GIL_SENDS = 16


cdef void send_same(
    const int* descriptors, Py_ssize_t count, const void* data, size_t size, Py_ssize_t* sent
) noexcept nogil:
    cdef Py_ssize_t i
    cdef ssize_t done
    for i in range(count):
        # As write(2) does to a socket, but past what the file system would do for a file.
        done = send_to(descriptors[i], data, size, SEND_FLAGS)
        sent[i] = done if done > 0 else 0


cdef list send_viewed(Py_buffer* descriptors, Py_buffer* data):
    cdef Py_ssize_t i
    cdef Py_ssize_t count = descriptors.len // <Py_ssize_t> sizeof(int)
    cdef Py_ssize_t* sent = <Py_ssize_t*> malloc(count * sizeof(Py_ssize_t) + 1)
    if sent == NULL:
        raise MemoryError
    try:
        if count < GIL_SENDS:
            send_same(<const int*> descriptors.buf, count, data.buf, data.len, sent)
        else:
            with nogil:
                send_same(<const int*> descriptors.buf, count, data.buf, data.len, sent)
        return [(i, sent[i]) for i in range(count) if sent[i] < data.len]
    finally:
        free(sent)


def send_all(descriptors, data):
    cdef Py_buffer wanted, view
    if getattr(descriptors, "typecode", "") != "i":
        raise TypeError("descriptors are an array of type i")
    PyObject_GetBuffer(descriptors, &wanted, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return send_viewed(&wanted, &view)
        finally:
            PyBuffer_Release(&view)
    finally:
        PyBuffer_Release(&wanted)


cdef struct Packet:
    int descriptor
    const char* data
    Py_ssize_t size
    Py_ssize_t sent


cdef void send_packets(Packet* packets, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    cdef ssize_t done
    for i in range(count):
        done = send_to(packets[i].descriptor, packets[i].data, packets[i].size, SEND_FLAGS)
        packets[i].sent = done if done > 0 else 0


cdef int pack(Packet* packet, descriptor, data) except -1:
    packet.descriptor = PyNumber_Index(descriptor)
    if not isinstance(data, bytes):
        raise TypeError("what is sent are bytes")
    packet.data = PyBytes_AS_STRING(data)
    packet.size = PyBytes_GET_SIZE(data)
    return 0


def send_each(packets):
    cdef tuple kept = tuple(packets)  # of tuples: whoever changes a list meanwhile frees nothing
    cdef Py_ssize_t i, count = len(kept)
    cdef Packet* given = <Packet*> malloc(count * sizeof(Packet) + 1)
    if given == NULL:
        raise MemoryError
    try:
        for i in range(count):
            descriptor, data = <tuple?> kept[i]
            pack(given + i, descriptor, data)
        if count < GIL_SENDS:
            send_packets(given, count)
        else:
            with nogil:
                send_packets(given, count)
        return [(i, given[i].sent) for i in range(count) if given[i].sent < given[i].size]
    finally:
        free(given)


cdef enum:
    # The status line, two headers and the size of an answer.
    ANSWER_HEAD_BYTES = 128


cdef uint8_t* put_answer_head(uint8_t* body, Py_ssize_t size, bytes head_end) noexcept:
    """Write a head that ends where the body begins; return where it begins."""
    cdef uint8_t local[ANSWER_HEAD_BYTES]
    cdef uint8_t* out = local
    out = put_literal(out, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ")
    out = put_u64(out, size)
    out = put_literal(out, b"\r\n")
    body -= PyBytes_GET_SIZE(head_end)
    memcpy(body, PyBytes_AS_STRING(head_end), PyBytes_GET_SIZE(head_end))
    body -= out - local
    memcpy(body, local, out - local)
    return body


cdef uint64_t answers_room(list writers, uint64_t first_seq, uint64_t fixed) except 0:
    """Return how much room the answers take, and check that they can be given."""
    cdef uint64_t room = 1
    cdef Py_ssize_t count
    cdef bint is_over = False
    for count, _ in writers:
        if count < 1:
            raise ValueError("a write has at least one record")
        if count > U32_MAX:
            raise MemoryError
        if is_over or first_seq > U64_MAX - <uint64_t> (count - 1):
            raise OverflowError("a seq is a u64")
        first_seq += <uint64_t> count
        is_over = first_seq == 0
        room += fixed + <uint64_t> count * SEQ_BYTES_MAX
    return room


cdef list send_formatted(
    list writers, uint64_t first_seq, bytes start, bytes middle, bytes end, bytes head_end,
    uint8_t* out, Packet* packets,
):
    cdef Py_ssize_t i, writes, count = len(writers)
    cdef uint8_t* body
    for i in range(count):
        writes, (who, _) = writers[i]
        body = out + ANSWER_HEAD_BYTES + PyBytes_GET_SIZE(head_end)
        out = put_answer(body, first_seq, writes, start, middle, end)
        packets[i].descriptor = PyNumber_Index(who.descriptor)
        packets[i].data = <const char*> put_answer_head(body, out - body, head_end)
        packets[i].size = <const char*> out - packets[i].data
        first_seq += <uint64_t> writes
    if count < GIL_SENDS:
        send_packets(packets, count)
    else:
        with nogil:
            send_packets(packets, count)
    return [
        (writers[i][1][0], packets[i].data[packets[i].sent : packets[i].size])
        for i in range(count) if packets[i].sent < packets[i].size
    ]


def send_answers(
    list writers not None, *, uint64_t first_seq, bytes start not None, bytes middle not None,
    bytes end not None, bytes head_end not None,
):
    cdef list kept = list(writers)
    cdef uint64_t room = answers_room(
        kept, first_seq,
        ANSWER_HEAD_BYTES + ANSWER_OVERHEAD + len(start) + len(middle) + len(end) + len(head_end),
    )
    cdef uint8_t* out = <uint8_t*> malloc(room)
    cdef Packet* packets = <Packet*> malloc(len(kept) * sizeof(Packet) + 1)
    try:
        if out == NULL or packets == NULL:
            raise MemoryError
        return send_formatted(kept, first_seq, start, middle, end, head_end, out, packets)
    finally:
        free(out)
        free(packets)
