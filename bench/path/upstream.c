/* An upstream that costs next to nothing: one thread, epoll, connections kept open.
 *
 * usage: upstream PACE_US EVENTS PORTS
 *
 * Listens on so many free ports of the loopback and prints them in one line. A chat is answered with 400 bytes of JSON,
 * or, where its body says "stream":true, with EVENTS events and a [DONE]. All streams get their next event together,
 * once in PACE_US microseconds, as an engine's step loop does it: a proxy is then woken for every event. GET /counts
 * tells what was answered since the start; every other GET gets an answer that health checks take for a model server's.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum kind { LISTENER, TIMER, CLIENT };

struct peer {
    enum kind kind;
    int fd;
    char *in; /* what came and is not answered yet; always ends in a zero that is not counted */
    size_t length, room;
    long left;                  /* events still to send, of a running stream */
    struct peer *before, *next; /* in the ring of running streams */
};

static int poller;
static long events_each;
static struct peer running = {.before = &running, .next = &running};
static struct { long requests, streams, events, broken; } counted;

static char json[1024], event[512], models[512];
static int json_length, event_length, models_length;

#define HEAD(type) "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: upstream\r\ncontent-type: " type "\r\n"
static const char stream_head[] = HEAD("text/event-stream; charset=utf-8") "transfer-encoding: chunked\r\n\r\n";
static const char stream_end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
static const char not_found[] = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void write_answers(void) {
    char body[600], text[200];
    memset(text, 'y', sizeof text);
    int length = snprintf(body, sizeof body,
                          "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"model\":\"m\",\"choices\":[{\"index\":0,"
                          "\"message\":{\"role\":\"assistant\",\"content\":\"%.*s\"},\"finish_reason\":\"stop\"}],"
                          "\"usage\":{\"prompt_tokens\":512,\"completion_tokens\":64,\"total_tokens\":576}}",
                          185, text);
    json_length = snprintf(json, sizeof json, HEAD("application/json") "content-length: %d\r\n\r\n%s", length, body);
    length = snprintf(body, sizeof body,
                      "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1767225600,"
                      "\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,"
                      "\"finish_reason\":null}]}\n\n");
    event_length = snprintf(event, sizeof event, "%x\r\n%s\r\n", length, body);
    length = snprintf(body, sizeof body,
                      "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}],\"model_path\":\"m\","
                      "\"served_model_name\":\"m\",\"is_generation\":true,\"version\":\"1\",\"status\":\"ok\"}");
    models_length = snprintf(models, sizeof models, HEAD("application/json") "content-length: %d\r\n\r\n%s", length, body);
}

/* The answers are far smaller than a socket's buffer, so one that does not fit means a client that stopped reading. */
static int put(struct peer *to, const char *bytes, size_t length) {
    return send(to->fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static void leave_ring(struct peer *stream) {
    if (!stream->next) return;
    stream->before->next = stream->next;
    stream->next->before = stream->before;
    stream->before = stream->next = NULL;
}

static void drop(struct peer *client) {
    if (client->next) counted.broken++;
    leave_ring(client);
    close(client->fd);
    free(client->in);
    free(client);
}

static int begin_stream(struct peer *client) {
    counted.streams++;
    client->left = events_each;
    client->next = running.next;
    client->before = &running;
    running.next->before = client;
    running.next = client;
    return put(client, stream_head, sizeof stream_head - 1);
}

static void step_all(void) {
    for (struct peer *stream = running.next, *after; stream != &running; stream = after) {
        after = stream->next;
        if (stream->left-- > 0) {
            counted.events++;
            /* A failing one is dropped when its own event says so: it may be among those already fetched. */
            if (!put(stream, event, event_length)) shutdown(stream->fd, SHUT_RDWR);
            continue;
        }
        leave_ring(stream);
        counted.events++;
        if (!put(stream, stream_end, sizeof stream_end - 1)) shutdown(stream->fd, SHUT_RDWR);
    }
}

static int tell_counts(struct peer *client) {
    char body[200], answer[400];
    int length = snprintf(body, sizeof body, "{\"requests\":%ld,\"streams\":%ld,\"events\":%ld,\"broken\":%ld}",
                          counted.requests, counted.streams, counted.events, counted.broken);
    length = snprintf(answer, sizeof answer, HEAD("application/json") "content-length: %d\r\n\r\n%s", length, body);
    return put(client, answer, length);
}

static int answer(struct peer *client, const char *head, const char *body, size_t length) {
    if (!strncmp(head, "GET /counts ", 12)) return tell_counts(client);
    if (strncmp(head, "POST ", 5)) return put(client, models, models_length);
    if (strncmp(head + 5, "/v1/chat/completions ", 21)) return put(client, not_found, sizeof not_found - 1);
    counted.requests++;
    if (memmem(body, length, "\"stream\":true", 13) || memmem(body, length, "\"stream\": true", 14))
        return begin_stream(client);
    return put(client, json, json_length);
}

static const char *header(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strchr(head, '\n'); line; line = strchr(line + 1, '\n'))
        if (!strncasecmp(line + 1, name, length)) return line + 1 + length;
    return NULL;
}

/* The length of the body as it lies in the buffer, or -1 while some of it is missing. */
static long body_length(const char *head, const char *body, size_t there) {
    const char *said = header(head, "content-length:");
    if (said) {
        size_t length = strtoul(said, NULL, 10);
        return length <= there ? (long)length : -1;
    }
    if (!header(head, "transfer-encoding:")) return 0;
    const char *end = memmem(body, there, "\r\n0\r\n\r\n", 7); /* JSON holds no bare line break */
    return end ? end + 7 - body : -1;
}

static int answer_all(struct peer *client) {
    for (;;) {
        char *end = memmem(client->in, client->length, "\r\n\r\n", 4);
        if (!end) return 1;
        char *body = end + 4;
        end[2] = 0;
        long length = body_length(client->in, body, client->length - (body - client->in));
        int fine = length < 0 || answer(client, client->in, body, length);
        end[2] = '\r';
        if (length < 0 || !fine) return fine;
        size_t used = body - client->in + length;
        client->length -= used;
        memmove(client->in, client->in + used, client->length);
    }
}

static void take(struct peer *client) {
    if (client->room - client->length < 65536) {
        client->room = client->room * 2 + 131072;
        client->in = realloc(client->in, client->room + 1);
        if (!client->in) fail("realloc");
    }
    ssize_t got = recv(client->fd, client->in + client->length, client->room - client->length, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) client->length += got;
    if (got <= 0 || !answer_all(client)) drop(client);
}

static struct peer *watch(int fd, enum kind kind) {
    struct peer *made = calloc(1, sizeof *made);
    if (!made || fd < 0) fail("upstream");
    made->fd = fd;
    made->kind = kind;
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = made};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &wanted)) fail("epoll_ctl");
    return made;
}

static void greet(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(fd, CLIENT);
    }
}

static int listen_somewhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 4096)) fail("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    watch(fd, LISTENER);
    return ntohs(address.sin_port);
}

static void start_clock(long pace_us) {
    struct timespec pace = {pace_us / 1000000, pace_us % 1000000 * 1000};
    struct itimerspec every = {pace, pace};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (timerfd_settime(fd, 0, &every, NULL)) fail("timerfd");
    watch(fd, TIMER);
}

int main(int count, char **given) {
    if (count != 4 || atol(given[1]) <= 0) {
        fprintf(stderr, "usage: upstream PACE_US EVENTS PORTS\n");
        return 2;
    }
    poller = epoll_create1(0);
    events_each = atol(given[2]);
    write_answers();
    for (int at = 0; at < atoi(given[3]); at++) printf("%s%d", at ? " " : "", listen_somewhere());
    printf("\n");
    fflush(stdout);
    start_clock(atol(given[1]));
    for (;;) {
        struct epoll_event ready[256];
        int found = epoll_wait(poller, ready, 256, -1);
        for (int at = 0; at < found; at++) {
            struct peer *peer = ready[at].data.ptr;
            uint64_t ticks;
            if (peer->kind == LISTENER) greet(peer->fd);
            else if (peer->kind == CLIENT) take(peer);
            else if (read(peer->fd, &ticks, sizeof ticks) > 0) step_all();
        }
    }
}
