# Loads, stores, the hash, and buffers: everything that touches raw memory in one way only.

cdef extern from *:
    """
    #define XXH_INLINE_ALL
    #include "xxhash.h"
    #if XXH_VERSION_NUMBER < 800
    #error "XXH3 is stable from xxhash 0.8.0 on"
    #endif
    #if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the formats are little-endian and copied as they are: use the pure twin"
    #endif
    #include <stdint.h>
    #include <string.h>

    #define KERNEL_LOAD(name, type)                          \\
        static inline type name(const uint8_t *at) {         \\
            type value;                                      \\
            memcpy(&value, at, sizeof value);                \\
            return value;                                    \\
        }
    #define KERNEL_STORE(name, type)                         \\
        static inline void name(uint8_t *at, type value) {   \\
            memcpy(at, &value, sizeof value);                \\
        }
    KERNEL_LOAD(load_u16, uint16_t)
    KERNEL_LOAD(load_u32, uint32_t)
    KERNEL_LOAD(load_u64, uint64_t)
    KERNEL_STORE(store_u16, uint16_t)
    KERNEL_STORE(store_u32, uint32_t)
    KERNEL_STORE(store_u64, uint64_t)
    """
    uint16_t load_u16(const uint8_t* at) noexcept nogil
    uint32_t load_u32(const uint8_t* at) noexcept nogil
    uint64_t load_u64(const uint8_t* at) noexcept nogil
    void store_u16(uint8_t* at, uint16_t value) noexcept nogil
    void store_u32(uint8_t* at, uint32_t value) noexcept nogil
    void store_u64(uint8_t* at, uint64_t value) noexcept nogil
    uint64_t XXH3_64bits(const void* data, size_t size) noexcept nogil

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    int resize_bytes "_PyBytes_Resize"(PyObject** data, Py_ssize_t size) except -1

# Below this much work a thread keeps the GIL: giving it away may cost a switch interval (5 ms).
cdef enum:
    GIL_BYTES = 65536
    GIL_ENTRIES = 4096

cdef uint64_t U16_MAX = 0xFFFF
cdef uint64_t U32_MAX = 0xFFFFFFFF
cdef uint64_t U64_MAX = 0xFFFFFFFFFFFFFFFF


cdef inline uint64_t min_u64(uint64_t a, uint64_t b) noexcept nogil:
    return a if a < b else b


cdef int check_range(Py_ssize_t start, Py_ssize_t stop, Py_ssize_t size) except -1:
    if not 0 <= start <= stop <= size:
        raise ValueError(f"the range {start}..{stop} is not inside 0..{size}")
    return 0


def xxh3_64(buffer):
    cdef Py_buffer view
    cdef uint64_t digest
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if view.len < GIL_BYTES:
            digest = XXH3_64bits(view.buf, view.len)
        else:
            with nogil:
                digest = XXH3_64bits(view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return digest
