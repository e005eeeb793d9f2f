/* The ceiling: the least an HTTP server can do. One thread, one epoll, one fixed reply.

   epoll PORT REPLY_FILE: answers every whole request (head and Content-Length) with these bytes. */
#include <strings.h>
#include <sys/epoll.h>

#include "measure.h"

#define REQUEST_BYTES 131072
#define REPLIES_MAX 64

struct connection {
    int fd;
    size_t size;
    char bytes[REQUEST_BYTES];
};

static char *replies; /* the reply, REPLIES_MAX times: a pipeline is answered with one write */
static size_t reply_size;

/* Return the bytes of the first whole request, or 0 when there is none yet. */
static size_t request_size(struct connection *c, size_t from) {
    char *start = c->bytes + from;
    char *end = memmem(start, c->size - from, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t length = 0;
    for (char *line = start; line < end; line++) {
        if (!strncasecmp(line, "content-length:", 15)) length = strtoull(line + 15, NULL, 10);
        line = memchr(line, '\n', (size_t)(end - line) + 2);
    }
    size_t whole = (size_t)(end - start) + 4 + length;
    return whole <= c->size - from ? whole : 0;
}

static void answer(struct connection *c) {
    size_t from = 0, count = 0;
    for (size_t size; count < REPLIES_MAX && (size = request_size(c, from)); count++) from += size;
    if (!count) return;
    memmove(c->bytes, c->bytes + from, c->size - from);
    c->size -= from;
    ssize_t wanted = (ssize_t)(count * reply_size);
    if (write(c->fd, replies, (size_t)wanted) != wanted) die("write", "the client does not read");
    answer(c);
}

static void receive(struct connection *c) {
    ssize_t got = read(c->fd, c->bytes + c->size, REQUEST_BYTES - c->size - 1);
    if (got > 0) {
        c->size += (size_t)got;
        c->bytes[c->size] = 0;
        answer(c);
    } else if (got == 0 || errno != EAGAIN) {
        close(c->fd);
        free(c);
    }
}

static int listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 1024) < 0)
        die("listen", strerror(errno));
    return fd;
}

static void accept_one(int epoll_fd, int listener) {
    struct connection *c = malloc(sizeof *c);
    int on = 1;
    c->size = 0;
    c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
}

int main(int count, char **arguments) {
    if (count != 3) die("usage", "epoll PORT REPLY_FILE");
    char *reply = read_file(arguments[2], &reply_size);
    replies = malloc(reply_size * REPLIES_MAX);
    for (int i = 0; i < REPLIES_MAX; i++) memcpy(replies + (size_t)i * reply_size, reply, reply_size);
    int listener = listen_on(atoi(arguments[1])), epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(epoll_fd, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr) receive(events[i].data.ptr);
            else accept_one(epoll_fd, listener);
        }
    }
}
