/* What the programs here that make load have in common: threads, latencies, the report in JSON.
 *
 * Each 4 KiB block of a disk begins with its number (64 bits, little-endian, as `measure.py` fills
 * them); writes keep that and reads check it. */
#include <endian.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { PAGE = 4096, DEPTH_MAX = 128, WORKERS_MAX = 64, BLOCK_MAX = 1 << 20 };
enum { SILENCE_MS = 10000, SUB_BUCKETS = 64, BUCKETS = 64 * SUB_BUCKETS };

/* PROGRAM is the name that messages begin with. */
#define FAIL(...) (fprintf(stderr, PROGRAM ": " __VA_ARGS__), fputc('\n', stderr), exit(1))

/* One thread of the load: the first member of what it works with. */
struct worker {
    pthread_t thread;
    uint64_t random, requests, latency_ns, last_ns;
    uint64_t histogram[BUCKETS];
};

static pthread_barrier_t start;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void *allocate(size_t length)
{
    void *memory = NULL;
    if (posix_memalign(&memory, PAGE, length))
        FAIL("no memory");
    memset(memory, 0, length);
    return memory;
}

static uint64_t next_random(struct worker *worker)
{
    /* xorshift64, Marsaglia 2003. */
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

/* Writes the numbers of a block's pages. */
static void number_pages(char *data, uint32_t block, uint64_t offset)
{
    for (uint32_t at = 0; at < block; at += PAGE) {
        uint64_t number = htole64((offset + at) / PAGE);
        memcpy(data + at, &number, 8);
    }
}

/* Ends the program unless the pages of a block that was read have their numbers. */
static void check_pages(const char *data, uint32_t block, uint64_t offset)
{
    for (uint32_t at = 0; at < block; at += PAGE) {
        uint64_t number, wanted = (offset + at) / PAGE;
        memcpy(&number, data + at, 8);
        if (le64toh(number) != wanted)
            FAIL("other data than the disk's at block %llu", (unsigned long long)wanted);
    }
}

/* Buckets of 1/64 of a power of two. */
static int bucket_of(uint64_t ns)
{
    if (ns < SUB_BUCKETS)
        return ns;
    int shift = 63 - __builtin_clzll(ns) - 6;
    return (shift + 1) * SUB_BUCKETS + (ns >> shift) - SUB_BUCKETS;
}

static double bucket_us(int bucket)
{
    int shift = bucket / SUB_BUCKETS - 1;
    if (shift < 0)
        return bucket / 1e3;
    return ((bucket % SUB_BUCKETS + SUB_BUCKETS + 0.5) * (double)(1ull << shift)) / 1e3;
}

static double percentile_us(const uint64_t *histogram, uint64_t requests, double share)
{
    uint64_t wanted = requests * share, seen = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        if ((seen += histogram[bucket]) > wanted)
            return bucket_us(bucket);
    return 0;
}

/* Counts a request that was sent at one time and answered at another. */
static void count_request(struct worker *worker, uint64_t sent_ns, uint64_t ns)
{
    worker->requests++;
    worker->latency_ns += ns - sent_ns;
    worker->histogram[bucket_of(ns - sent_ns)]++;
    worker->last_ns = ns;
}

/* Runs the threads of all workers at the same time, and prints what they did. Each passes the
 * barrier `start` first. */
static void run_load(struct worker **workers, uint32_t workers_n, void *(*run)(void *))
{
    pthread_barrier_init(&start, NULL, workers_n + 1);
    for (uint32_t number = 0; number < workers_n; number++) {
        workers[number]->random = 0x9e3779b97f4a7c15ull * (number + 1);
        pthread_create(&workers[number]->thread, NULL, run, workers[number]);
    }
    struct rusage before, after;
    pthread_barrier_wait(&start);
    getrusage(RUSAGE_SELF, &before);
    uint64_t begin_ns = now_ns(), last_ns = 0, requests = 0, latency_ns = 0;
    static uint64_t histogram[BUCKETS];
    for (uint32_t number = 0; number < workers_n; number++) {
        struct worker *worker = workers[number];
        pthread_join(worker->thread, NULL);
        requests += worker->requests;
        latency_ns += worker->latency_ns;
        last_ns = worker->last_ns > last_ns ? worker->last_ns : last_ns;
        for (int bucket = 0; bucket < BUCKETS; bucket++)
            histogram[bucket] += worker->histogram[bucket];
    }
    getrusage(RUSAGE_SELF, &after);
    double cpu_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec
                     + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1e6
        + after.ru_utime.tv_usec - before.ru_utime.tv_usec
        + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    printf("{\"requests\": %llu, \"seconds\": %.4f, \"mean_us\": %.2f, \"p50_us\": %.2f, "
           "\"p99_us\": %.2f, \"cpu_us\": %.3f}\n",
           (unsigned long long)requests, (last_ns - begin_ns) / 1e9, latency_ns / 1e3 / requests,
           percentile_us(histogram, requests, 0.5), percentile_us(histogram, requests, 0.99),
           cpu_us / requests);
}
