/* A program that means no good to its adapter process: hostile_client HOW writes a byte to its output when it has
   begun, and goes on until it is ended.  "commands" keeps its command ring full, "unread" takes no reply,
   "messages" asks at the control socket and takes no answer, "wakes" fills the wake socket, "doorbells" rings
   those of queue pairs that it has not, as fast as it can, "torn" writes what cannot be to all of its rings. */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "library.h"

extern struct ibv_device **ibv_get_device_list(int *);
extern struct ibv_context *ibv_open_device(struct ibv_device *);

#define CHECK(what) ((what) ? (void)0 : fail(__LINE__, #what))

static void fail(int line, const char *what)
{
    fprintf(stderr, "line %d: %s (errno %d)\n", line, what, errno);
    _exit(1);
}

/* Protection domains are the device's, as on every adapter: its neighbours must find some. */
#define MOST_PDS 10000

/* As the library does, without waiting. */
static void put_command(struct host *host)
{
    size_t bytes = ++host->tag < MOST_PDS
        ? softhca_encode_alloc_pd(host->out, sizeof host->out, host->tag)
        : softhca_encode_query_device(host->out, sizeof host->out, host->tag);
    ring_copy_in(&host->commands, host->commands.body_tail, host->out, (uint32_t)bytes);
    ring_add(&host->commands, (uint32_t)bytes);
    ring_publish(&host->commands);
}

static void wake(struct host *host)
{
    send(host->wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void commands(struct host *host, int reads)
{
    while (ring_has_room(&host->commands))
        put_command(host);
    wake(host);
    while (reads && ring_take(&host->replies, host->in, sizeof host->in) > 0)
        ring_release(&host->replies);
}

static void messages(struct host *host)
{
    size_t bytes = softhca_encode_message_resources(host->out, sizeof host->out);
    send(host->control, host->out, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void doorbells(struct host *host, uint32_t round)
{
    uint64_t *pending = (uint64_t *)(host->doorbells + 1), *places = pending + SOFTHCA_DOORBELL_SLOTS;
    uint64_t place = __atomic_fetch_add(&host->doorbells->tail, round % 1000 == 999 ? 1ULL << 40 : 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&places[place % SOFTHCA_DOORBELL_SLOTS], round * 2654435761ULL, __ATOMIC_RELEASE);
    wake(host);
}

static void torn(struct host *host, uint32_t round)
{
    struct ring *rings[] = {&host->commands, &host->replies, &host->events};
    struct ring *ring = rings[round % 3];
    ring->control->tail += round;
    ring->control->head -= round / 2;
    memset(ring->references, (int)round, 8 * ring->entries);
    wake(host);
}

int main(int count, char **words)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
    struct host *host = context ? HOST(context) : NULL;
    CHECK(count == 2 && host);
    CHECK(write(1, ".", 1) == 1);
    for (uint32_t round = 1;; round++) {
        if (!strcmp(words[1], "commands") || !strcmp(words[1], "unread"))
            commands(host, words[1][0] == 'c');
        else if (!strcmp(words[1], "messages"))
            messages(host);
        else if (!strcmp(words[1], "wakes"))
            wake(host);
        else if (!strcmp(words[1], "doorbells"))
            doorbells(host, round);
        else
            torn(host, round);
    }
}
