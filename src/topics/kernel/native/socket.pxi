# The two calls of a socket, made directly.

cdef extern from *:
    """
    #include <sys/syscall.h>
    #include <unistd.h>
    /* As recv and send, but no place where a thread can be cancelled: in a process of several
       threads going in and out of those is 0.6 % of the event loop's time with small writes. */
    static ssize_t receive_from(int descriptor, void *data, size_t size, int flags) {
        return syscall(SYS_recvfrom, descriptor, data, size, flags, NULL, NULL);
    }
    static ssize_t send_to(int descriptor, const void *data, size_t size, int flags) {
        return syscall(SYS_sendto, descriptor, data, size, flags, NULL, 0);
    }
    """
    ssize_t receive_from(int descriptor, void* data, size_t size, int flags) noexcept nogil
    ssize_t send_to(int descriptor, const void* data, size_t size, int flags) noexcept nogil
