/* NBD client that batches: the load of `make bench-nbd`.
 *
 * Each connection has a thread, which keeps DEPTH requests outstanding: it takes all replies that
 * have arrived with one recv and sends as many new requests with one sendmsg. Offsets are random
 * and aligned to BLOCK; reads check what they get (load.h).
 *
 *     nbd_client SOCKET EXPORTS RW BLOCK DEPTH CLIENTS SECONDS BYTES
 *
 * EXPORTS are separated by commas, and connections take them in turn. RW is read, write, mixed (70 %
 * reads) or fsync (writes, a flush after every fourth). BYTES of each export are used. Prints JSON:
 * requests, seconds, the latencies' mean_us, p50_us and p99_us, and the client's CPU, cpu_us.
 */
#define _GNU_SOURCE
#define PROGRAM "nbd_client"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "load.h"
#include "nbd_wire.h"

enum { IN_BYTES = 1 << 20, FLUSH_AFTER_WRITES = 4, READ_PERCENT = 70 };

/* A request that may be outstanding; its index is the cookie. */
struct slot {
    struct request request;
    uint64_t sent_ns;
    char *data;
};

struct connection {
    struct worker worker;
    int sock, outstanding, free_n, writes_since_flush;
    const char *export;
    struct slot slots[DEPTH_MAX];
    int free[DEPTH_MAX];
    struct iovec out[2 * DEPTH_MAX];
    int out_at, out_n;
    char *in;
    size_t in_capacity, in_at, in_end;
};

static const char *path, *kind;
static uint32_t block, depth, clients, seconds;
static uint64_t bytes;

static void receive_exactly(int sock, void *to, size_t length)
{
    if (recv(sock, to, length, MSG_WAITALL) != (ssize_t)length)
        FAIL("the server ended the handshake");
}

/* Connects and chooses the export by NBD_OPT_EXPORT_NAME, which every server has. */
static int connect_to(const char *export)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(sock, (struct sockaddr *)&address, sizeof address))
        FAIL("%s: %s", path, strerror(errno));
    char greeting[18], answer[10], out[20 + 256];
    receive_exactly(sock, greeting, sizeof greeting);
    if (memcmp(greeting, "NBDMAGICIHAVEOPT", 16))
        FAIL("not an NBD server");
    uint32_t words[2] = { htobe32(1), htobe32(strlen(export)) };
    uint32_t flags = htobe32(3);
    memcpy(out, &flags, 4);
    memcpy(out + 4, "IHAVEOPT", 8);
    memcpy(out + 12, words, 8);
    memcpy(out + 20, export, strlen(export));
    if (send(sock, out, 20 + strlen(export), MSG_NOSIGNAL) < 0)
        FAIL("the server ended the handshake");
    receive_exactly(sock, answer, sizeof answer);
    uint64_t size;
    memcpy(&size, answer, 8);
    if (be64toh(size) < bytes)
        FAIL("%s has %llu bytes", export, (unsigned long long)be64toh(size));
    return sock;
}

static int next_type(struct connection *c)
{
    switch (kind[0]) {
    case 'r':
        return READ;
    case 'm':
        return (next_random(&c->worker) >> 32) % 100 < READ_PERCENT ? READ : WRITE;
    case 'f':
        if (c->writes_since_flush++ < FLUSH_AFTER_WRITES)
            return WRITE;
        c->writes_since_flush = 0;
        return FLUSH;
    default:
        return WRITE;
    }
}

/* Prepares requests of all free slots, to be sent together and behind those still unsent. */
static void prepare_requests(struct connection *c)
{
    uint64_t sent_ns = now_ns();
    c->out_n -= c->out_at;
    memmove(c->out, c->out + c->out_at, c->out_n * sizeof *c->out);
    c->out_at = 0;
    while (c->free_n > 0) {
        int index = c->free[--c->free_n];
        struct slot *slot = &c->slots[index];
        int type = next_type(c);
        uint64_t chosen = (next_random(&c->worker) >> 16) % (bytes / block) * block;
        uint64_t offset = type == FLUSH ? 0 : chosen;
        uint32_t length = type == FLUSH ? 0 : block;
        slot->sent_ns = sent_ns;
        slot->request = (struct request){ htobe32(REQUEST_MAGIC), 0, htobe16(type), htobe64(index),
                                          htobe64(offset), htobe32(length) };
        c->out[c->out_n++] = (struct iovec){ &slot->request, sizeof slot->request };
        if (type == WRITE) {
            number_pages(slot->data, block, offset);
            c->out[c->out_n++] = (struct iovec){ slot->data, block };
        }
        c->outstanding++;
    }
}

/* Sends what the socket takes of the prepared requests. */
static void send_prepared(struct connection *c)
{
    struct msghdr message = { .msg_iov = c->out + c->out_at, .msg_iovlen = c->out_n - c->out_at };
    ssize_t sent = sendmsg(c->sock, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN)
        FAIL("send: %s", strerror(errno));
    for (; c->out_at < c->out_n && sent > 0; c->out_at++) {
        struct iovec *range = &c->out[c->out_at];
        if ((size_t)sent < range->iov_len) {
            range->iov_base = (char *)range->iov_base + sent;
            range->iov_len -= sent;
            break;
        }
        sent -= range->iov_len;
    }
}

/* Takes the replies that are in the buffer whole. */
static void take_replies(struct connection *c)
{
    uint64_t ns = now_ns();
    while (c->in_end - c->in_at >= sizeof(struct reply)) {
        struct reply reply;
        memcpy(&reply, c->in + c->in_at, sizeof reply);
        uint64_t index = be64toh(reply.cookie);
        if (be32toh(reply.magic) != REPLY_MAGIC || reply.error || index >= depth)
            FAIL("a reply with error %u", be32toh(reply.error));
        struct slot *slot = &c->slots[index];
        int is_read = slot->request.type == htobe16(READ);
        size_t whole = sizeof reply + (is_read ? block : 0);
        if (c->in_end - c->in_at < whole)
            break;
        if (is_read)
            check_pages(c->in + c->in_at + sizeof reply, block, be64toh(slot->request.offset));
        c->in_at += whole;
        c->free[c->free_n++] = index;
        c->outstanding--;
        count_request(&c->worker, slot->sent_ns, ns);
    }
    size_t left = c->in_end - c->in_at;
    if (left == 0 || c->in_capacity - c->in_at < block + sizeof(struct reply)) {
        memmove(c->in, c->in + c->in_at, left);
        c->in_at = 0;
        c->in_end = left;
    }
}

/* Waits until there is something to receive, or room for what is yet to be sent. */
static void wait_for_socket(struct connection *c)
{
    short events = POLLIN | (c->out_at < c->out_n ? POLLOUT : 0);
    struct pollfd poll_fd = { c->sock, events, 0 };
    if (poll(&poll_fd, 1, SILENCE_MS) == 0)
        FAIL("no reply for %d s", SILENCE_MS / 1000);
}

static void *run(void *argument)
{
    struct connection *c = argument;
    pthread_barrier_wait(&start);
    uint64_t end_ns = now_ns() + seconds * 1000000000ull;
    for (;;) {
        if (c->free_n > 0 && now_ns() < end_ns)
            prepare_requests(c);
        int unsent = c->out_at < c->out_n;
        if (unsent)
            send_prepared(c);
        if (c->outstanding == 0)
            break;
        unsent = c->out_at < c->out_n;
        if (unsent)
            wait_for_socket(c);
        ssize_t got = recv(c->sock, c->in + c->in_end, c->in_capacity - c->in_end,
                           unsent ? MSG_DONTWAIT : 0);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            FAIL("the server went away");
        if (got < 0 && !unsent)
            FAIL("no reply for %d s", SILENCE_MS / 1000);
        if (got > 0) {
            c->in_end += got;
            take_replies(c);
        }
    }
    struct request bye = { .magic = htobe32(REQUEST_MAGIC), .type = htobe16(DISCONNECT) };
    if (send(c->sock, &bye, sizeof bye, MSG_NOSIGNAL) < 0)
        FAIL("the server went away");
    return NULL;
}

static struct connection *open_connection(int number, char **exports, int exports_n)
{
    struct connection *c = allocate(sizeof *c);
    struct timeval silence = { .tv_sec = SILENCE_MS / 1000 };
    c->sock = connect_to(exports[number % exports_n]);
    setsockopt(c->sock, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    c->in_capacity = IN_BYTES + block + sizeof(struct reply);
    c->in = allocate(c->in_capacity);
    for (uint32_t index = 0; index < depth; index++) {
        c->slots[index].data = allocate(block);
        c->free[c->free_n++] = index;
    }
    return c;
}

int main(int count, char **arguments)
{
    if (count != 9) {
        fprintf(stderr, "usage: nbd_client SOCKET EXPORTS RW BLOCK DEPTH CLIENTS SECONDS BYTES\n");
        return 2;
    }
    char *exports[WORKERS_MAX];
    int exports_n = 0;
    path = arguments[1];
    for (char *name = strtok(arguments[2], ","); name && exports_n < WORKERS_MAX;
         name = strtok(NULL, ","))
        exports[exports_n++] = name;
    kind = arguments[3];
    block = atoi(arguments[4]);
    depth = atoi(arguments[5]);
    clients = atoi(arguments[6]);
    seconds = atoi(arguments[7]);
    bytes = strtoull(arguments[8], NULL, 10);
    int is_known = !strcmp(kind, "read") || !strcmp(kind, "write") || !strcmp(kind, "mixed")
        || !strcmp(kind, "fsync");
    if (!is_known || exports_n == 0 || block < PAGE || block > BLOCK_MAX || block % PAGE
        || depth < 1 || depth > DEPTH_MAX || clients < 1 || clients > WORKERS_MAX || seconds < 1
        || bytes < block)
        FAIL("no such load");

    struct worker *workers[WORKERS_MAX];
    for (uint32_t number = 0; number < clients; number++)
        workers[number] = &open_connection(number, exports, exports_n)->worker;
    run_load(workers, clients, run);
    return 0;
}
