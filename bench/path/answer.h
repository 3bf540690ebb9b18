/* One answer as it comes: HTTP/1.1 with a length, in chunks, or until the connection closes; server-sent events counted. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEAD_ROOM = 16384 };
enum part { HEAD, SIZED, UNTIL_CLOSE, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER };

struct answer {
    enum part part;
    size_t left;               /* bytes of the body, or of the chunk, to come */
    int closes, good;          /* what its head says: the connection ends with it; status 200 */
    int line, newline;         /* line: characters on this line; newline: the last byte of the body was one */
    long events;
    size_t headed;
    char head[HEAD_ROOM + 1];
};

static void begin_answer(struct answer *of) {
    of->part = HEAD;
    of->closes = of->newline = 0;
    of->events = 0;
    of->headed = 0;
}

static void count_events(struct answer *of, const char *bytes, size_t length) {
    const char *end = bytes + length;
    for (const char *at = bytes; at < end;) {
        if (*at == '\n' && of->newline) {
            of->newline = 0;
            of->events++;
            at++;
            continue;
        }
        const char *found = memchr(at, '\n', end - at);
        of->newline = found != NULL;
        at = found ? found + 1 : end;
    }
}

static const char *header(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strchr(head, '\n'); line; line = strchr(line + 1, '\n'))
        if (!strncasecmp(line + 1, name, length)) return line + 1 + length + strspn(line + 1 + length, " ");
    return NULL;
}

/* How much of the bytes belonged to the head; -1 where it is none. */
static long read_head(struct answer *of, const char *bytes, size_t length) {
    size_t before = of->headed, fits = HEAD_ROOM - before < length ? HEAD_ROOM - before : length;
    memcpy(of->head + before, bytes, fits);
    of->headed += fits;
    of->head[of->headed] = 0;
    char *end = strstr(of->head, "\r\n\r\n");
    if (!end) return of->headed < HEAD_ROOM ? (long)length : -1;
    end[2] = 0;
    if (strncmp(of->head, "HTTP/1.", 7)) return -1;
    const char *size = header(of->head, "content-length:"), *coding = header(of->head, "transfer-encoding:");
    const char *connection = header(of->head, "connection:");
    of->good = !strncmp(of->head + 8, " 200", 4);
    of->closes = connection && !strncasecmp(connection, "close", 5);
    of->part = coding && !strncasecmp(coding, "chunked", 7) ? CHUNK_SIZE : size ? SIZED : UNTIL_CLOSE;
    of->left = size && of->part == SIZED ? strtoul(size, NULL, 10) : 0;
    of->line = 0;
    return end + 4 - of->head - before;
}

static int digit(char byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    return (byte | 32) >= 'a' && (byte | 32) <= 'f' ? (byte | 32) - 'a' + 10 : -1;
}

/* A byte of a chunk's own lines. Says whether the answer is over, -1 where the byte does not belong there. */
static int read_framing(struct answer *of, char byte) {
    if (byte == '\r') return 0;
    if (byte != '\n') {
        if (of->part == CHUNK_END || (of->part == CHUNK_SIZE && digit(byte) < 0)) return -1;
        if (of->part == CHUNK_SIZE) of->left = of->left * 16 + digit(byte);
        of->line++;
        return 0;
    }
    int empty = !of->line;
    of->line = 0;
    if (of->part == TRAILER) return empty;
    if (of->part == CHUNK_SIZE) {
        if (empty) return -1;
        of->part = of->left ? CHUNK : TRAILER;
    } else of->part = CHUNK_SIZE;
    return 0;
}

/* Whether the answer is over with these bytes, -1 where they are none. An answer is the last thing that comes. */
static int read_answer(struct answer *of, const char *bytes, size_t length) {
    const char *end = bytes + length;
    if (of->part == HEAD) {
        long used = read_head(of, bytes, length);
        if (used < 0) return -1;
        bytes += used;
        if (of->part == SIZED && !of->left) return 1;
    }
    while (bytes < end) {
        if (of->part == SIZED || of->part == CHUNK || of->part == UNTIL_CLOSE) {
            size_t here = end - bytes;
            if (of->part != UNTIL_CLOSE && of->left < here) here = of->left;
            count_events(of, bytes, here);
            bytes += here;
            if (of->part == UNTIL_CLOSE || (of->left -= here)) continue;
            if (of->part == SIZED) return 1;
            of->part = CHUNK_END;
            continue;
        }
        int over = read_framing(of, *bytes++);
        if (over) return over;
    }
    return 0;
}
