#define _GNU_SOURCE
#include <sys/socket.h>
#include <time.h>

#include "host.h" /* before the names are changed: what is called inline is what stands here */

ssize_t adapter_hears(int control, const struct msghdr *packet, int flags);

#define host_attach attach_by_socket
#define host_wake wake_by_socket
#define sendmsg adapter_hears
#include "host.c"
#undef host_attach
#undef host_wake
#undef sendmsg

#include "fuzz_adapter.h"
#include "fuzz_tables.h"

#define MOST_HOSTS 8
#define MOST_CHANNELS 64

/* `nanosleep`: who polls is not to sleep; a target may have something happen meanwhile. */
__attribute__((weak)) int no_nap(const struct timespec *time, struct timespec *left_over)
{
    (void)time, (void)left_over;
    return 0;
}

/* What an answer is, by the dice of the input. */
enum { HONEST = 4, WRONG_FIELDS = 5, REFUSED = 6, GARBAGE = 7, KINDS = 8 };

static const unsigned char *input;
static size_t left;
static struct {
    struct host *host; /* only compared: it may have gone */
    int control, peer;
    uint64_t heard, answered;
    uint32_t refused; /* the arena's slot that was refused last; 0: none */
    struct ring connections, answers; /* this end of what was opened last for them */
} hosts[MOST_HOSTS];
static int host_count, channels[MOST_CHANNELS], channel_count;
static uint64_t question;
int adapter_honest, adapter_native;

unsigned char fed(void)
{
    if (!left)
        return 0;
    left--;
    return *input++;
}

void fed_bytes(void *out, size_t bytes)
{
    size_t got = bytes < left ? bytes : left;
    memset(out, 0, bytes);
    if (got)
        memcpy(out, input, got);
    input += got;
    left -= got;
}

int fed_more(void)
{
    return left != 0;
}

void adapter_begin(const unsigned char *data, size_t bytes)
{
    input = data;
    left = bytes;
    adapter_honest = adapter_native = 0;
    question = 0;
}

static int drawn(void)
{
    int kind = adapter_honest ? HONEST : fed() % KINDS;
    return kind < HONEST ? HONEST : kind;
}

/* The body of an answer of this kind; its length. */
static uint32_t body_of(int kind, const struct honest_body *wanted, unsigned char *out, uint32_t room)
{
    uint32_t bytes = kind == HONEST || kind == WRONG_FIELDS ? wanted->bytes : fed();
    bytes = bytes < room ? bytes : room;
    if (kind == HONEST)
        memcpy(out, wanted->body, bytes);
    else
        fed_bytes(out, bytes);
    return bytes;
}

/* Whether it is a refusal. */
static int answer(struct host *host, uint64_t *count, const struct softhca_command_header *asked)
{
    static const struct honest_body none;
    unsigned char whole[SOFTHCA_REPLY_BYTES] = {0}; /* a wrong reference may lead to any of it */
    struct softhca_reply_header header = {.command = asked->command, .tag = asked->tag};
    struct ring *ring = &host->replies;
    uint32_t place = (uint32_t)(*count % ring->entries), room = ring->body_bytes / ring->entries;
    const struct honest_body *honest = adapter_native ? native_replies : replies;
    int kind = drawn();
    struct softhca_reference reference = {place * room, 0};
    if (room > sizeof whole)
        room = sizeof whole;
    header.bytes = body_of(kind, asked->command < COMMANDS ? &honest[asked->command] : &none, whole + sizeof header,
                           room - (uint32_t)sizeof header);
    reference.body_bytes = (uint32_t)sizeof header + header.bytes;
    if (kind == REFUSED)
        header.error = fed();
    memcpy(whole, &header, sizeof header);
    if (kind == GARBAGE)
        fed_bytes(whole, 8), fed_bytes(&reference, sizeof reference);
    memcpy(ring->bodies + place * room, whole, room);
    ring->references[place] = reference;
    *count += kind == GARBAGE ? fed() : 1;
    __atomic_store_n(&ring->control->tail, *count, __ATOMIC_RELEASE);
    return kind == REFUSED && header.error;
}

/* What a program has not been given it must not give back: somebody else of it may have it by then. */
static void note_arena(int at, const struct softhca_command_header *asked, const unsigned char *body, int is_refused)
{
    uint32_t slot;
    memcpy(&slot, body, sizeof slot);
    if (asked->command == COMMAND_ATTACH_ARENA)
        hosts[at].refused = is_refused ? slot : 0;
    else if (asked->command == COMMAND_DETACH_ARENA && slot == hosts[at].refused)
        __builtin_trap();
}

/* The ring that a command gives: its entries, bytes and one run of frames end the command. */
static void open_ring(struct host *host, struct ring *opened, const unsigned char *end)
{
    struct {
        uint32_t entries, body_bytes, frames_count;
        struct softhca_run run;
    } given;
    unsigned char *pages;
    memcpy(&given, end - sizeof given, sizeof given);
    pages = host->memory + (size_t)given.run.first * PAGE;
    *opened = (struct ring){.control = (void *)pages, .references = (void *)(pages + PAGE), .run = given.run,
                            .entries = given.entries, .body_bytes = given.body_bytes};
    opened->bodies = pages + PAGE + ((size_t)given.entries * 8 + PAGE - 1) / PAGE * PAGE;
}

struct ring *adapter_ring(const struct host *host, uint32_t command)
{
    for (int i = host_count - 1; i >= 0; i--) {
        struct ring *found = command == COMMAND_OPEN_CM ? &hosts[i].connections : &hosts[i].answers;
        if (hosts[i].host == host)
            return found->control ? found : NULL;
    }
    return NULL;
}

uint64_t adapter_question(void)
{
    uint64_t asked = question;
    question = 0;
    return asked;
}

void host_wake(struct host *host)
{
    struct ring *ring = &host->commands;
    for (int i = host_count - 1; i >= 0; i--) {
        struct softhca_command_header asked;
        const unsigned char *end;
        if (hosts[i].host != host)
            continue;
        if (hosts[i].heard == ring->tail)
            return; /* a doorbell's */
        hosts[i].heard = ring->tail;
        memcpy(&asked, host->out, sizeof asked);
        end = host->out + sizeof asked + asked.bytes;
        if (asked.command == COMMAND_OPEN_CM || asked.command == COMMAND_REGISTER_AGENT)
            open_ring(host, asked.command == COMMAND_OPEN_CM ? &hosts[i].connections : &hosts[i].answers, end);
        if (asked.command == COMMAND_SEND_MAD)
            memcpy(&question, end - SOFTHCA_MAD_BYTES + 8, sizeof question);
        __atomic_store_n(&ring->control->head, ring->tail + (drawn() == GARBAGE ? fed() : 0), __ATOMIC_RELEASE);
        note_arena(i, &asked, host->out + sizeof asked, answer(host, &hosts[i].answered, &asked));
        return;
    }
}

static int passed_for(uint32_t message)
{
    int ends[2], made;
    if (message == SOFTHCA_MESSAGE_MEMORY) {
        made = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (made < 0 || ftruncate(made, (off_t)fed() << 9) || fcntl(made, F_ADD_SEALS, fed() & 15))
            return made;
        return made;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends))
        return -1;
    if (message == SOFTHCA_MESSAGE_CHANNEL && channel_count < MOST_CHANNELS)
        channels[channel_count++] = ends[1];
    else
        close(ends[1]);
    return ends[0];
}

ssize_t adapter_hears(int control, const struct msghdr *packet, int flags)
{
    static const struct honest_body none;
    unsigned char whole[1024];
    struct softhca_message_header asked, header;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(4 * sizeof(int))];
    } passed;
    struct iovec piece = {whole, 0};
    struct msghdr told = {.msg_iov = &piece, .msg_iovlen = 1};
    int descriptors[4], count = 0, kind = drawn();
    memcpy(&asked, packet->msg_iov->iov_base, sizeof asked);
    header = (struct softhca_message_header){.magic = SOFTHCA_MESSAGE_MAGIC, .version = SOFTHCA_ABI_VERSION,
                                             .message = asked.message};
    header.bytes = body_of(kind, asked.message < MESSAGES ? &answers[asked.message] : &none, whole + sizeof header,
                           sizeof whole - sizeof header);
    if (kind == REFUSED)
        header.error = fed();
    memcpy(whole, &header, sizeof header);
    piece.iov_len = sizeof header + header.bytes;
    if (kind == GARBAGE)
        fed_bytes(whole, sizeof header);
    if (asked.message == SOFTHCA_MESSAGE_ATTACH || asked.message == SOFTHCA_MESSAGE_CHANNEL
        || asked.message == SOFTHCA_MESSAGE_MEMORY || kind != HONEST) {
        count = kind == HONEST ? 1 : fed() % 4;
        for (int i = 0; i < count; i++)
            descriptors[i] = passed_for(asked.message);
    }
    if (count) {
        memset(&passed, 0, sizeof passed);
        passed.header.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        passed.header.cmsg_level = SOL_SOCKET;
        passed.header.cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(&passed.header), descriptors, (size_t)count * sizeof(int));
        told.msg_control = &passed;
        told.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    }
    for (int i = host_count - 1; i >= 0; i--) /* an older one may have had the number */
        if (hosts[i].control == control) {
            sendmsg(hosts[i].peer, &told, flags);
            break;
        }
    for (int i = 0; i < count; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    return (ssize_t)packet->msg_iov->iov_len;
}

struct host *host_attach(const char *path)
{
    struct host *host = calloc(1, sizeof *host);
    int ends[2], error;
    (void)path;
    if (!host || host_count == MOST_HOSTS || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        free(host);
        errno = ECONNREFUSED;
        return NULL;
    }
    host->memfd = host->wake = -1;
    pthread_mutex_init(&host->allocating, NULL);
    pthread_mutex_init(&host->commanding, NULL);
    pthread_mutex_init(&host->pooling, NULL);
    host->control = ends[0];
    hosts[host_count].host = host;
    hosts[host_count].control = ends[0];
    hosts[host_count].peer = ends[1];
    hosts[host_count].heard = hosts[host_count].answered = 0;
    hosts[host_count].refused = 0;
    hosts[host_count].connections.control = hosts[host_count].answers.control = NULL;
    host_count++;
    error = make_memory(host);
    error = error ? error : send_attach(host);
    if (error) {
        host_detach(host);
        errno = error;
        return NULL;
    }
    *host->flag = SOFTHCA_ADAPTER_ASLEEP;
    return host;
}

void adapter_event(unsigned index, unsigned kind, unsigned element)
{
    struct softhca_event event;
    fed_bytes(&event, sizeof event);
    event.kind = kind;
    event.element = element;
    if (channel_count)
        send(channels[index % (unsigned)channel_count], &event, sizeof event - fed() % 2, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void adapter_scribble(struct ring *ring, const void *entry, unsigned bytes)
{
    uint64_t number = 0; /* of which the input may say a part */
    struct softhca_reference reference = {0, bytes};
    if (!ring->control)
        return;
    if (fed() % 4) { /* what could be an entry */
        memcpy(ring->bodies, entry, bytes < ring->body_bytes ? bytes : ring->body_bytes);
        switch (fed() % 8) {
        case 6: reference.body_bytes += fed() % 64; break; /* longer than what is asked for */
        case 7: fed_bytes(&reference, sizeof reference); break;
        }
        ring->references[ring->index] = reference;
        ring->control->tail = ring->head + 1 + (fed() % 16 == 15);
        return;
    }
    fed_bytes(&number, fed() % 9);
    *(fed() % 2 ? &ring->control->tail : &ring->control->head) = number;
    fed_bytes(ring->references, fed() % (8 * ring->entries));
    fed_bytes(ring->bodies, fed() % ring->body_bytes);
}

void adapter_end(void)
{
    for (int i = 0; i < host_count; i++)
        close(hosts[i].peer);
    for (int i = 0; i < channel_count; i++)
        close(channels[i]);
    host_count = channel_count = 0;
}
