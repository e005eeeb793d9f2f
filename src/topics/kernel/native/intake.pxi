# Whole small writes, read from many sockets with one call and gathered as they come.

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int EPOLLIN
    int EPOLLRDHUP
    uint32_t EPOLLET
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    int EPOLL_CTL_MOD
    int EPOLL_CTL_DEL
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_DONTWAIT

cdef extern from "<unistd.h>" nogil:
    int close_descriptor "close"(int descriptor)

cdef extern from "<errno.h>" nogil:
    int errno
    int EAGAIN

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef enum:
    # Who is not among these has his turn in the next call.
    INTAKE_EVENTS = 512
    # A head and a body of the largest size that is gathered.
    INTAKE_BYTES = 80 * 1024


cdef class Kind:
    """What the requests with one head have in common, for one call of `take`."""

    cdef bytes raw
    cdef object token
    cdef Gathering gathering
    cdef list writers
    cdef Py_ssize_t body_bytes
    cdef Py_ssize_t records_max


cdef Kind build_kind(bytes raw, tuple found):
    cdef Kind kind = Kind.__new__(Kind)
    kind.raw = raw
    token, kind.body_bytes, kind.records_max, gathering, writers = found
    kind.token = token
    kind.gathering = <Gathering?> gathering
    kind.writers = <list?> writers
    return kind


cdef class Intake:
    cdef int epoll
    cdef list members
    # What was noted of each member's last write: most repeat it.
    cdef list notes
    cdef bytearray active
    cdef bytearray buffer
    cdef dict kinds
    cdef Kind latest
    # The last read was long: others may have the GIL while the next one is made.
    cdef bint expects_large

    def __cinit__(self):
        self.epoll = -1
        self.members = []
        self.notes = []
        self.active = bytearray()
        self.buffer = PyByteArray_FromStringAndSize(NULL, INTAKE_BYTES)
        self.kinds = {}
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "sockets cannot be waited for")

    def __dealloc__(self):
        if self.epoll >= 0:
            close_descriptor(self.epoll)

    def fileno(self):
        return self.epoll

    cdef int watch(self, int operation, int descriptor) except -1:
        """Hear once of what has come."""
        cdef epoll_event event
        event.events = EPOLLIN | EPOLLRDHUP | EPOLLET
        event.data.fd = descriptor
        if epoll_ctl(self.epoll, operation, descriptor, &event) < 0:
            raise OSError(errno, "the socket cannot be waited for")
        return 0

    def join(self, int descriptor, who):
        if who is None:
            raise ValueError("nobody cannot join")
        self.watch(EPOLL_CTL_ADD, descriptor)
        while len(self.members) <= descriptor:
            self.members.append(None)
            self.notes.append(None)
            self.active.append(0)
        self.members[descriptor] = who
        self.notes[descriptor] = None
        self.active[descriptor] = 1

    def leave(self, int descriptor):
        cdef epoll_event event  # old kernels want one
        if not 0 <= descriptor < len(self.members) or self.members[descriptor] is None:
            return
        self.members[descriptor] = self.notes[descriptor] = None
        epoll_ctl(self.epoll, EPOLL_CTL_DEL, descriptor, &event)

    def was_active(self, int descriptor):
        cdef bint was
        if not 0 <= descriptor < len(self.active):
            return False
        was = self.active[descriptor]
        self.active[descriptor] = 0
        return was

    def take(self, find):
        cdef epoll_event events[INTAKE_EVENTS]
        cdef list others = []
        cdef Py_ssize_t i
        cdef Py_ssize_t count = epoll_wait(self.epoll, events, INTAKE_EVENTS, 0)
        try:
            for i in range(count):
                self.take_from(events + i, find, others)
        finally:
            self.kinds = {}
            self.latest = None
        return others

    cdef int take_from(self, const epoll_event* event, find, list others) except -1:
        cdef ssize_t size
        cdef int descriptor = event.data.fd
        cdef char* data = PyByteArray_AS_STRING(self.buffer)
        who = self.members[descriptor] if descriptor < len(self.members) else None
        if who is None:
            return 0
        if self.expects_large:
            with nogil:
                size = receive_from(descriptor, data, INTAKE_BYTES, MSG_DONTWAIT)
        else:
            size = receive_from(descriptor, data, INTAKE_BYTES, MSG_DONTWAIT)
        self.expects_large = size >= GIL_BODY_BYTES
        if size < 0 and errno == EAGAIN:
            return 0
        if size == INTAKE_BYTES or event.events & ~<uint32_t> EPOLLIN:
            self.watch(EPOLL_CTL_MOD, descriptor)  # what is left there is told again
        self.active[descriptor] = 1
        if size <= 0:
            others.append((who, b""))
        elif not self.take_write(<const uint8_t*> data, size, descriptor, who, find):
            others.append((who, PyBytes_FromStringAndSize(data, size)))
        return 0

    cdef bint take_write(
        self, const uint8_t* data, Py_ssize_t size, int descriptor, who, find
    ) except -1:
        cdef Body body
        cdef Py_ssize_t count, head_bytes
        cdef Kind kind = self.kind_of(data, size, find)
        if kind is None:
            return False
        head_bytes = PyBytes_GET_SIZE(kind.raw)
        if size - head_bytes != kind.body_bytes:
            return False
        open_body(&body, data + head_bytes, kind.body_bytes)
        body.limits = kind.gathering.limits
        body.limits.records = min(body.limits.records, kind.records_max)
        try:
            count = kind.gathering.put_body(&body)
        finally:
            close_body(&body)
        if not count:
            return False
        kind.writers.append(self.note(descriptor, count, who, kind.token))
        return True

    cdef tuple note(self, int descriptor, Py_ssize_t count, who, token):
        cdef Py_ssize_t latest_count
        cdef tuple latest = self.notes[descriptor]
        if latest is not None:
            latest_count, (_, latest_token) = latest
            if latest_token is token and latest_count == count:
                return latest
        latest = self.notes[descriptor] = (count, (who, token))
        return latest

    cdef Kind kind_of(self, const uint8_t* data, Py_ssize_t size, find):
        """Return what a request is by its head, asking once a head and call."""
        cdef const uint8_t* end
        cdef bytes raw
        cdef Kind kind = self.latest
        if (
            kind is not None
            and size >= PyBytes_GET_SIZE(kind.raw)
            and memcmp(data, PyBytes_AS_STRING(kind.raw), PyBytes_GET_SIZE(kind.raw)) == 0
        ):
            return kind
        end = <const uint8_t*> memmem(data, size, b"\r\n\r\n", 4)
        if end == NULL:
            return None
        raw = PyBytes_FromStringAndSize(<const char*> data, end + 4 - data)
        if raw in self.kinds:
            kind = self.kinds[raw]
        else:
            found = find(raw)
            kind = None if found is None else build_kind(raw, found)
            self.kinds[raw] = kind
        if kind is not None:
            self.latest = kind
        return kind
