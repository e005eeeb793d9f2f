/* The load driver: N connections, each with P requests under way, one thread, one epoll.

   driver key=value…:
     protocol=http|resp|nats  port=  connections=  depth=  warmup=  seconds=
     request=FILE   the exact bytes of one request; several are sent in turn
     setup=FILE     nats only: sent once per connection, which is ready at the next PONG
     replies=R      a request is answered when R replies came (a pipeline of R commands)
     fill=1         the "$seq"s of a reply are written into the fields of the next request

   In all files @@@@ becomes the number of the connection, and a field is twenty times '#'.
   All three protocols are lines, some of them followed by a counted number of bytes; so one
   reader serves them, and no reply is ever kept in memory. Prints one line of JSON. */
#include <strings.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "measure.h"

#define LINE_BYTES 8192
#define BODY_BYTES 65536
#define PEEK_BYTES 16
#define REQUESTS_MAX 64
#define DEPTH_MAX 1024
#define FIELD_BYTES 20
static const char FIELD[] = "####################";

enum protocol { HTTP, RESP, NATS };

struct message {
    char *bytes;
    size_t size;
};

struct connection {
    int fd, waits_for_write, ready;
    struct message requests[REQUESTS_MAX];
    size_t send_offset;             /* of the request that is being sent */
    unsigned sent, queued, answered; /* requests so far; queued >= sent >= answered */
    unsigned replies_left;
    uint64_t queued_at[DEPTH_MAX];
    char line[LINE_BYTES];
    size_t line_size;
    uint64_t skip, body_length; /* counted bytes still to come; http: content-length */
    int in_head, failed;        /* http: past the status line; this reply is an error */
    int64_t elements_left;      /* resp: values until the reply is whole */
    char *body;
    size_t body_size;
};

static enum protocol protocol = HTTP;
static int port, connections = 1, depth = 1, fill;
static unsigned replies = 1;
static double warmup = 0.2, seconds = 1;
static struct message requests[REQUESTS_MAX], setup, fields[REQUESTS_MAX];
static unsigned request_count;
static size_t body_keep = PEEK_BYTES;
static int epoll_fd;
static uint64_t now, completed, errors;
static char first_error[200];

static void fail(struct connection *c, const char *line, size_t size) {
    c->failed = 1;
    if (!first_error[0]) snprintf(first_error, sizeof first_error, "%.*s", (int)size, line);
}

/* Send what is queued, as many requests in one call as fit. */
static void flush(struct connection *c) {
    while (c->sent < c->queued) {
        struct iovec parts[64];
        int count = 0;
        for (unsigned i = c->sent; i < c->queued && count < 64; i++, count++) {
            struct message *request = &c->requests[i % request_count];
            size_t from = i == c->sent ? c->send_offset : 0;
            parts[count] = (struct iovec){request->bytes + from, request->size - from};
        }
        ssize_t done = count == 1 ? send(c->fd, parts[0].iov_base, parts[0].iov_len, 0) : writev(c->fd, parts, count);
        if (done < 0 && errno != EAGAIN) die("write", strerror(errno));
        for (int i = 0; i < count && done > 0; i++) {
            if ((size_t)done < parts[i].iov_len) {
                c->send_offset += (size_t)done;
                done = -1;
                break;
            }
            done -= (ssize_t)parts[i].iov_len;
            c->sent++;
            c->send_offset = 0;
        }
        int blocked = done < 0;
        if (blocked != c->waits_for_write) {
            struct epoll_event event = {.events = EPOLLIN | (blocked ? EPOLLOUT : 0), .data.ptr = c};
            epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
            c->waits_for_write = blocked;
        }
        if (blocked) return;
    }
}

static void queue_request(struct connection *c) {
    c->queued_at[c->queued % (unsigned)depth] = now;
    c->queued++;
}

/* Write the "$seq"s of this reply into the fields of the request that follows. */
static void fill_next(struct connection *c) {
    struct message *next = &c->requests[(c->answered + 1) % request_count];
    const struct message *blank = &fields[(c->answered + 1) % request_count];
    char *seq = c->body;
    c->body[c->body_size] = 0;
    for (char *field = strstr(blank->bytes, FIELD); field; field = strstr(field + FIELD_BYTES, FIELD)) {
        seq = seq ? strstr(seq, "\"$seq\":") : NULL;
        if (!seq) return fail(c, "fewer seqs than fields", 22);
        seq += 7;
        char digits[FIELD_BYTES + 1];
        snprintf(digits, sizeof digits, "%20llu", strtoull(seq, NULL, 10));
        memcpy(next->bytes + (field - blank->bytes), digits, FIELD_BYTES);
    }
}

static void reply_done(struct connection *c) {
    if (--c->replies_left == 0) {
        c->replies_left = replies;
        if (fill) fill_next(c);
        count_latency(now - c->queued_at[c->answered % (unsigned)depth]);
        completed++;
        c->answered++;
        queue_request(c);
    }
    errors += (uint64_t)c->failed;
    c->failed = 0;
    c->body_size = 0;
}

static void http_line(struct connection *c, const char *line, size_t size) {
    if (!c->in_head) {
        c->in_head = 1;
        c->body_length = 0;
        if (size < 12 || line[9] != '2') fail(c, line, size);
    } else if (size == 0) {
        c->in_head = 0;
        c->skip = c->body_length;
        if (!c->skip) reply_done(c);
    } else if (!strncasecmp(line, "content-length:", 15)) {
        c->body_length = strtoull(line + 15, NULL, 10);
    } else if (!strncasecmp(line, "transfer-encoding:", 18)) {
        die("reply", "chunked replies are not understood");
    }
}

static void resp_line(struct connection *c, const char *line, size_t size) {
    if (!c->elements_left) c->elements_left = 1;
    int64_t count = size > 1 ? strtoll(line + 1, NULL, 10) : 0;
    if (line[0] == '$' && count >= 0) {
        c->skip = (uint64_t)count + 2;
        return;
    }
    if (line[0] == '-') fail(c, line, size);
    if (line[0] == '*' && count > 0) c->elements_left += count;
    if (--c->elements_left == 0) reply_done(c);
}

static void start(struct connection *c) {
    c->ready = 1;
    for (int i = 0; i < depth; i++) queue_request(c);
}

static void nats_line(struct connection *c, const char *line, size_t size) {
    if (!strncmp(line, "MSG ", 4)) {
        c->skip = strtoull(strrchr(line, ' ') + 1, NULL, 10) + 2;
    } else if (!strncmp(line, "PING", 4)) {
        if (c->send_offset == 0 && write(c->fd, "PONG\r\n", 6) != 6) die("pong", strerror(errno));
    } else if (!strncmp(line, "PONG", 4)) {
        if (!c->ready) start(c);
    } else if (line[0] == '-') {
        die("nats", line);
    }
    (void)size;
}

static void body_done(struct connection *c) {
    if (protocol == RESP) {
        if (--c->elements_left == 0) reply_done(c);
        return;
    }
    if (protocol == NATS && !memcmp(c->body, "{\"error\"", 8)) fail(c, c->body, c->body_size);
    reply_done(c);
}

static void line_done(struct connection *c, char *line, size_t size) {
    if (size && line[size - 1] == '\r') size--;
    line[size] = 0;
    if (protocol == HTTP) http_line(c, line, size);
    else if (protocol == RESP) resp_line(c, line, size);
    else nats_line(c, line, size);
}

static size_t take_body(struct connection *c, const char *bytes, size_t size) {
    size_t taken = c->skip < size ? (size_t)c->skip : size;
    size_t kept = body_keep - c->body_size < taken ? body_keep - c->body_size : taken;
    memcpy(c->body + c->body_size, bytes, kept);
    c->body_size += kept;
    c->skip -= taken;
    if (!c->skip) body_done(c);
    return taken;
}

static size_t take_line(struct connection *c, char *bytes, size_t size) {
    char *end = memchr(bytes, '\n', size);
    size_t taken = end ? (size_t)(end - bytes) : size;
    if (end && !c->line_size) {
        line_done(c, bytes, taken);
        return taken + 1;
    }
    if (c->line_size + taken >= LINE_BYTES) die("reply", "a line is too long");
    memcpy(c->line + c->line_size, bytes, taken);
    c->line_size += taken;
    if (!end) return taken;
    size_t whole = c->line_size;
    c->line_size = 0;
    line_done(c, c->line, whole);
    return taken + 1;
}

static void receive(struct connection *c) {
    static char buffer[262144];
    ssize_t got = recv(c->fd, buffer, sizeof buffer - 1, 0);
    if (got == 0) die("server", "closed the connection");
    if (got < 0 && errno != EAGAIN) die("read", strerror(errno));
    now = now_ns();
    for (size_t at = 0; got > 0 && at < (size_t)got;) {
        size_t left = (size_t)got - at;
        at += c->skip ? take_body(c, buffer + at, left) : take_line(c, buffer + at, left);
    }
    flush(c);
}

static struct message copy_for(const struct message *from, int number) {
    struct message copy = {malloc(from->size + 1), from->size};
    char digits[5];
    snprintf(digits, sizeof digits, "%04d", number % 10000);
    memcpy(copy.bytes, from->bytes, from->size + 1);
    for (char *at = copy.bytes; (at = memmem(at, copy.size - (size_t)(at - copy.bytes), "@@@@", 4));)
        memcpy(at, digits, 4);
    return copy;
}

static void open_connection(struct connection *c, int number) {
    c->fd = connect_to(port);
    c->replies_left = replies;
    c->body = malloc(body_keep + 1);
    for (unsigned i = 0; i < request_count; i++) c->requests[i] = copy_for(&requests[i], number);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
    if (!setup.size) return start(c);
    struct message hello = copy_for(&setup, number);
    if (write(c->fd, hello.bytes, hello.size) != (ssize_t)hello.size) die("setup", strerror(errno));
}

static void run_until(uint64_t deadline) {
    struct epoll_event events[256];
    while (now < deadline) {
        int count = epoll_wait(epoll_fd, events, 256, 100);
        if (count <= 0) now = now_ns();
        for (int i = 0; i < count; i++) {
            if (events[i].events & EPOLLOUT) flush(events[i].data.ptr);
            if (events[i].events & ~(uint32_t)EPOLLOUT) receive(events[i].data.ptr);
        }
    }
}

static void set(const char *key, const char *value) {
    if (!strcmp(key, "protocol"))
        protocol = !strcmp(value, "http") ? HTTP : !strcmp(value, "resp") ? RESP : NATS;
    else if (!strcmp(key, "port")) port = atoi(value);
    else if (!strcmp(key, "connections")) connections = atoi(value);
    else if (!strcmp(key, "depth")) depth = atoi(value);
    else if (!strcmp(key, "warmup")) warmup = atof(value);
    else if (!strcmp(key, "seconds")) seconds = atof(value);
    else if (!strcmp(key, "replies")) replies = (unsigned)atoi(value);
    else if (!strcmp(key, "fill")) fill = atoi(value);
    else if (!strcmp(key, "setup")) setup.bytes = read_file(value, &setup.size);
    else if (!strcmp(key, "request") && request_count < REQUESTS_MAX) {
        struct message *request = &requests[request_count++];
        request->bytes = read_file(value, &request->size);
    } else die("unknown argument", key);
}

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value) die("not key=value", arguments[i]);
        *value = 0;
        set(arguments[i], value + 1);
    }
    if (!port || !request_count || depth < 1 || depth > DEPTH_MAX) die("usage", "see driver.c");
    if (fill) body_keep = BODY_BYTES;
    for (unsigned i = 0; i < request_count; i++) fields[i] = copy_for(&requests[i], 0);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    now = now_ns();
    struct connection *all = calloc((size_t)connections, sizeof *all);
    for (int i = 0; i < connections; i++) open_connection(&all[i], i);
    for (int i = 0; i < connections; i++) flush(&all[i]);
    run_until(now_ns() + (uint64_t)(warmup * 1e9));
    memset(latency_us, 0, sizeof latency_us);
    completed = errors = 0;
    double cpu = cpu_seconds();
    uint64_t started = now;
    run_until(started + (uint64_t)(seconds * 1e9));
    double elapsed = (double)(now - started) / 1e9;
    for (char *c = first_error; *c; c++)
        if (*c == '"' || *c == '\\' || *c < ' ') *c = '\'';
    printf("{\"rate\":%.1f,\"p50_us\":%zu,\"p99_us\":%zu,\"errors\":%llu,\"cpu\":%.3f,\"first_error\":\"%s\"}\n",
           (double)completed / elapsed, latency_percentile(0.50), latency_percentile(0.99),
           (unsigned long long)errors, (cpu_seconds() - cpu) / elapsed, first_error);
    return 0;
}
