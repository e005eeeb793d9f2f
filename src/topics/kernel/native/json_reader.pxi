# RFC 8259, read strictly and in place. The rules and the wording of faults are those of
# pure/json_reader.py; the stack is a local array, so no body can exhaust the C stack.

cdef extern from *:
    """
    #if defined(__SSE2__) && !defined(KERNEL_NO_SSE2)
    #include <emmintrin.h>
    #endif

    /* The first byte in [at, end) that is not plain inside a string: a quote, a backslash, a
       control character or a byte of a multi-byte character. */
    static inline const uint8_t *skip_plain(const uint8_t *at, const uint8_t *end) {
    #if defined(__SSE2__) && !defined(KERNEL_NO_SSE2)
        const __m128i quote = _mm_set1_epi8('"');
        const __m128i backslash = _mm_set1_epi8('\\\\');
        const __m128i space = _mm_set1_epi8(' ');
        while (end - at >= 16) {
            const __m128i bytes = _mm_loadu_si128((const __m128i *)at);
            /* Signed: bytes from 0x80 on are below the space too. */
            const __m128i special = _mm_or_si128(
                _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                _mm_cmplt_epi8(bytes, space));
            const int found = _mm_movemask_epi8(special);
            if (found) return at + __builtin_ctz((unsigned)found);
            at += 16;
        }
    #else
        const uint64_t ones = 0x0101010101010101ULL, highs = 0x8080808080808080ULL;
        while (end - at >= 8) {
            const uint64_t bytes = load_u64(at);
            const uint64_t no_quote = bytes ^ (ones * '"');
            const uint64_t no_backslash = bytes ^ (ones * '\\\\');
            const uint64_t special = ((bytes - ones * ' ') | (no_quote - ones)
                                      | (no_backslash - ones) | bytes) & highs;
            if (special) break; /* may be one too many: the loop below decides */
            at += 8;
        }
    #endif
        while (at < end && *at != '"' && *at != '\\\\' && *at >= 0x20 && *at < 0x80) at++;
        return at;
    }
    """
    const uint8_t* skip_plain(const uint8_t* at, const uint8_t* end) noexcept nogil

cdef enum:
    JSON_DEPTH_MAX = 256
    DEAD_LETTER_BYTES = 13

    NOT_A_VALUE = 1
    NOT_A_KEY = 2
    NOT_A_COLON = 3
    NOT_A_MEMBER_END = 4
    NOT_AN_ELEMENT_END = 5
    TRAILING = 6
    TOO_DEEP = 7

cdef struct Fault:
    int reason
    const uint8_t* at


cdef inline const uint8_t* fail(Fault* fault, int reason, const uint8_t* at) noexcept nogil:
    fault.reason = reason
    fault.at = at
    return NULL


cdef inline const uint8_t* skip_ws(const uint8_t* at, const uint8_t* end) noexcept nogil:
    while at < end and at[0] <= 0x20 and (
        at[0] == c" " or at[0] == c"\n" or at[0] == c"\r" or at[0] == c"\t"
    ):
        at += 1
    return at


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return <uint8_t> (byte - c"0") < 10


cdef inline const uint8_t* skip_digits(const uint8_t* at, const uint8_t* end) noexcept nogil:
    while at < end and is_digit(at[0]):
        at += 1
    return at


cdef inline int hex_value(uint8_t byte) noexcept nogil:
    if is_digit(byte):
        return byte - c"0"
    byte |= 0x20
    if c"a" <= byte <= c"f":
        return byte - c"a" + 10
    return -1


cdef inline int load_hex4(const uint8_t* at) noexcept nogil:
    """The four hex digits behind a backslash and a u, or a negative number."""
    cdef int a = hex_value(at[0])
    cdef int b = hex_value(at[1])
    cdef int c = hex_value(at[2])
    cdef int d = hex_value(at[3])
    if (a | b | c | d) < 0:
        return -1
    return a << 12 | b << 8 | c << 4 | d


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef const uint8_t* skip_multibyte(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Pass characters outside ASCII; NULL where they are not shortest-form UTF-8."""
    cdef uint8_t lead
    while at < end and at[0] >= 0x80:
        lead = at[0]
        if lead < 0xE0:
            if lead < 0xC2 or end - at < 2 or not is_continuation(at[1]):
                return NULL
            at += 2
        elif lead < 0xF0:
            if end - at < 3 or not is_continuation(at[1]) or not is_continuation(at[2]):
                return NULL
            if (lead == 0xE0 and at[1] < 0xA0) or (lead == 0xED and at[1] > 0x9F):
                return NULL
            at += 3
        else:
            if lead > 0xF4 or end - at < 4 or not is_continuation(at[1]):
                return NULL
            if not is_continuation(at[2]) or not is_continuation(at[3]):
                return NULL
            if (lead == 0xF0 and at[1] < 0x90) or (lead == 0xF4 and at[1] > 0x8F):
                return NULL
            at += 4
    return at


cdef inline const uint8_t* skip_escape(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Pass the escape whose backslash is at `at`; NULL where it is none."""
    if end - at < 2:
        return NULL
    if at[1] == c"u":
        if end - at < 6 or load_hex4(at + 2) < 0:
            return NULL
        return at + 6
    if (
        at[1] == c'"' or at[1] == c"\\" or at[1] == c"/" or at[1] == c"b" or at[1] == c"f"
        or at[1] == c"n" or at[1] == c"r" or at[1] == c"t"
    ):
        return at + 2
    return NULL


cdef inline const uint8_t* skip_string(
    const uint8_t* at, const uint8_t* end, bint* escaped
) noexcept nogil:
    """Pass the string whose opening quote is at `at`; NULL where it is none."""
    escaped[0] = False
    at += 1
    while True:
        at = skip_plain(at, end)
        if at == end or at[0] < 0x20:
            return NULL
        if at[0] == c'"':
            return at + 1
        if at[0] == c"\\":
            escaped[0] = True
            at = skip_escape(at, end)
        else:
            at = skip_multibyte(at, end)
        if at == NULL:
            return NULL


cdef const uint8_t* skip_number(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Pass the longest number at `at`; NULL where none begins."""
    cdef const uint8_t* exponent
    if at[0] == c"-":
        at += 1
    if at == end or not is_digit(at[0]):
        return NULL
    at = at + 1 if at[0] == c"0" else skip_digits(at, end)
    if end - at >= 2 and at[0] == c"." and is_digit(at[1]):
        at = skip_digits(at + 2, end)
    if at < end and at[0] | 0x20 == c"e":
        exponent = at + 1
        if exponent < end and (exponent[0] == c"+" or exponent[0] == c"-"):
            exponent += 1
        if exponent < end and is_digit(exponent[0]):
            at = skip_digits(exponent + 1, end)
    return at


cdef inline const uint8_t* skip_scalar(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef bint escaped
    if at[0] == c'"':
        return skip_string(at, end, &escaped)
    if at[0] == c"-" or is_digit(at[0]):
        return skip_number(at, end)
    if end - at >= 4 and (memcmp(at, b"true", 4) == 0 or memcmp(at, b"null", 4) == 0):
        return at + 4
    if end - at >= 5 and memcmp(at, b"false", 5) == 0:
        return at + 5
    return NULL


cdef inline const uint8_t* skip_key(
    const uint8_t* at, const uint8_t* end, const uint8_t** key_end, bint* escaped, Fault* fault
) noexcept nogil:
    """Pass the key at `at`, its colon and the whitespace around it."""
    cdef const uint8_t* behind
    if at == end or at[0] != c'"':
        return fail(fault, NOT_A_KEY, at)
    behind = skip_string(at, end, escaped)
    if behind == NULL:
        return fail(fault, NOT_A_KEY, at)
    key_end[0] = behind
    at = skip_ws(behind, end)
    if at == end or at[0] != c":":
        return fail(fault, NOT_A_COLON, at)
    return skip_ws(at + 1, end)


cdef const uint8_t* skip_value(
    const uint8_t* at, const uint8_t* end, int depth, Fault* fault
) noexcept nogil:
    """Pass the value at `at`, which stands inside `depth` open containers."""
    cdef uint8_t openers[JSON_DEPTH_MAX]
    cdef int top = 0
    cdef uint8_t opener
    cdef const uint8_t* behind
    cdef bint escaped
    while True:
        if at == end:
            return fail(fault, NOT_A_VALUE, at)
        opener = at[0]
        if opener == c"{" or opener == c"[":
            if depth + top >= JSON_DEPTH_MAX:
                return fail(fault, TOO_DEEP, at)
            at = skip_ws(at + 1, end)
            if at == end or at[0] != opener + 2:  # in ASCII a closer is its opener + 2
                openers[top] = opener
                top += 1
                if opener == c"{":
                    at = skip_key(at, end, &behind, &escaped, fault)
                    if at == NULL:
                        return NULL
                continue
            at += 1
        else:
            behind = skip_scalar(at, end)
            if behind == NULL:
                return fail(fault, NOT_A_VALUE, at)
            at = behind
        while top:
            opener = openers[top - 1]
            at = skip_ws(at, end)
            if at < end and at[0] == opener + 2:
                at += 1
                top -= 1
                continue
            if at == end or at[0] != c",":
                return fail(
                    fault, NOT_A_MEMBER_END if opener == c"{" else NOT_AN_ELEMENT_END, at
                )
            at = skip_ws(at + 1, end)
            if opener == c"{":
                at = skip_key(at, end, &behind, &escaped, fault)
                if at == NULL:
                    return NULL
            break
        if top == 0:
            return at


cdef inline const uint8_t* skip_separator(
    const uint8_t* at, const uint8_t* end, uint8_t closer, int reason, bint* closed, Fault* fault
) noexcept nogil:
    """Pass the comma or the closer behind a member or element, and whitespace behind a comma."""
    at = skip_ws(at, end)
    if at < end and at[0] == closer:
        closed[0] = True
        return at + 1
    if at == end or at[0] != c",":
        return fail(fault, reason, at)
    closed[0] = False
    return skip_ws(at + 1, end)


cdef const uint8_t* skip_members(
    const uint8_t* at, const uint8_t* end, int depth, uint64_t* count, Fault* fault
) noexcept nogil:
    """Pass the object at `at` and count its members as written; `depth` is that of its values."""
    cdef const uint8_t* key_end
    cdef bint escaped
    cdef bint closed = False
    count[0] = 0
    at = skip_ws(at + 1, end)
    if at < end and at[0] == c"}":
        return at + 1
    while not closed:
        at = skip_key(at, end, &key_end, &escaped, fault)
        if at == NULL:
            return NULL
        at = skip_value(at, end, depth, fault)
        if at == NULL:
            return NULL
        count[0] += 1
        at = skip_separator(at, end, c"}", NOT_A_MEMBER_END, &closed, fault)
        if at == NULL:
            return NULL
    return at


cdef bint begins_dead_letter(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Whether a key begins with `$dead_letter_`, escaped or not; none of it has a short escape."""
    cdef const char* wanted = b"$dead_letter_"
    cdef Py_ssize_t i
    for i in range(DEAD_LETTER_BYTES):
        if end - at >= 6 and at[0] == c"\\" and at[1] == c"u":
            if load_hex4(at + 2) != wanted[i]:
                return False
            at += 6
        elif at < end and at[0] == <uint8_t> wanted[i]:
            at += 1
        else:
            return False
    return True


cdef bint names_dead_letter(const uint8_t* meta, uint64_t size) noexcept nogil:
    """Whether a whole object has a key of its own that only the server may write."""
    cdef const uint8_t* at = meta
    cdef const uint8_t* end = meta + size
    cdef const uint8_t* key
    cdef const uint8_t* key_end
    cdef bint escaped
    cdef bint closed = False
    cdef Fault fault
    if memchr(meta, c"$", size) == NULL and memchr(meta, c"\\", size) == NULL:
        return False  # the plain case
    at = skip_ws(at + 1, end)
    while not closed and at < end and at[0] == c'"':
        key = at
        at = skip_key(at, end, &key_end, &escaped, &fault)
        if at == NULL:
            return False
        if begins_dead_letter(key + 1, key_end - 1):
            return True
        at = skip_value(at, end, 1, &fault)
        if at == NULL:
            return False
        at = skip_separator(at, end, c"}", NOT_A_MEMBER_END, &closed, &fault)
        if at == NULL:
            return False
    return False


cdef inline uint8_t unescaped_byte(uint8_t letter) noexcept nogil:
    if letter == c"b":
        return 8
    if letter == c"f":
        return 12
    if letter == c"n":
        return 10
    if letter == c"r":
        return 13
    if letter == c"t":
        return 9
    return letter


cdef inline uint8_t* store_utf8(uint8_t* out, uint32_t code) noexcept nogil:
    if code < 0x80:
        out[0] = code
        return out + 1
    if code < 0x800:
        out[0] = 0xC0 | code >> 6
        out[1] = 0x80 | code & 0x3F
        return out + 2
    if code < 0x10000:
        out[0] = 0xE0 | code >> 12
        out[1] = 0x80 | code >> 6 & 0x3F
        out[2] = 0x80 | code & 0x3F
        return out + 3
    out[0] = 0xF0 | code >> 18
    out[1] = 0x80 | code >> 12 & 0x3F
    out[2] = 0x80 | code >> 6 & 0x3F
    out[3] = 0x80 | code & 0x3F
    return out + 4


cdef Py_ssize_t unescape(const uint8_t* at, const uint8_t* end, uint8_t* out) noexcept nogil:
    """Decode the inside of a valid string; never longer than it. -1 for half a surrogate pair."""
    cdef uint8_t* begin = out
    cdef uint32_t code
    cdef uint32_t low
    while at < end:
        if at[0] != c"\\":
            out[0] = at[0]
            out += 1
            at += 1
        elif at[1] != c"u":
            out[0] = unescaped_byte(at[1])
            out += 1
            at += 2
        else:
            code = load_hex4(at + 2)
            at += 6
            if 0xD800 <= code <= 0xDFFF:
                if code > 0xDBFF or end - at < 6 or at[0] != c"\\" or at[1] != c"u":
                    return -1
                low = load_hex4(at + 2)
                if not 0xDC00 <= low <= 0xDFFF:
                    return -1
                at += 6
                code = 0x10000 + (code - 0xD800 << 10) + (low - 0xDC00)
            out = store_utf8(out, code)
    return out - begin
