/* Requests and replies of the NBD protocol: github.com/NetworkBlockDevice/nbd, doc/proto.md. */
#include <stdint.h>

#define REQUEST_MAGIC 0x25609513u
#define REPLY_MAGIC 0x67446698u

enum { READ = 0, WRITE = 1, DISCONNECT = 2, FLUSH = 3 };

/* All fields are in network order but the cookie, which comes back as it was sent. */
struct __attribute__((packed)) request {
    uint32_t magic;
    uint16_t flags, type;
    uint64_t cookie, offset;
    uint32_t length;
};

struct __attribute__((packed)) reply {
    uint32_t magic, error;
    uint64_t cookie;
};
