/* What the load drivers share: a clock, a histogram of microseconds, a connection to loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LATENCY_BUCKETS 2000000 /* one a microsecond; what is slower counts as two seconds */

static uint32_t latency_us[LATENCY_BUCKETS + 1];

static inline void die(const char *what, const char *detail) {
    fprintf(stderr, "%s: %s\n", what, detail);
    exit(1);
}

static inline uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static inline double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static inline void count_latency(uint64_t elapsed_ns) {
    uint64_t us = elapsed_ns / 1000;
    latency_us[us < LATENCY_BUCKETS ? us : LATENCY_BUCKETS]++;
}

static inline size_t latency_percentile(double share) {
    uint64_t total = 0, seen = 0;
    for (size_t us = 0; us <= LATENCY_BUCKETS; us++) total += latency_us[us];
    uint64_t wanted = (uint64_t)((double)total * share);
    for (size_t us = 0; us <= LATENCY_BUCKETS; us++) {
        seen += latency_us[us];
        if (seen > wanted) return us;
    }
    return 0;
}

static inline int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connect", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static inline char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path, strerror(errno));
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    if (!bytes || fread(bytes, 1, *size, file) != *size) die(path, "cannot be read");
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}
