/* NBD server that only moves bytes: the floor that `make bench-nbd` compares servers with.
 *
 * A thread serves each connection: it receives whatever has arrived, calls pread or pwrite for each
 * request (the first copy) and sends the replies of the batch with one sendmsg (the second copy).
 * Scheduling, limits, accounting and recovery are left out, and a broken client is cut off.
 *
 *     nbd_floor SOCKET DIRECTORY      serves each file of DIRECTORY as the export of its name
 */
#define _GNU_SOURCE
#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "nbd_wire.h"

/* Numbers of the protocol: github.com/NetworkBlockDevice/nbd, doc/proto.md. */
enum { FIXED_NEWSTYLE = 1, NO_ZEROES = 2 };
enum { OPT_EXPORT_NAME = 1, OPT_ABORT = 2, OPT_INFO = 6, OPT_GO = 7 };
enum { ACK = 1, INFO = 3, UNSUPPORTED = (int)0x80000001 };
enum { HAS_FLAGS = 1, SEND_FLUSH = 4, MULTI_CONN = 0x100 };

enum { OPTION_MAX = 4096, IN_BYTES = 8 << 20, OUT_BYTES = 8 << 20, BATCH = 512 };

/* Replies that wait for the end of their batch, with the data of reads. */
struct batch {
    struct reply replies[BATCH];
    struct iovec ranges[2 * BATCH];
    int replies_n, ranges_n;
    char *data;
    size_t used;
};

static const char *directory;

static int receive_exactly(int sock, void *to, size_t length)
{
    return recv(sock, to, length, MSG_WAITALL) == (ssize_t)length ? 0 : -1;
}

static int send_exactly(int sock, const void *from, size_t length)
{
    return send(sock, from, length, MSG_NOSIGNAL) == (ssize_t)length ? 0 : -1;
}

/* Sends all ranges of a batch and empties it. */
static int send_batch(int sock, struct batch *batch)
{
    struct iovec *range = batch->ranges;
    int left = batch->ranges_n;
    while (left > 0) {
        struct msghdr message = { .msg_iov = range, .msg_iovlen = left };
        ssize_t sent = sendmsg(sock, &message, MSG_NOSIGNAL);
        if (sent <= 0)
            return -1;
        for (; left > 0 && (size_t)sent >= range->iov_len; left--, range++)
            sent -= range->iov_len;
        if (left > 0) {
            range->iov_base = (char *)range->iov_base + sent;
            range->iov_len -= sent;
        }
    }
    batch->replies_n = batch->ranges_n = 0;
    batch->used = 0;
    return 0;
}

static int open_export(const char *name, uint32_t length, uint64_t *size)
{
    char path[OPTION_MAX + 512];
    struct stat status;
    snprintf(path, sizeof path, "%s/%.*s", directory, (int)length, name);
    int file = memchr(name, '/', length) ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 && fstat(file, &status) == 0) {
        *size = status.st_size;
        return file;
    }
    return -1;
}

static int answer_option(int sock, uint32_t option, uint32_t type, const void *data, uint32_t length)
{
    char out[64];
    uint64_t magic = htobe64(0x3e889045565a9ull);
    uint32_t words[3] = { htobe32(option), htobe32(type), htobe32(length) };
    memcpy(out, &magic, 8);
    memcpy(out + 8, words, 12);
    if (length > 0)
        memcpy(out + 20, data, length);
    return send_exactly(sock, out, 20 + length);
}

/* Negotiates until the client has chosen an export; returns its file. */
static int shake_hands(int sock)
{
    char data[OPTION_MAX];
    uint32_t client_flags;
    uint16_t flags = htobe16(FIXED_NEWSTYLE | NO_ZEROES);
    memcpy(data, "NBDMAGICIHAVEOPT", 16);
    memcpy(data + 16, &flags, 2);
    if (send_exactly(sock, data, 18) || receive_exactly(sock, &client_flags, 4))
        return -1;
    for (;;) {
        struct __attribute__((packed)) { uint64_t magic; uint32_t option, length; } head;
        if (receive_exactly(sock, &head, sizeof head))
            return -1;
        uint32_t option = be32toh(head.option), length = be32toh(head.length);
        if (length > OPTION_MAX || (length > 0 && receive_exactly(sock, data, length)))
            return -1;
        struct __attribute__((packed)) { uint16_t type; uint64_t size; uint16_t flags; } info = { 0 };
        uint32_t name_length = length;
        char *name = data;
        if (option == OPT_GO || option == OPT_INFO) {
            if (length < 6)
                return -1;
            memcpy(&name_length, data, 4);
            name_length = be32toh(name_length);
            name += 4;
            if (name_length > length - 6)
                return -1;
        } else if (option != OPT_EXPORT_NAME) {
            if (option == OPT_ABORT || answer_option(sock, option, UNSUPPORTED, "", 0))
                return -1;
            continue;
        }
        uint64_t size;
        int file = open_export(name, name_length, &size);
        if (file < 0)
            return -1;
        info.size = htobe64(size);
        info.flags = htobe16(HAS_FLAGS | SEND_FLUSH | MULTI_CONN);
        int failed;
        if (option == OPT_EXPORT_NAME) {
            char zeroes[10 + 124] = { 0 };
            memcpy(zeroes, &info.size, 8);
            memcpy(zeroes + 8, &info.flags, 2);
            failed = send_exactly(sock, zeroes, be32toh(client_flags) & NO_ZEROES ? 10 : 134);
        } else {
            failed = answer_option(sock, option, INFO, &info, sizeof info)
                || answer_option(sock, option, ACK, "", 0);
        }
        if (!failed && option != OPT_INFO)
            return file;
        close(file);
        if (failed)
            return -1;
    }
}

/* Serves the requests that `in` holds whole; returns the bytes used, or -1. */
static ssize_t serve_received(int sock, int file, char *in, size_t have, struct batch *batch)
{
    size_t at = 0;
    while (have - at >= sizeof(struct request)) {
        struct request request;
        memcpy(&request, in + at, sizeof request);
        uint16_t type = be16toh(request.type);
        uint64_t offset = be64toh(request.offset);
        uint32_t length = be32toh(request.length);
        if (be32toh(request.magic) != REQUEST_MAGIC || type == DISCONNECT || type > FLUSH
            || (type != FLUSH && length > IN_BYTES / 2))
            return -1;
        size_t whole = sizeof request + (type == WRITE ? length : 0);
        if (have - at < whole)
            break;
        if (batch->replies_n == BATCH || batch->used + length > OUT_BYTES)
            if (send_batch(sock, batch))
                return -1;
        struct reply *reply = &batch->replies[batch->replies_n++];
        *reply = (struct reply){ htobe32(REPLY_MAGIC), 0, request.cookie };
        batch->ranges[batch->ranges_n++] = (struct iovec){ reply, sizeof *reply };
        if (type == WRITE) {
            if (pwrite(file, in + at + sizeof request, length, offset) != (ssize_t)length)
                return -1;
        } else if (type == READ) {
            char *data = batch->data + batch->used;
            if (pread(file, data, length, offset) != (ssize_t)length)
                return -1;
            batch->used += length;
            batch->ranges[batch->ranges_n++] = (struct iovec){ data, length };
        } else if (fdatasync(file)) {
            return -1;
        }
        at += whole;
    }
    return at;
}

static void *serve(void *argument)
{
    int sock = (int)(intptr_t)argument;
    int file = shake_hands(sock);
    char *in = malloc(IN_BYTES);
    struct batch *batch = calloc(1, sizeof *batch);
    batch->data = malloc(OUT_BYTES);
    size_t have = 0;
    while (file >= 0) {
        ssize_t got = recv(sock, in + have, IN_BYTES - have, 0);
        if (got <= 0)
            break;
        have += got;
        ssize_t used = serve_received(sock, file, in, have, batch);
        if (used < 0 || send_batch(sock, batch))
            break;
        have -= used;
        memmove(in, in + used, have);
    }
    if (file >= 0)
        close(file);
    close(sock);
    free(batch->data);
    free(batch);
    free(in);
    return NULL;
}

int main(int count, char **arguments)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (count != 3 || strlen(arguments[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: nbd_floor SOCKET DIRECTORY\n");
        return 2;
    }
    directory = arguments[2];
    strcpy(address.sun_path, arguments[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) {
        perror(arguments[1]);
        return 1;
    }
    puts("listening");
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        int sock = accept(listener, NULL, NULL);
        if (sock >= 0 && pthread_create(&thread, NULL, serve, (void *)(intptr_t)sock) == 0)
            pthread_detach(thread);
    }
}
