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
    ssize_t send(int descriptor, const void* data, size_t size, int flags) noexcept nogil

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
        done = send(descriptors[i], data, size, SEND_FLAGS)
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
        done = send(packets[i].descriptor, packets[i].data, packets[i].size, SEND_FLAGS)
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
