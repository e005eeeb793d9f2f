/* The watching client: N event streams, one writer, the time from append to delivery.

   watchers PORT SERVER_PID PATHS_FILE TOPIC RECORDS_PER_SECOND SECONDS: opens one stream per line of the
   file, waits for the first bytes of each, then appends records that hold the time of their
   sending, and counts how old they are when each stream brings them. Prints one line of JSON. */
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "measure.h"

#define CARRY_BYTES 40 /* a mark may be cut by the end of a read */
static const char MARK[] = "\"sent_ns\":\"";
#define MARK_BYTES (sizeof MARK - 1)
#define DIGITS 20
#define DRAIN_NS 2000000000u

struct stream {
    int fd, started;
    size_t carried;
    char carry[CARRY_BYTES];
};

static struct stream timer, writer; /* only their addresses tell them from the watchers */
static uint64_t delivered, sent;
static int started_count;

static void watch(int epoll_fd, int fd, struct stream *stream) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = stream};
    stream->fd = fd;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void send_text(int fd, const char *text) {
    ssize_t size = (ssize_t)strlen(text);
    if (write(fd, text, (size_t)size) != size) die("write", strerror(errno));
}

/* Count every whole mark, and return where the rest begins that the next read may complete. */
static char *count_marks(char *from, char *end) {
    char *at;
    while ((at = memmem(from, (size_t)(end - from), MARK, MARK_BYTES))) {
        if (at + MARK_BYTES + DIGITS > end) return at;
        count_latency(now_ns() - strtoull(at + MARK_BYTES, NULL, 10));
        delivered++;
        from = at + MARK_BYTES + DIGITS;
    }
    return end - from < (ptrdiff_t)MARK_BYTES ? from : end - MARK_BYTES;
}

static void receive(struct stream *stream) {
    static char buffer[CARRY_BYTES + 65536 + 1];
    memcpy(buffer, stream->carry, stream->carried);
    ssize_t got = read(stream->fd, buffer + stream->carried, 65536);
    if (got == 0) die("server", "closed a stream");
    if (got < 0) return;
    if (!stream->started) {
        if (!memmem(buffer, (size_t)got, " 200 ", 5)) die("stream refused", strtok(buffer, "\r\n"));
        started_count++;
    }
    stream->started = 1;
    char *end = buffer + stream->carried + got;
    *end = 0;
    char *rest = count_marks(buffer, end);
    stream->carried = (size_t)(end - rest);
    memcpy(stream->carry, rest, stream->carried);
}

static void append(const char *topic) {
    char body[200], request[600];
    int size = snprintf(body, sizeof body, "{\"records\":[{\"data\":{%s%020llu\"}}]}", MARK,
                        (unsigned long long)now_ns());
    snprintf(request, sizeof request,
             "POST /v0/topics/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Content-Length: %d\r\n\r\n%s", topic, size, body);
    send_text(writer.fd, request);
    sent++;
}

static void on_event(struct stream *stream, const char *topic) {
    char ignored[4096];
    uint64_t ticks;
    if (stream == &timer) {
        if (read(timer.fd, &ticks, sizeof ticks) > 0) append(topic);
    } else if (stream == &writer) {
        if (read(writer.fd, ignored, sizeof ignored) == 0) die("server", "closed the writer");
    } else {
        receive(stream);
    }
}

static void run_until(int epoll_fd, const char *topic, uint64_t deadline, uint64_t wanted) {
    struct epoll_event events[256];
    while (now_ns() < deadline && delivered + (uint64_t)started_count < wanted) {
        /* Never asleep: waking this client would be a part of every send, and of what it measures. */
        int ready = epoll_wait(epoll_fd, events, 256, 0);
        for (int i = 0; i < ready; i++) on_event(events[i].data.ptr, topic);
    }
}

/* Return the processor time of another process, all its threads included. */
static double process_seconds(const char *pid) {
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(text, sizeof text, file)) die(path, "cannot be read");
    fclose(file);
    char *after_name = strrchr(text, ')');
    sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

int main(int count, char **arguments) {
    if (count != 7) die("usage", "see watchers.c");
    int port = atoi(arguments[1]), epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    const char *topic = arguments[4];
    double rate = atof(arguments[5]), seconds = atof(arguments[6]);
    size_t size, watchers = 0;
    char *paths = read_file(arguments[3], &size), request[600];
    for (char *path = strtok(paths, "\n"); path; path = strtok(NULL, "\n"), watchers++) {
        struct stream *stream = calloc(1, sizeof *stream);
        watch(epoll_fd, connect_to(port), stream);
        snprintf(request, sizeof request,
                 "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", path);
        send_text(stream->fd, request);
    }
    run_until(epoll_fd, topic, now_ns() + 10 * (uint64_t)1000000000, watchers);
    if ((size_t)started_count != watchers) die("streams", "not all began within ten seconds");
    watch(epoll_fd, connect_to(port), &writer);
    watch(epoll_fd, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), &timer);
    struct timespec every = {(time_t)(1 / rate), (long)(1e9 / rate) % 1000000000};
    struct itimerspec beat = {every, every}, never = {{0, 0}, {0, 0}};
    double cpu = process_seconds(arguments[2]);
    timerfd_settime(timer.fd, 0, &beat, NULL);
    run_until(epoll_fd, topic, now_ns() + (uint64_t)(seconds * 1e9), UINT64_MAX);
    timerfd_settime(timer.fd, 0, &never, NULL);
    run_until(epoll_fd, topic, now_ns() + DRAIN_NS, sent * watchers + watchers);
    printf("{\"sent\":%llu,\"delivered\":%llu,\"p50_us\":%zu,\"p99_us\":%zu,\"cpu_s\":%.2f}\n",
           (unsigned long long)sent, (unsigned long long)delivered, latency_percentile(0.50),
           latency_percentile(0.99), process_seconds(arguments[2]) - cpu);
    return 0;
}
