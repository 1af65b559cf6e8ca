/* Guests of vhost-user disks: the load of `make bench-vhost`, both front-end and driver.
 *
 * Each guest has a thread, one split virtqueue in memory of its own, and DEPTH requests
 * outstanding: it takes all answers that are there and makes as many new requests available at
 * once, each by a descriptor with an indirect table as Linux's driver has it. Kicks and
 * notifications follow event indices. Offsets are random and aligned to BLOCK; reads check what
 * they get (load.h).
 *
 *     vhost_guest SOCKETS RW BLOCK DEPTH WAIT SECONDS BYTES
 *
 * SOCKETS are separated by commas, a guest for each. RW is read, write or mixed (70 % reads). WAIT
 * is notify (sleeps until it is notified, as a guest does) or poll (looks at the used ring all the
 * time). BYTES of each disk are used. Prints JSON: requests, seconds, the latencies' mean_us,
 * p50_us and p99_us, and the guests' CPU, cpu_us.
 */
#define _GNU_SOURCE
#define PROGRAM "vhost_guest"
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "load.h"

/* Messages and flags of vhost-user: qemu.org/docs/master/interop/vhost-user.html. */
enum { GET_FEATURES = 1, SET_FEATURES = 2, SET_OWNER = 3, SET_MEM_TABLE = 5, SET_VRING_NUM = 8,
       SET_VRING_ADDR = 9, SET_VRING_BASE = 10, GET_VRING_BASE = 11, SET_VRING_KICK = 12,
       SET_VRING_CALL = 13, GET_PROTOCOL_FEATURES = 15, SET_PROTOCOL_FEATURES = 16,
       SET_VRING_ENABLE = 18, GET_CONFIG = 24 };
enum { VERSION = 1, REPLY = 4, PAYLOAD_MAX = 256 };
#define PROTOCOL_MQ (1ull << 0)
#define PROTOCOL_CONFIG (1ull << 9)

/* Numbers of virtio 1.2, sections 2.7, 5.2 and 6. */
#define FLUSH (1ull << 9)
#define INDIRECT_DESC (1ull << 28)
#define EVENT_IDX (1ull << 29)
#define PROTOCOL_FEATURES (1ull << 30)
#define VERSION_1 (1ull << 32)
#define FEATURES (FLUSH | INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1)
enum { READ = 0, WRITE = 1, NEXT = 1, WRITTEN = 2, INDIRECT = 4, SECTOR = 512, UNANSWERED = 0xee };

#ifdef __x86_64__
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() ((void)0)
#endif

enum { ENTRIES = 256, READ_PERCENT = 70, LOOKS = 1024, FIRST_ADDRESS = 1 << 20 };

struct descriptor {
    uint64_t address;
    uint32_t length;
    uint16_t flags, next;
};

struct header {
    uint32_t type, reserved;
    uint64_t sector;
};

struct available {
    uint16_t flags, index, ring[ENTRIES], notify_at;
};

struct used {
    uint16_t flags, index;
    struct { uint32_t head, written; } ring[ENTRIES];
    uint16_t kick_at;
};

/* Memory of a guest; the data of its requests follow. */
struct memory {
    _Alignas(PAGE) struct descriptor descriptors[ENTRIES];
    _Alignas(PAGE) struct available available;
    _Alignas(PAGE) struct used used;
    _Alignas(PAGE) struct descriptor tables[DEPTH_MAX][3];
    _Alignas(PAGE) struct { struct header header; _Alignas(64) uint8_t status; } slots[DEPTH_MAX];
    _Alignas(PAGE) char data[];
};

struct guest {
    struct worker worker;
    int sock, kick, call, memory_fd;
    size_t memory_length;
    struct memory *memory;
    uint16_t available, used;
    uint32_t outstanding, free_n, free[DEPTH_MAX];
    uint64_t sent_ns[DEPTH_MAX];
};

static const char *kind;
static uint32_t block, depth, seconds;
static uint64_t bytes;
static int polls;

struct message {
    uint32_t request, flags, size;
    union {
        uint64_t number;
        struct { uint32_t index, value; } state;
        struct {
            uint32_t index, flags;
            uint64_t descriptors, used, available, log;
        } addresses;
        struct { uint32_t regions, padding; uint64_t guest, length, user, offset; } table;
        struct { uint32_t offset, size, flags; uint8_t space[PAYLOAD_MAX - 12]; } config;
        uint8_t bytes[PAYLOAD_MAX];
    } __attribute__((packed));
} __attribute__((packed));

enum { HEAD = 12 };

static void send_message(struct guest *g, struct message *message, uint32_t size, int fd)
{
    message->flags = VERSION;
    message->size = size;
    struct iovec range = { message, HEAD + size };
    char control[CMSG_SPACE(sizeof fd)] = { 0 };
    struct msghdr head = { .msg_iov = &range, .msg_iovlen = 1 };
    if (fd >= 0) {
        head.msg_control = control;
        head.msg_controllen = sizeof control;
        struct cmsghdr *files = CMSG_FIRSTHDR(&head);
        files->cmsg_level = SOL_SOCKET;
        files->cmsg_type = SCM_RIGHTS;
        files->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(files), &fd, sizeof fd);
    }
    if (sendmsg(g->sock, &head, MSG_NOSIGNAL) != (ssize_t)range.iov_len)
        FAIL("message %u: %s", message->request, strerror(errno));
}

static void send_number(struct guest *g, uint32_t request, uint64_t number, int fd)
{
    struct message message = { .request = request, .number = number };
    send_message(g, &message, sizeof message.number, fd);
}

static void send_state(struct guest *g, uint32_t request, uint32_t value)
{
    struct message message = { .request = request, .state = { 0, value } };
    send_message(g, &message, sizeof message.state, -1);
}

static void receive_exactly(struct guest *g, void *to, size_t length)
{
    if (length > 0 && recv(g->sock, to, length, MSG_WAITALL) != (ssize_t)length)
        FAIL("the server left a message without an answer");
}

static void receive_reply(struct guest *g, uint32_t request, struct message *message)
{
    receive_exactly(g, message, HEAD);
    if (message->request != request || !(message->flags & REPLY) || message->size > PAYLOAD_MAX)
        FAIL("no answer to message %u", request);
    receive_exactly(g, message->bytes, message->size);
}

static uint64_t get_number(struct guest *g, uint32_t request)
{
    struct message message = { .request = request };
    send_message(g, &message, 0, -1);
    receive_reply(g, request, &message);
    return message.number;
}

static void check_capacity(struct guest *g)
{
    struct message message = { .request = GET_CONFIG, .config = { .size = sizeof(uint64_t) } };
    send_message(g, &message, 12 + sizeof(uint64_t), -1);
    receive_reply(g, GET_CONFIG, &message);
    uint64_t sectors;
    memcpy(&sectors, message.config.space, sizeof sectors);
    if (le64toh(sectors) < bytes / SECTOR)
        FAIL("the disk has %llu sectors", (unsigned long long)le64toh(sectors));
}

/* Negotiates features, passes the memory, and starts the queue. */
static void start_device(struct guest *g)
{
    struct message message = { .request = SET_OWNER };
    send_message(g, &message, 0, -1);
    uint64_t features = get_number(g, GET_FEATURES);
    if ((features & FEATURES) != FEATURES)
        FAIL("features %#llx", (unsigned long long)features);
    uint64_t protocol = get_number(g, GET_PROTOCOL_FEATURES);
    if (!(protocol & PROTOCOL_CONFIG))
        FAIL("protocol features %#llx", (unsigned long long)protocol);
    send_number(g, SET_PROTOCOL_FEATURES, protocol & (PROTOCOL_MQ | PROTOCOL_CONFIG), -1);
    send_number(g, SET_FEATURES, FEATURES, -1);
    check_capacity(g);
    uint64_t user = (uintptr_t)g->memory;
    message = (struct message){ .request = SET_MEM_TABLE,
                                .table = { 1, 0, FIRST_ADDRESS, g->memory_length, user, 0 } };
    send_message(g, &message, sizeof message.table, g->memory_fd);
    send_state(g, SET_VRING_NUM, ENTRIES);
    send_state(g, SET_VRING_BASE, 0);
    message = (struct message){ .request = SET_VRING_ADDR,
                                .addresses = { 0, 0, (uintptr_t)g->memory->descriptors,
                                               (uintptr_t)&g->memory->used,
                                               (uintptr_t)&g->memory->available, 0 } };
    send_message(g, &message, sizeof message.addresses, -1);
    send_number(g, SET_VRING_CALL, 0, g->call);
    send_number(g, SET_VRING_KICK, 0, g->kick);
    send_state(g, SET_VRING_ENABLE, 1);
    /* Messages are handled in order: with its answer the queue runs. */
    get_number(g, GET_FEATURES);
}

static uint64_t guest_address(struct guest *g, const void *at)
{
    return FIRST_ADDRESS + ((const char *)at - (const char *)g->memory);
}

static struct guest *open_guest(const char *path)
{
    struct guest *g = allocate(sizeof *g);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    g->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval silence = { .tv_sec = SILENCE_MS / 1000 };
    setsockopt(g->sock, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    if (connect(g->sock, (struct sockaddr *)&address, sizeof address))
        FAIL("%s: %s", path, strerror(errno));
    g->memory_length = sizeof *g->memory + (size_t)DEPTH_MAX * block;
    g->memory_fd = memfd_create("guest", MFD_CLOEXEC);
    if (g->memory_fd < 0 || ftruncate(g->memory_fd, g->memory_length))
        FAIL("no memory: %s", strerror(errno));
    g->memory = mmap(NULL, g->memory_length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                     g->memory_fd, 0);
    g->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    g->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->memory == MAP_FAILED || g->kick < 0 || g->call < 0)
        FAIL("no memory: %s", strerror(errno));
    for (uint32_t slot = 0; slot < depth; slot++) {
        struct memory *memory = g->memory;
        struct descriptor *table = memory->tables[slot];
        void *header = &memory->slots[slot].header, *status = &memory->slots[slot].status;
        void *data = memory->data + (size_t)slot * block;
        memory->descriptors[slot] = (struct descriptor){ guest_address(g, table),
                                                         sizeof memory->tables[slot], INDIRECT, 0 };
        table[0] = (struct descriptor){ guest_address(g, header), sizeof(struct header), NEXT, 1 };
        table[1] = (struct descriptor){ guest_address(g, data), block, NEXT, 2 };
        table[2] = (struct descriptor){ guest_address(g, status), 1, WRITTEN, 0 };
        g->free[g->free_n++] = slot;
    }
    start_device(g);
    return g;
}

static int next_type(struct guest *g)
{
    if (kind[0] == 'm')
        return (next_random(&g->worker) >> 32) % 100 < READ_PERCENT ? READ : WRITE;
    return kind[0] == 'r' ? READ : WRITE;
}

/* Makes requests of all free slots available, and kicks the device if it asks for that. */
static void submit_requests(struct guest *g)
{
    struct memory *memory = g->memory;
    uint64_t sent_ns = now_ns();
    uint16_t before = g->available;
    while (g->free_n > 0) {
        uint32_t slot = g->free[--g->free_n];
        int type = next_type(g);
        uint64_t offset = (next_random(&g->worker) >> 16) % (bytes / block) * block;
        memory->slots[slot].header = (struct header){ type, 0, offset / SECTOR };
        memory->slots[slot].status = UNANSWERED;
        memory->tables[slot][1].flags = NEXT | (type == READ ? WRITTEN : 0);
        if (type == WRITE)
            number_pages(memory->data + (size_t)slot * block, block, offset);
        g->sent_ns[slot] = sent_ns;
        memory->available.ring[g->available++ % ENTRIES] = slot;
        g->outstanding++;
    }
    __atomic_store_n(&memory->available.index, g->available, __ATOMIC_RELEASE);
    /* The index must be visible before the device's wish is read. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint16_t kick_at = __atomic_load_n(&memory->used.kick_at, __ATOMIC_RELAXED);
    if ((uint16_t)(g->available - kick_at - 1) < (uint16_t)(g->available - before)
        && eventfd_write(g->kick, 1))
        FAIL("kick: %s", strerror(errno));
}

/* Takes the answers that are there; returns how many. */
static uint32_t take_answers(struct guest *g)
{
    struct memory *memory = g->memory;
    uint16_t seen = __atomic_load_n(&memory->used.index, __ATOMIC_ACQUIRE);
    uint32_t taken = 0;
    uint64_t ns = seen == g->used ? 0 : now_ns();
    for (; g->used != seen; taken++) {
        uint32_t slot = memory->used.ring[g->used++ % ENTRIES].head;
        if (slot >= depth || memory->slots[slot].status != 0)
            FAIL("slot %u: status %u", slot, slot < depth ? memory->slots[slot].status : 0);
        if (memory->slots[slot].header.type == READ)
            check_pages(memory->data + (size_t)slot * block, block,
                        memory->slots[slot].header.sector * SECTOR);
        g->free[g->free_n++] = slot;
        g->outstanding--;
        count_request(&g->worker, g->sent_ns[slot], ns);
    }
    return taken;
}

/* Asks to be notified of the next answer, and sleeps until it is there. */
static void await_notification(struct guest *g)
{
    struct memory *memory = g->memory;
    __atomic_store_n(&memory->available.notify_at, g->used, __ATOMIC_RELAXED);
    /* The wish must be visible before the index is read. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&memory->used.index, __ATOMIC_ACQUIRE) != g->used)
        return;
    struct pollfd poll_fd = { g->call, POLLIN, 0 };
    if (poll(&poll_fd, 1, SILENCE_MS) == 0)
        FAIL("no notification for %d s", SILENCE_MS / 1000);
    eventfd_t count;
    eventfd_read(g->call, &count);
}

/* Looks until an answer is there. */
static void look_for_answers(struct guest *g)
{
    /* A wish that no answer fulfils before it is renewed. */
    __atomic_store_n(&g->memory->available.notify_at, g->used - 1, __ATOMIC_RELAXED);
    uint64_t until_ns = now_ns() + SILENCE_MS * 1000000ull;
    while (now_ns() < until_ns)
        for (int look = 0; look < LOOKS; look++) {
            if (__atomic_load_n(&g->memory->used.index, __ATOMIC_ACQUIRE) != g->used)
                return;
            RELAX();
        }
    FAIL("no answer for %d s", SILENCE_MS / 1000);
}

static void *run(void *argument)
{
    struct guest *g = argument;
    pthread_barrier_wait(&start);
    uint64_t end_ns = now_ns() + seconds * 1000000000ull;
    for (;;) {
        if (g->free_n > 0 && now_ns() < end_ns)
            submit_requests(g);
        if (g->outstanding == 0)
            break;
        while (take_answers(g) == 0) {
            if (polls)
                look_for_answers(g);
            else
                await_notification(g);
        }
    }
    struct message message = { .request = GET_VRING_BASE };
    send_message(g, &message, sizeof message.state, -1);
    receive_reply(g, GET_VRING_BASE, &message);
    if (message.state.value != g->available)
        FAIL("the queue stopped at %u of %u", message.state.value, g->available);
    close(g->sock);
    return NULL;
}

int main(int count, char **arguments)
{
    if (count != 8) {
        fprintf(stderr, "usage: vhost_guest SOCKETS RW BLOCK DEPTH WAIT SECONDS BYTES\n");
        return 2;
    }
    kind = arguments[2];
    block = atoi(arguments[3]);
    depth = atoi(arguments[4]);
    polls = !strcmp(arguments[5], "poll");
    seconds = atoi(arguments[6]);
    bytes = strtoull(arguments[7], NULL, 10);
    int is_known = !strcmp(kind, "read") || !strcmp(kind, "write") || !strcmp(kind, "mixed");
    if (!is_known || block < PAGE || block > BLOCK_MAX || block % PAGE || depth < 1
        || depth > DEPTH_MAX || seconds < 1 || bytes < block
        || !(polls || !strcmp(arguments[5], "notify")))
        FAIL("no such load");

    struct worker *workers[WORKERS_MAX];
    uint32_t guests = 0;
    for (char *path = strtok(arguments[1], ","); path && guests < WORKERS_MAX;
         path = strtok(NULL, ","))
        workers[guests++] = &open_guest(path)->worker;
    if (guests == 0)
        FAIL("no such load");
    run_load(workers, guests, run);
    return 0;
}
