/* A load generator: CONNECTIONS connections, each sending its next request as the last one is answered.
 *
 * usage: load PORT CONNECTIONS WARM_MS MEASURE_MS EVENTS FILE
 *
 * FILE holds the requests as they go over the wire, each after its length in four bytes, little end first; they are sent
 * in turn. After WARM_MS it prints "begin", MEASURE_MS later "end", so that whoever reads can look at the proxy's CPU time
 * at both moments. Then it waits for what is still running (20 s at most) and prints one line of JSON: what was counted
 * between the two, with exact percentiles, and under "all" from the first request to the last. An answer with fewer than
 * EVENTS server-sent events has lost some.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "answer.h"

enum { DRAIN_MS = 20000, MOST_ERRORS = 1000 };

struct request { char *bytes; size_t length; };

struct connection {
    int fd, writing; /* writing: the poller tells when there is room again */
    struct request *request;
    size_t sent;
    uint64_t began;
    struct answer answer;
};

static int poller, port, measuring, ending;
static long connections, events_each, open_now, turn;
static struct request *requests;
static long requests_length;
static struct { long requests, events; } window, all;
static struct { long status, broken, lost_events, unanswered, reconnects; } wrong;
static uint32_t *times;
static size_t times_length, times_room;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void read_requests(const char *path) {
    FILE *file = fopen(path, "rb");
    unsigned char size[4];
    if (!file) fail(path);
    while (fread(size, 1, 4, file) == 4) {
        struct request *grown = realloc(requests, (requests_length + 1) * sizeof *requests);
        if (!grown) fail("realloc");
        requests = grown;
        struct request *one = &requests[requests_length++];
        one->length = size[0] | size[1] << 8 | size[2] << 16 | (size_t)size[3] << 24;
        one->bytes = malloc(one->length);
        if (!one->bytes || fread(one->bytes, 1, one->length, file) != one->length) fail(path);
    }
    fclose(file);
    if (!requests_length) fail(path);
}

static void watch(struct connection *on, int operation, int writing) {
    struct epoll_event wanted = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = on};
    on->writing = writing;
    if (epoll_ctl(poller, operation, on->fd, &wanted)) fail("epoll_ctl");
}

static void go_on_sending(struct connection *on) {
    while (on->sent < on->request->length) {
        ssize_t went = send(on->fd, on->request->bytes + on->sent, on->request->length - on->sent, MSG_NOSIGNAL);
        if (went < 0) {
            if (errno == EAGAIN && !on->writing) watch(on, EPOLL_CTL_MOD, 1);
            return; /* a broken connection shows when it is read */
        }
        on->sent += went;
    }
    if (on->writing) watch(on, EPOLL_CTL_MOD, 0);
}

static void ask(struct connection *on) {
    on->request = &requests[turn++ % requests_length];
    on->sent = 0;
    begin_answer(&on->answer);
    on->began = now_us();
    go_on_sending(on);
}

static void open_connection(struct connection *on) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int yes = 1;
    on->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(on->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(on->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(on->fd, F_SETFL, O_NONBLOCK);
    watch(on, EPOLL_CTL_ADD, 0);
    open_now++;
}

static void next(struct connection *on, int reopen) {
    if (ending || reopen) {
        close(on->fd);
        open_now--;
    }
    if (ending) {
        on->fd = -1;
        return;
    }
    if (reopen) {
        wrong.reconnects++;
        open_connection(on);
    }
    ask(on);
}

static void broken(struct connection *on) {
    if (++wrong.broken > MOST_ERRORS) {
        fprintf(stderr, "more than %d connections broke\n", MOST_ERRORS);
        exit(1);
    }
    next(on, 1);
}

static void note_time(uint64_t took) {
    if (times_length == times_room) {
        times_room = times_room * 2 + 65536;
        times = realloc(times, times_room * sizeof *times);
        if (!times) fail("realloc");
    }
    times[times_length++] = took > UINT32_MAX ? UINT32_MAX : took;
}

static void answered(struct connection *on) {
    all.requests++;
    if (!on->answer.good) wrong.status++;
    else if (on->answer.events < events_each) wrong.lost_events += events_each - on->answer.events;
    if (measuring) {
        window.requests++;
        note_time(now_us() - on->began);
    }
    next(on, on->answer.closes || on->sent < on->request->length);
}

static void take(struct connection *on) {
    static char bytes[65536];
    ssize_t got = recv(on->fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EAGAIN) return;
    struct answer *answer = &on->answer;
    long before = answer->events;
    int over = got > 0 ? read_answer(answer, bytes, got) : answer->part == UNTIL_CLOSE && !got;
    all.events += answer->events - before;
    if (measuring) window.events += answer->events - before;
    if (over > 0) {
        answer->closes |= got <= 0;
        answered(on);
    } else if (over < 0 || got <= 0) broken(on);
}

static int by_size(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

static double percentile(double share) {
    return times_length ? times[(size_t)(share * (times_length - 1) + 0.5)] : 0;
}

static void tell(double seconds) {
    qsort(times, times_length, sizeof *times, by_size);
    printf("{\"seconds\":%.6f,\"requests\":%ld,\"events\":%ld,\"p50_us\":%.0f,\"p90_us\":%.0f,\"p99_us\":%.0f,\"max_us\":%.0f,"
           "\"all\":{\"requests\":%ld,\"events\":%ld},"
           "\"errors\":{\"status\":%ld,\"broken\":%ld,\"lost_events\":%ld,\"unanswered\":%ld},\"reconnects\":%ld}\n",
           seconds, window.requests, window.events, percentile(0.5), percentile(0.9), percentile(0.99), percentile(1),
           all.requests, all.events, wrong.status, wrong.broken, wrong.lost_events, wrong.unanswered, wrong.reconnects);
}

static void run_until(uint64_t end) {
    struct epoll_event ready[256];
    for (uint64_t now = now_us(); now < end && open_now; now = now_us()) {
        int found = epoll_wait(poller, ready, 256, (end - now + 999) / 1000);
        for (int at = 0; at < found; at++) {
            struct connection *on = ready[at].data.ptr;
            if (ready[at].events & EPOLLOUT) go_on_sending(on);
            if (ready[at].events & ~EPOLLOUT) take(on);
        }
    }
}

int main(int count, char **given) {
    if (count != 7) {
        fprintf(stderr, "usage: load PORT CONNECTIONS WARM_MS MEASURE_MS EVENTS FILE\n");
        return 2;
    }
    port = atoi(given[1]);
    connections = atol(given[2]);
    events_each = atol(given[5]);
    read_requests(given[6]);
    poller = epoll_create1(0);
    struct connection *each = calloc(connections, sizeof *each);
    if (!each) fail("calloc");
    for (long at = 0; at < connections; at++) open_connection(&each[at]);
    for (long at = 0; at < connections; at++) ask(&each[at]);
    uint64_t begin = now_us() + atol(given[3]) * 1000, end = begin + atol(given[4]) * 1000;
    run_until(begin);
    puts("begin");
    fflush(stdout);
    measuring = 1;
    begin = now_us();
    run_until(end);
    end = now_us();
    measuring = 0;
    puts("end");
    fflush(stdout);
    ending = 1;
    run_until(end + DRAIN_MS * 1000ull);
    wrong.unanswered = open_now;
    tell((end - begin) / 1e6);
    return 0;
}
