# cython: language_level=3, binding=False, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, embedsignature=False, freethreading_compatible=False
"""The kernel in C, by way of Cython: the same functions as `topics.kernel.pure`, ten to forty
times faster.

Each part below is the twin of the file with the same name in `pure`, where the rules are written
down. Keeps: every pointer is checked against the end of its buffer before it is read, every number
from a buffer is read once and checked before it is used, and buffers stay exported while used.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyNumber_Index
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from array import array

from topics.errors import CorruptData
from topics.kernel import refusals as _refusals
from topics.kernel.batch import Batch, Column, Columns, IdxSummary, Projection, Scan
from topics.kernel.refusals import field_refusal as _field_refusal, refusal as _refusal

include "native/memory.pxi"
include "native/frame.pxi"
include "native/json_reader.pxi"
include "native/partition.pxi"
include "native/parse.pxi"
include "native/gather.pxi"
include "native/socket.pxi"
include "native/intake.pxi"
include "native/stamp.pxi"
include "native/scan.pxi"
include "native/segment.pxi"
include "native/project.pxi"
include "native/copy.pxi"
include "native/answers.pxi"
include "native/send.pxi"
include "native/columns.pxi"
include "native/judge.pxi"
include "native/encode.pxi"
include "native/idx.pxi"
include "native/tags.pxi"
