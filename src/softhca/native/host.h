/* One attachment to an adapter process: shared memory, rings, commands.  See docs/host-interface.md. */
#ifndef SOFTHCA_HOST_H
#define SOFTHCA_HOST_H

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>

#include "softhca.h"

#define PAGE SOFTHCA_PAGE_BYTES
#define MEMORY_BYTES (16ULL << 30) /* sparse: pages cost memory when they are written */
#define MEMORY_PAGES (MEMORY_BYTES / PAGE)
#define MEMORY_SLOTS (MEMORY_PAGES / SOFTHCA_SLOT_PAGES)
#define ALL_SLOTS (1u << 20)

/* A lock that is held for a few dozen instructions. */
typedef atomic_int spinlock;

static inline void lock_spin(spinlock *lock)
{
    while (atomic_exchange_explicit(lock, 1, memory_order_acquire))
        for (int turn = 0; atomic_load_explicit(lock, memory_order_relaxed); turn++)
            if (turn >= 64)
                sched_yield();
}

static inline void unlock_spin(spinlock *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

/* One end of a ring in shared memory.  `tail` and `head` are this side's own counters. */
struct ring {
    struct softhca_ring *control;
    struct softhca_reference *references;
    unsigned char *bodies;
    uint32_t entries, body_bytes, body_tail, index;
    uint64_t tail, head;
    struct softhca_run run;
    int broken;
    void *loan;                /* where others hold its pages too: what is told when they become free */
    void (*end_loan)(void *);
};

struct bitmap {
    uint64_t *words;
    uint32_t bits, hint;
};

struct host {
    unsigned char *memory;
    int memfd, control, wake;
    uint64_t *flag;
    struct softhca_doorbells *doorbells;
    struct ring commands, replies, events;
    struct bitmap pages, slots;
    pthread_mutex_t allocating, commanding, pooling;
    uint32_t pool;        /* the first frame of the program's large blocks (buffers.h); 0: they have none */
    int pool_tried;
    uint32_t tag, in_bytes;
    int foreign;          /* errno that keeps the adapter from this process's own memory */
    atomic_int dead;      /* errno of every later call; 0: alive */
    unsigned char out[4096], in[SOFTHCA_REPLY_BYTES];
};

/* NULL and errno where it cannot be had. */
struct host *host_attach(const char *path);
void host_detach(struct host *host);
/* In a forked child: the attachment is the parent's. */
void host_abandon(struct host *host);

/* A ring of `entries` that hold `body_bytes` together; errno. */
int host_make_ring(struct host *host, struct ring *ring, uint32_t entries, uint64_t body_bytes);
void host_free_ring(struct host *host, struct ring *ring);
/* Pages of the shared memory for `bytes`, zero, and their run of frames; NULL where there are none left. */
void *host_make_pages(struct host *host, struct softhca_run *run, size_t bytes);
void host_free_pages(struct host *host, const struct softhca_run *run);
/* The first of `count` consecutive slots outside the shared memory, 0: there are none. */
uint32_t host_take_slots(struct host *host, uint32_t count);
void host_give_slots(struct host *host, uint32_t first, uint32_t count);

/* A message of the control socket, which asks for a descriptor where `passed` is not NULL; the answer's
   bytes stand in host->in.  errno.  The caller holds `commanding`. */
int host_ask(struct host *host, size_t bytes, int *passed);
/* Send the command of `bytes` in host->out and have its reply in host->in; errno. */
int host_exchange(struct host *host, size_t bytes);
/* Open an event channel: its number, and its descriptor; errno. */
int host_open_channel(struct host *host, int asynchronous, uint32_t *number, int *descriptor);
/* Pass the adapter a descriptor; commands name it by `number`; errno. */
int host_pass_descriptor(struct host *host, int descriptor, uint32_t *number);
/* Device memory of a context that is imported: a new descriptor of it, and its bytes; errno. */
int host_take_memory(struct host *host, uint32_t dm, int *descriptor, size_t *length);
/* Whether the adapter is gone, asking the kernel. */
int host_check(struct host *host);

/* EIO, now and from every later call, where an answer says what cannot be: the adapter is not to be trusted. */
int host_believe(struct host *host, int believable);

void lock_commands(struct host *host, int *cancel_state);
void unlock_commands(struct host *host, int cancel_state);

/* Why a command was refused is said on stderr where SOFTHCA_DEBUG is set. */
void host_explain(struct host *host, const char *command, int error);

static inline int decoded(int result)
{
    return result < 0 ? EIO : result;
}

/* A command with fields and without reply, with both, with a reply alone, with neither; `result` is an
   errno. */
#define CALL_(host, result, name, encode, decode)                      \
    do {                                                               \
        int cancel_state_;                                             \
        lock_commands(host, &cancel_state_);                           \
        (result) = host_exchange(host, encode);                        \
        if (!(result)) {                                               \
            (result) = decoded(decode);                                \
            if (result)                                                \
                host_explain(host, #name, result);                     \
        }                                                              \
        unlock_commands(host, cancel_state_);                          \
    } while (0)
#define CALL(host, result, name, fields, reply)                                                             \
    CALL_(host, result, name,                                                                               \
          softhca_encode_##name((host)->out, sizeof(host)->out, (host)->tag + 1, fields),                   \
          softhca_decode_##name##_reply((host)->in, (host)->in_bytes, reply))
#define TELL(host, result, name, fields)                                                                    \
    CALL_(host, result, name,                                                                               \
          softhca_encode_##name((host)->out, sizeof(host)->out, (host)->tag + 1, fields),                   \
          softhca_decode_##name##_reply((host)->in, (host)->in_bytes))
#define GET(host, result, name, reply)                                                                      \
    CALL_(host, result, name, softhca_encode_##name((host)->out, sizeof(host)->out, (host)->tag + 1),       \
          softhca_decode_##name##_reply((host)->in, (host)->in_bytes, reply))

/* Rings */

static inline uint64_t ring_filled(const struct ring *ring)
{
    return ring->tail - ring->head;
}

/* Whether there is room for one entry more; looks at the other side's counter only where it must.  Entries
   are never longer than body_bytes / entries, so that bodies have room where a reference has. */
static inline int ring_has_room(struct ring *ring)
{
    if (ring_filled(ring) < ring->entries)
        return 1;
    uint64_t head = __atomic_load_n(&ring->control->head, __ATOMIC_ACQUIRE);
    if (head - ring->head > ring_filled(ring)) {
        ring->broken = 1;
        return 0;
    }
    ring->head = head;
    return ring_filled(ring) < ring->entries;
}

static inline void ring_copy_in(struct ring *ring, uint32_t offset, const void *data, uint32_t bytes)
{
    uint32_t before_end = ring->body_bytes - offset;
    if (bytes <= before_end) {
        memcpy(ring->bodies + offset, data, bytes);
    } else {
        memcpy(ring->bodies + offset, data, before_end);
        memcpy(ring->bodies, (const char *)data + before_end, bytes - before_end);
    }
}

/* Where `bytes` can be written in one piece, NULL: they go round the end, and ring_copy_in must do it. */
static inline unsigned char *ring_place(struct ring *ring, uint32_t bytes)
{
    return bytes <= ring->body_bytes - ring->body_tail ? ring->bodies + ring->body_tail : NULL;
}

/* Append the entry of `bytes` that stands at the body's tail; it is seen from `ring_publish` on. */
static inline void ring_add(struct ring *ring, uint32_t bytes)
{
    struct softhca_reference reference = {ring->body_tail, bytes};
    uint64_t word;
    memcpy(&word, &reference, sizeof word);
    __atomic_store_n((uint64_t *)&ring->references[ring->index], word, __ATOMIC_RELAXED);
    if (++ring->index == ring->entries)
        ring->index = 0;
    ring->body_tail += bytes;
    if (ring->body_tail >= ring->body_bytes)
        ring->body_tail -= ring->body_bytes;
    ring->tail++;
}

static inline void ring_publish(struct ring *ring)
{
    __atomic_store_n(&ring->control->tail, ring->tail, __ATOMIC_RELEASE);
}

/* Copy the next entry out; its bytes, 0: there is none, -1: the adapter wrote what cannot be.  Its room is
   given back by ring_release. */
static inline int ring_take(struct ring *ring, void *entry, uint32_t room)
{
    if (ring->tail == ring->head) {
        uint64_t tail = __atomic_load_n(&ring->control->tail, __ATOMIC_ACQUIRE);
        if (tail == ring->head)
            return ring->broken ? -1 : 0;
        if (tail - ring->head > ring->entries)
            ring->broken = 1;
        else
            ring->tail = tail;
    }
    if (ring->broken)
        return -1;
    uint64_t word = __atomic_load_n((uint64_t *)&ring->references[ring->index], __ATOMIC_RELAXED);
    uint32_t offset = (uint32_t)word, bytes = (uint32_t)(word >> 32);
    if (!bytes || bytes > room || bytes > ring->body_bytes || offset >= ring->body_bytes) {
        ring->broken = 1;
        return -1;
    }
    uint32_t before_end = ring->body_bytes - offset;
    if (bytes <= before_end) {
        memcpy(entry, ring->bodies + offset, bytes);
    } else {
        memcpy(entry, ring->bodies + offset, before_end);
        memcpy((char *)entry + before_end, ring->bodies, bytes - before_end);
    }
    if (++ring->index == ring->entries)
        ring->index = 0;
    ring->head++;
    return (int)bytes;
}

static inline void ring_release(struct ring *ring)
{
    __atomic_store_n(&ring->control->head, ring->head, __ATOMIC_RELEASE);
}

void host_wake(struct host *host);

/* Around an atomic that both sides rely on as a full barrier: on x86 it is one, elsewhere it may let later loads,
   and where it exchanges nothing earlier stores, go past it. */
static inline void full_barrier(void)
{
#if !defined(__x86_64__)
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Wake the adapter if it sleeps.  What was written to rings before stands in front of a fence. */
static inline void host_kick(struct host *host)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(host->flag, __ATOMIC_RELAXED) == SOFTHCA_ADAPTER_ASLEEP)
        host_wake(host);
}

/* Ring the doorbell of a queue pair, and kick. */
static inline void host_ring(struct host *host, uint32_t slot)
{
    uint64_t *pending = (uint64_t *)(host->doorbells + 1), *places = pending + SOFTHCA_DOORBELL_SLOTS,
        none = 0;
    full_barrier(); /* the queue's tail is seen by whoever takes away the mark that is found here */
    if (__atomic_compare_exchange_n(&pending[slot], &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        uint64_t place = __atomic_fetch_add(&host->doorbells->tail, 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&places[place % SOFTHCA_DOORBELL_SLOTS], (uint64_t)slot + 1, __ATOMIC_RELEASE);
    }
    host_kick(host);
}

#endif
