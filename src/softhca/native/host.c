/* Attaching to an adapter process, its shared memory, and commands. */
#include "host.h"
#include "kernel.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

#define ANSWER_LIMIT_MS 30000

/* Bitmaps: `count` consecutive free bits, by the first that fits behind where the last was found. */

static uint32_t find_run(const struct bitmap *map, uint32_t from, uint32_t end, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t bit = from; bit < end; bit++) {
        if (!found && bit % 64 == 0 && map->words[bit / 64] == ~0ULL)
            bit += 63;
        else if (map->words[bit / 64] >> bit % 64 & 1)
            found = 0;
        else if (++found == count)
            return bit + 1 - count;
    }
    return 0;
}

static void mark(struct bitmap *map, uint32_t first, uint32_t count, int taken)
{
    for (uint32_t bit = first; bit < first + count; bit++) {
        if (taken)
            map->words[bit / 64] |= 1ULL << bit % 64;
        else
            map->words[bit / 64] &= ~(1ULL << bit % 64);
    }
}

static uint32_t take_run(struct bitmap *map, uint32_t least, uint32_t count)
{
    uint32_t first = 0;
    if (!count || count > map->bits)
        return 0;
    first = find_run(map, map->hint, map->bits, count);
    if (!first)
        first = find_run(map, least, map->bits, count);
    if (first) {
        mark(map, first, count, 1);
        map->hint = first + count;
    }
    return first;
}

static uint32_t take_pages(struct host *host, uint32_t count)
{
    pthread_mutex_lock(&host->allocating);
    uint32_t first = take_run(&host->pages, 1, count);
    pthread_mutex_unlock(&host->allocating);
    return first;
}

static void give_pages(struct host *host, uint32_t first, uint32_t count)
{
    unsigned char *begin = host->memory + (size_t)first * PAGE;
    if (madvise(begin, (size_t)count * PAGE, MADV_REMOVE))
        memset(begin, 0, (size_t)count * PAGE); /* a page is zero when it becomes part of a ring */
    pthread_mutex_lock(&host->allocating);
    mark(&host->pages, first, count, 0);
    if (first < host->pages.hint)
        host->pages.hint = first;
    pthread_mutex_unlock(&host->allocating);
}

uint32_t host_take_slots(struct host *host, uint32_t count)
{
    pthread_mutex_lock(&host->allocating);
    uint32_t first = take_run(&host->slots, MEMORY_SLOTS, count);
    pthread_mutex_unlock(&host->allocating);
    return first;
}

void host_give_slots(struct host *host, uint32_t first, uint32_t count)
{
    pthread_mutex_lock(&host->allocating);
    mark(&host->slots, first, count, 0);
    pthread_mutex_unlock(&host->allocating);
}

int host_make_ring(struct host *host, struct ring *ring, uint32_t entries, uint64_t body_bytes)
{
    uint64_t reference_pages = ((uint64_t)entries * 8 + PAGE - 1) / PAGE;
    uint64_t body_pages = (body_bytes + PAGE - 1) / PAGE, pages = 1 + reference_pages + body_pages;
    memset(ring, 0, sizeof *ring);
    if (!entries || entries > SOFTHCA_MAX_ENTRIES || !body_bytes || body_bytes > SOFTHCA_MAX_BODY_BYTES)
        return EINVAL;
    ring->entries = entries;
    ring->body_bytes = (uint32_t)body_bytes;
    ring->run.count = (uint32_t)pages;
    ring->run.first = take_pages(host, (uint32_t)pages);
    if (!ring->run.first)
        return ENOMEM;
    ring->control = (void *)(host->memory + (size_t)ring->run.first * PAGE);
    ring->references = (void *)((unsigned char *)ring->control + PAGE);
    ring->bodies = (unsigned char *)ring->references + reference_pages * PAGE;
    return 0;
}

void host_free_ring(struct host *host, struct ring *ring)
{
    if (ring->end_loan)
        ring->end_loan(ring->loan);
    if (ring->run.first)
        give_pages(host, ring->run.first, ring->run.count);
    memset(ring, 0, sizeof *ring);
}

void *host_make_pages(struct host *host, struct softhca_run *run, size_t bytes)
{
    run->count = (uint32_t)((bytes + PAGE - 1) / PAGE);
    run->first = take_pages(host, run->count);
    return run->first ? host->memory + (size_t)run->first * PAGE : NULL;
}

void host_free_pages(struct host *host, const struct softhca_run *run)
{
    give_pages(host, run->first, run->count);
}

/* The control socket */

static int send_message(struct host *host, size_t bytes, const int *descriptor)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } passed;
    struct iovec piece = {host->out, bytes};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1};
    if (descriptor) {
        memset(&passed, 0, sizeof passed);
        passed.header.cmsg_len = CMSG_LEN(sizeof(int));
        passed.header.cmsg_level = SOL_SOCKET;
        passed.header.cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(&passed.header), descriptor, sizeof(int));
        packet.msg_control = &passed;
        packet.msg_controllen = sizeof passed;
    }
    if (!bytes)
        return EMSGSIZE;
    return sendmsg(host->control, &packet, MSG_NOSIGNAL) == (ssize_t)bytes ? 0 : EIO;
}

/* One packet into host->in, and the one descriptor that it may bring (-1: none). */
static int receive_message(struct host *host, int *descriptor)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(SOFTHCA_MAX_DESCRIPTORS * sizeof(int))];
    } passed;
    struct iovec piece = {host->in, sizeof host->in};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &passed,
                            .msg_controllen = sizeof passed};
    struct pollfd wait = {host->control, POLLIN, 0};
    ssize_t got;
    int ready, resets = 0;
    *descriptor = -1;
    do
        ready = poll(&wait, 1, ANSWER_LIMIT_MS);
    while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        return ETIMEDOUT;
    do /* a peer that closes without having read is told first, and then what it has said before */
        got = recvmsg(host->control, &packet, MSG_CMSG_CLOEXEC);
    while (got < 0 && (errno == EINTR || (errno == ECONNRESET && !resets++)));
    if (got <= 0)
        return EIO;
    host->in_bytes = (uint32_t)got;
    for (struct cmsghdr *each = CMSG_FIRSTHDR(&packet); each; each = CMSG_NXTHDR(&packet, each)) {
        if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = 0; at + sizeof(int) <= each->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            if (*descriptor >= 0)
                close(*descriptor);
            memcpy(descriptor, CMSG_DATA(each) + at, sizeof(int));
        }
    }
    if (packet.msg_flags & MSG_CTRUNC && *descriptor < 0) /* there is room for more than any answer brings: none was
                                                             left for it among this process's descriptors */
        return EMFILE;
    return packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? EPROTO : 0;
}

static int ask_with(struct host *host, size_t bytes, const int *given, int *passed)
{
    int descriptor = -1;
    int error = send_message(host, bytes, given);
    if (!error)
        error = receive_message(host, &descriptor);
    if (passed)
        *passed = descriptor;
    else if (descriptor >= 0)
        close(descriptor);
    return error;
}

int host_ask(struct host *host, size_t bytes, int *passed)
{
    return ask_with(host, bytes, NULL, passed);
}

int host_pass_descriptor(struct host *host, int descriptor, uint32_t *number)
{
    struct softhca_message_descriptor_answer answer;
    int error, cancel_state;
    lock_commands(host, &cancel_state);
    error = host->dead;
    if (!error)
        error = ask_with(host, softhca_encode_message_descriptor(host->out, sizeof host->out), &descriptor, NULL);
    if (!error)
        error = decoded(softhca_decode_message_descriptor_answer(host->in, host->in_bytes, &answer));
    unlock_commands(host, cancel_state);
    if (!error)
        *number = (uint32_t)answer.number;
    return error;
}

/* The end of a command whose answer brings a descriptor: unlocks, closes what came with a failure. */
static int descriptor_taken(struct host *host, int cancel_state, int error, const int *descriptor)
{
    if (!error && *descriptor < 0)
        error = EPROTO;
    unlock_commands(host, cancel_state);
    if (error && *descriptor >= 0)
        close(*descriptor);
    return error;
}

int host_take_memory(struct host *host, uint32_t dm, int *descriptor, size_t *length)
{
    struct softhca_message_memory fields = {.dm = dm};
    struct softhca_message_memory_answer answer;
    int error, cancel_state;
    *descriptor = -1;
    lock_commands(host, &cancel_state);
    error = host->dead;
    if (!error)
        error = ask_with(host, softhca_encode_message_memory(host->out, sizeof host->out, &fields), NULL, descriptor);
    if (!error)
        error = decoded(softhca_decode_message_memory_answer(host->in, host->in_bytes, &answer));
    error = descriptor_taken(host, cancel_state, error, descriptor);
    if (!error)
        *length = (size_t)answer.length;
    return error;
}

/* Attaching */

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    struct ucred peer;
    socklen_t peer_bytes = sizeof peer;
    if (!length || length >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (control < 0)
        return -1;
    memcpy(address.sun_path, path, length);
    if (*path == '@')
        address.sun_path[0] = 0;
    if (connect(control, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length))
        || getsockopt(control, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes)) {
        int error = errno;
        close(control);
        errno = error;
        return -1;
    }
    if (peer.uid != geteuid() && peer.uid != 0) { /* who reads and writes this process's memory */
        close(control);
        errno = EPERM;
        return -1;
    }
    if (peer.pid > 0)
        prctl(PR_SET_PTRACER, (unsigned long)peer.pid, 0, 0, 0);
    return control;
}

static int make_memory(struct host *host)
{
    host->memfd = memory_file("softhca", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (host->memfd < 0 || ftruncate(host->memfd, MEMORY_BYTES)
        || fcntl(host->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return errno;
    host->memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, host->memfd,
        0);
    if (host->memory == MAP_FAILED) {
        host->memory = NULL;
        return ENOMEM;
    }
    madvise(host->memory, MEMORY_BYTES, MADV_DONTDUMP); /* a core file would bring each page of it */
    host->pages.words = calloc(MEMORY_PAGES / 64, 8);
    host->slots.words = calloc(ALL_SLOTS / 64, 8);
    if (!host->pages.words || !host->slots.words)
        return ENOMEM;
    host->pages.bits = MEMORY_PAGES;
    host->pages.hint = 1;
    host->slots.bits = ALL_SLOTS;
    host->slots.hint = MEMORY_SLOTS;
    mark(&host->pages, 0, 1, 1);
    return 0;
}

static int send_attach(struct host *host)
{
    static unsigned char probe[SOFTHCA_PROBE_BYTES];
    struct softhca_run doorbells = {0, SOFTHCA_DOORBELL_PAGES}, rings[3];
    struct softhca_message_attach fields = {.control = rings, .control_count = 3, .doorbells = &doorbells,
                                            .doorbells_count = 1, .probe = (uintptr_t)probe};
    struct softhca_message_attach_answer answer;
    uint64_t mixed = (uint64_t)getpid() * 0x9E3779B97F4A7C15ULL ^ (uintptr_t)host;
    int error, sent;
    memcpy(probe, "softhca", 7);
    memcpy(probe + 8, &mixed, 8);
    memcpy(fields.probe_bytes, probe, sizeof fields.probe_bytes);
    error = host_make_ring(host, &host->commands, SOFTHCA_COMMAND_ENTRIES, SOFTHCA_COMMAND_BODY_BYTES);
    error = error ? error : host_make_ring(host, &host->replies, SOFTHCA_COMMAND_ENTRIES,
        SOFTHCA_REPLY_BODY_BYTES);
    error = error ? error : host_make_ring(host, &host->events, SOFTHCA_EVENT_ENTRIES,
        SOFTHCA_EVENT_BODY_BYTES);
    if (error)
        return error;
    rings[0] = host->commands.run, rings[1] = host->replies.run, rings[2] = host->events.run;
    doorbells.first = take_pages(host, doorbells.count);
    fields.flag = take_pages(host, 1);
    host->doorbells = (void *)(host->memory + (size_t)doorbells.first * PAGE);
    host->flag = (void *)(host->memory + (size_t)fields.flag * PAGE);
    sent = send_message(host, softhca_encode_message_attach(host->out, sizeof host->out, &fields), &host->memfd);
    /* who cannot be served is told why before it has asked, and its connection is closed */
    error = receive_message(host, &host->wake);
    if (error)
        return sent ? sent : error;
    error = decoded(softhca_decode_message_attach_answer(host->in, host->in_bytes, &answer));
    error = error ? error : sent;
    if (!error && host->wake < 0)
        error = EPROTO;
    if (!error)
        host->foreign = (int)answer.foreign;
    return error;
}

struct host *host_attach(const char *path)
{
    struct host *host = calloc(1, sizeof *host);
    static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER; /* the probe's bytes are one process's */
    int error;
    if (!host)
        return NULL;
    host->memfd = host->wake = -1;
    pthread_mutex_init(&host->allocating, NULL);
    pthread_mutex_init(&host->commanding, NULL);
    pthread_mutex_init(&host->pooling, NULL);
    host->control = connect_to(path);
    error = host->control < 0 ? errno : make_memory(host);
    if (!error) {
        pthread_mutex_lock(&attaching);
        error = send_attach(host);
        pthread_mutex_unlock(&attaching);
    }
    if (error) {
        host_detach(host);
        errno = error;
        return NULL;
    }
    return host;
}

static void close_all(struct host *host)
{
    int *descriptors[] = {&host->control, &host->wake, &host->memfd};
    for (int i = 0; i < 3; i++) {
        if (*descriptors[i] >= 0)
            close(*descriptors[i]);
        *descriptors[i] = -1;
    }
}

void host_detach(struct host *host)
{
    struct softhca_message_detach_answer answer;
    /* The answer says that nothing is written to this process's memory any more. */
    if (host->control >= 0 && host->wake >= 0 && !host->dead
        && !host_ask(host, softhca_encode_message_detach(host->out, sizeof host->out), NULL))
        softhca_decode_message_detach_answer(host->in, host->in_bytes, &answer);
    close_all(host);
    if (host->memory)
        munmap(host->memory, MEMORY_BYTES);
    free(host->pages.words);
    free(host->slots.words);
    pthread_mutex_destroy(&host->allocating);
    pthread_mutex_destroy(&host->commanding);
    pthread_mutex_destroy(&host->pooling);
    free(host);
}

void host_abandon(struct host *host)
{
    host->dead = EIO;
    close_all(host);
}

/* Commands */

/* The attachment cannot be used any more. */
static int lost(struct host *host, int error)
{
    host->dead = error;
    return error;
}

void host_wake(struct host *host)
{
    uint64_t asleep = SOFTHCA_ADAPTER_ASLEEP;
    if (__atomic_compare_exchange_n(host->flag, &asleep, SOFTHCA_ADAPTER_AWAKE, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        send(host->wake, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int host_check(struct host *host)
{
    struct pollfd hang = {host->control, 0, 0};
    if (!host->dead && poll(&hang, 1, 0) > 0 && hang.revents & (POLLHUP | POLLERR | POLLNVAL))
        host->dead = EIO;
    return host->dead;
}

int host_believe(struct host *host, int believable)
{
    return believable ? 0 : lost(host, EIO);
}

void lock_commands(struct host *host, int *cancel_state)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel_state);
    pthread_mutex_lock(&host->commanding);
}

void unlock_commands(struct host *host, int cancel_state)
{
    pthread_mutex_unlock(&host->commanding);
    pthread_setcancelstate(cancel_state, NULL);
}

/* Wait until the adapter has put something into the reply ring; the wake socket says that it may have. */
static int wait_for_reply(struct host *host)
{
    struct pollfd both[] = {{host->wake, POLLIN, 0}, {host->control, 0, 0}};
    char rung[256];
    int ready = poll(both, 2, ANSWER_LIMIT_MS);
    if (ready < 0 && errno == EINTR)
        return 0;
    if (ready <= 0)
        return lost(host, ETIMEDOUT);
    if (both[1].revents || recv(host->wake, rung, sizeof rung, MSG_DONTWAIT) == 0)
        return lost(host, EIO);
    return 0;
}

int host_exchange(struct host *host, size_t bytes)
{
    struct ring *commands = &host->commands;
    struct softhca_reply_header header;
    int got, error;
    if (host->dead)
        return host->dead;
    /* The encoder was given the tag after the last one. */
    host->tag++;
    if (!bytes || !ring_has_room(commands))
        return EINVAL;
    ring_copy_in(commands, commands->body_tail, host->out, (uint32_t)bytes);
    ring_add(commands, (uint32_t)bytes);
    ring_publish(commands);
    host_kick(host);
    while (!(got = ring_take(&host->replies, host->in, sizeof host->in))) {
        error = wait_for_reply(host);
        if (error)
            return error;
    }
    if (got < (int)sizeof header)
        return lost(host, EIO);
    ring_release(&host->replies);
    host->in_bytes = (uint32_t)got;
    memcpy(&header, host->in, sizeof header);
    return header.tag == host->tag ? 0 : lost(host, EIO);
}

int host_open_channel(struct host *host, int asynchronous, uint32_t *number, int *descriptor)
{
    struct softhca_message_channel fields = {.asynchronous = (uint8_t)asynchronous};
    struct softhca_message_channel_answer answer;
    int error, cancel_state;
    lock_commands(host, &cancel_state);
    *descriptor = -1;
    error = host->dead;
    if (!error)
        error = host_ask(host, softhca_encode_message_channel(host->out, sizeof host->out, &fields),
                         descriptor);
    if (!error)
        error = decoded(softhca_decode_message_channel_answer(host->in, host->in_bytes, &answer));
    error = descriptor_taken(host, cancel_state, error, descriptor);
    if (!error)
        *number = answer.channel;
    return error;
}

void host_explain(struct host *host, const char *command, int error)
{
    char reason[SOFTHCA_REASON_BYTES + 1];
    if (!getenv("SOFTHCA_DEBUG"))
        return;
    softhca_reason(host->in, host->in_bytes, reason, sizeof reason);
    fprintf(stderr, "softhca: %s: %s (errno %d)\n", command, *reason ? reason : strerror(error), error);
}
