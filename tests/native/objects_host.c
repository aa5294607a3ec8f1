/* The attachment of the library to an adapter: shared pages, rings, doorbells, messages, commands and what is imported;
   the adapter's side is written before it is asked. */
#define _GNU_SOURCE
#include "objects_script.h"

/* Cases */

static void runs(void)
{
    struct bitmap map = {.words = calloc(4, 8), .bits = 256, .hint = 1};
    struct softhca_run run;
    unsigned char *place, *again;
    mark(&map, 0, 1, 1);
    CHECK(!take_run(&map, 1, 0) && !take_run(&map, 1, 257) && !take_run(&map, 1, 256));
    CHECK(take_run(&map, 1, 100) == 1 && take_run(&map, 1, 100) == 101 && map.hint == 201);
    CHECK(!take_run(&map, 1, 100));
    mark(&map, 1, 100, 0);
    CHECK(take_run(&map, 1, 60) == 1 && take_run(&map, 1, 55) == 201 && take_run(&map, 1, 40) == 61);
    CHECK(!take_run(&map, 1, 1));
    mark(&map, 60, 4, 0), mark(&map, 128, 10, 0); /* a word between them is full */
    map.hint = 1;
    CHECK(take_run(&map, 1, 10) == 128 && take_run(&map, 1, 4) == 60);
    mark(&map, 128, 10, 0); /* behind a word that is passed by whole */
    CHECK((map.hint = 64, take_run(&map, 1, 10)) == 128);
    place = host_make_pages(&host, &run, 3 * PAGE - 1);
    CHECK(place && run.count == 3 && run.first);
    memset(place, 5, 3 * PAGE);
    host_free_pages(&host, &run);
    again = host_make_pages(&host, &run, 3 * PAGE);
    CHECK(again == place && !again[0] && !again[3 * PAGE - 1]);
}

static void rings(void)
{
    struct ring ring, other;
    uint64_t at;
    CHECK(host_make_ring(&host, &ring, 0, 1) == EINVAL && host_make_ring(&host, &ring, 1, 0) == EINVAL);
    CHECK(host_make_ring(&host, &ring, SOFTHCA_MAX_ENTRIES + 1, 1) == EINVAL);
    CHECK(host_make_ring(&host, &ring, 1, SOFTHCA_MAX_BODY_BYTES + 1ull) == EINVAL);
    CHECK(!host_make_ring(&host, &ring, SOFTHCA_MAX_ENTRIES, SOFTHCA_MAX_BODY_BYTES));
    host_free_ring(&host, &ring);
    CHECK(!host_make_ring(&host, &ring, 512, PAGE) && ring.run.count == 3);
    CHECK(!host_make_ring(&host, &other, 513, PAGE + 1) && other.run.count == 5);
    CHECK(ring.bodies == (unsigned char *)ring.control + 2 * PAGE);
    CHECK(other.bodies == (unsigned char *)other.control + 3 * PAGE);
    host_free_ring(&host, &ring), host_free_ring(&host, &other);
    CHECK(!host_make_ring(&host, &ring, 4, 64));
    for (at = 0; at < 4; at++) { /* full at exactly its end, where it begins again */
        CHECK(ring_has_room(&ring) && ring_place(&ring, 16) == ring.bodies + 16 * at);
        ring_add(&ring, 16);
    }
    CHECK(!ring_has_room(&ring) && !ring.broken && ring.body_tail == 0 && ring.index == 0);
    ring_publish(&ring);
    CHECK(ring.control->tail == 4);
    ring.control->head = 1;
    CHECK(ring_has_room(&ring) && ring_place(&ring, 64) && !ring_place(&ring, 65));
    ring_add(&ring, 16);
    CHECK(!ring_has_room(&ring) && !ring.broken);
    ring.control->head = 6; /* more than was ever written */
    CHECK(!ring_has_room(&ring) && ring.broken);
    host_free_ring(&host, &ring);
}

/* What ring_take says of one entry that stands there so. */
static int taken_at(uint32_t offset, uint32_t bytes, uint64_t tail)
{
    struct ring ring;
    unsigned char place[128];
    int got;
    CHECK(!host_make_ring(&host, &ring, 4, 64));
    for (int i = 0; i < 4; i++)
        ring.references[i] = (struct softhca_reference){offset, bytes};
    ring.control->tail = tail;
    got = ring_take(&ring, place, sizeof place);
    if (got > 0 && tail == 4) { /* the last is followed by the first */
        CHECK(ring_take(&ring, place, sizeof place) == got && ring_take(&ring, place, sizeof place) == got);
        CHECK(ring_take(&ring, place, sizeof place) == got && ring.index == 0);
        CHECK(ring_take(&ring, place, sizeof place) == 0);
    }
    CHECK((got < 0) == ring.broken);
    if (got < 0)
        CHECK(ring_take(&ring, place, sizeof place) < 0);
    host_free_ring(&host, &ring);
    return got;
}

static void taking(void)
{
    CHECK(taken_at(0, 16, 0) == 0 && taken_at(0, 16, 1) == 16 && taken_at(0, 16, 4) == 16);
    CHECK(taken_at(0, 16, 5) < 0 && taken_at(0, 16, ~0ull) < 0);
    CHECK(taken_at(63, 16, 1) == 16 && taken_at(64, 16, 1) < 0);
    CHECK(taken_at(0, 64, 1) == 64 && taken_at(0, 65, 1) < 0 && taken_at(0, 0, 1) < 0);
}

static void ringing(void)
{
    uint64_t *pending = (uint64_t *)(host.doorbells + 1), *places = pending + SOFTHCA_DOORBELL_SLOTS;
    int ends[2];
    char byte[4];
    CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    host.wake = ends[0];
    *host.flag = SOFTHCA_ADAPTER_AWAKE;
    host_ring(&host, 3);
    CHECK(pending[3] == 1 && places[0] == 4 && host.doorbells->tail == 1);
    CHECK(recv(ends[1], byte, 4, MSG_DONTWAIT) < 0);
    host_ring(&host, 3); /* it is known already */
    CHECK(host.doorbells->tail == 1);
    *host.flag = SOFTHCA_ADAPTER_ASLEEP;
    host_ring(&host, 0);
    CHECK(places[1] == 1 && *host.flag == SOFTHCA_ADAPTER_AWAKE);
    CHECK(recv(ends[1], byte, 4, MSG_DONTWAIT) == 1);
    host_wake(&host); /* it is awake */
    CHECK(recv(ends[1], byte, 4, MSG_DONTWAIT) < 0);
}

static void checking(void)
{
    int ends[2];
    CHECK(!host_believe(&host, 1) && !host.dead);
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    host.control = ends[0];
    CHECK(!host_check(&host));
    CHECK(write(ends[1], "x", 1) == 1 && !host_check(&host)); /* something has come, but nobody has gone */
    close(ends[1]);
    CHECK(host_check(&host) == EIO && host.dead == EIO);
    host.dead = 0;
    CHECK(host_believe(&host, 0) == EIO && host.dead == EIO);
    host.dead = 0;
    host_abandon(&host);
    CHECK(host.dead == EIO && host.control < 0);
}

static void addresses_of_sockets(void)
{
    char path[200];
    memset(path, 'a', sizeof path);
    path[108] = 0; /* as long as the room for it, which takes no end then */
    CHECK(connect_to(path) < 0 && errno == ENAMETOOLONG);
    CHECK(connect_to("") < 0 && errno == ENAMETOOLONG);
    path[107] = 0;
    CHECK(connect_to(path) < 0 && errno == ENOENT);
    CHECK(connect_to("@softhca-nobody-has-this") < 0 && errno == ECONNREFUSED);
}

enum { ATTACH = 1, DETACH = 3, CHANNEL = 6, MEMORY = 7 }; /* messages */
static uint32_t foreign_told;

/* A message of the adapter's, which brings descriptors, before it is asked for; its bytes are `bytes`. */
static void answers(int end, uint32_t message, uint32_t error, size_t bytes, int count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control;
    unsigned char all[10000] = {0};
    struct softhca_message_header header = {SOFTHCA_MESSAGE_MAGIC, SOFTHCA_ABI_VERSION, message, error,
                                            (uint32_t)(bytes - sizeof header)};
    struct iovec piece = {all, bytes};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1};
    memcpy(all, &header, sizeof header);
    if (message == ATTACH)
        memcpy(all + bytes - 3 * sizeof foreign_told, &foreign_told, sizeof foreign_told);
    memset(&control, 0, sizeof control);
    if (count) {
        packet.msg_control = &control, packet.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        control.header = (struct cmsghdr){CMSG_LEN((size_t)count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        for (int i = 0; i < count; i++)
            memcpy(CMSG_DATA(&control.header) + (size_t)i * sizeof(int), &(int){0}, sizeof(int));
    }
    CHECK(sendmsg(end, &packet, 0) == (ssize_t)bytes);
}

/* The lowest descriptor that is free. */
static int lowest(void)
{
    int found = dup(0);
    close(found);
    return found;
}


static void control(void)
{
    size_t whole = sizeof(struct softhca_message_header) + 4, wide = whole + 4, length = 0;
    char asked[4096];
    uint32_t number = 0;
    int ends[2], descriptor, before;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    host.control = ends[0];
    before = lowest();
    answers(ends[1], CHANNEL, 0, whole, 1);
    CHECK(!host_open_channel(&host, 0, &number, &descriptor) && descriptor == before && fcntl(before, F_GETFD) & FD_CLOEXEC);
    close(descriptor);
    answers(ends[1], CHANNEL, 0, whole, 2); /* one is kept */
    CHECK(!host_open_channel(&host, 0, &number, &descriptor));
    close(descriptor);
    CHECK(lowest() == before);
    answers(ends[1], CHANNEL, EMFILE, whole - 4, 1); /* a refusal brings none that stays */
    CHECK(host_open_channel(&host, 0, &number, &descriptor) == EMFILE && lowest() == before);
    answers(ends[1], CHANNEL, 0, whole, 0);
    CHECK(host_open_channel(&host, 0, &number, &descriptor) == EPROTO && descriptor < 0);
    answers(ends[1], CHANNEL, 0, whole, SOFTHCA_MAX_DESCRIPTORS + 4); /* some of them were cut off */
    CHECK(host_open_channel(&host, 0, &number, &descriptor) == EPROTO && lowest() == before);
    answers(ends[1], CHANNEL, 0, sizeof host.in + 1, 1); /* and here some bytes */
    CHECK(host_open_channel(&host, 0, &number, &descriptor) == EPROTO && lowest() == before);
    answers(ends[1], MEMORY, 0, wide, 1);
    CHECK(!real_take_memory(&host, 1, &descriptor, &length) && descriptor == before);
    close(descriptor);
    answers(ends[1], MEMORY, 0, whole, 1);
    CHECK(real_take_memory(&host, 1, &descriptor, &length) == EIO && lowest() == before);
    answers(ends[1], DETACH, 0, whole - 4, 1); /* one that nobody has asked for */
    CHECK(!host_ask(&host, softhca_encode_message_detach(host.out, sizeof host.out), NULL) && lowest() == before);
    while (recv(ends[1], asked, sizeof asked, MSG_DONTWAIT) > 0)
        ;
    host.dead = EPERM; /* nothing is asked any more */
    CHECK(host_open_channel(&host, 0, &number, &descriptor) == EPERM);
    CHECK(real_take_memory(&host, 1, &descriptor, &length) == EPERM);
    CHECK(real_pass_descriptor(&host, 0, &number) == EPERM && recv(ends[1], asked, 1, MSG_DONTWAIT) < 0);
    host.dead = 0;
    answers(ends[1], CHANNEL, 0, whole, 1);
    close(ends[1]); /* who has said it has not read what was asked, which is told first */
    CHECK(send(ends[0], "", 1, MSG_NOSIGNAL) < 0 && receive_message(&host, &descriptor) == 0 && descriptor >= 0);
    CHECK(ftruncate(host.memfd, 0) < 0); /* who has mapped it is not surprised */
}

static void unread(void)
{
    int ends[2], descriptor;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    host.control = ends[0];
    CHECK(send(ends[0], "asked", 5, 0) == 5);
    answers(ends[1], CHANNEL, 0, sizeof(struct softhca_message_header), 0);
    close(ends[1]);
    CHECK(!receive_message(&host, &descriptor) && host.in_bytes == sizeof(struct softhca_message_header));
    CHECK(receive_message(&host, &descriptor) == EIO);
}

static void interrupted(int number)
{
    (void)number;
}

/* A reply that stands in the ring before its command is sent. */
static int exchanges(uint32_t tag, uint32_t bytes, int dead)
{
    struct softhca_reply_header reply = {.tag = tag};
    uint64_t at = host.replies.control->tail % host.replies.entries;
    memcpy(host.replies.bodies, &reply, sizeof reply);
    host.replies.references[at] = (struct softhca_reference){0, bytes};
    host.replies.control->tail++;
    host.dead = dead;
    return host_exchange(&host, 16);
}

static void commands(void)
{
    struct sigaction action = {.sa_handler = interrupted};
    struct itimerval soon = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
    int ends[2], wakes[2], state, before;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) && !socketpair(AF_UNIX, SOCK_STREAM, 0, wakes));
    host.control = ends[0], host.wake = wakes[0];
    CHECK(!host_make_ring(&host, &host.commands, 4, 1024) && !host_make_ring(&host, &host.replies, 4, 1024));
    CHECK(exchanges(1, 16, EPERM) == EPERM && host.tag == 0 && !host.commands.control->tail);
    host.replies.control->tail = 0;
    CHECK(!exchanges(1, 16, 0) && host.tag == 1 && host.replies.control->head == 1 && host.commands.control->tail == 1);
    CHECK(exchanges(1, 16, 0) == EIO && host.dead == EIO); /* the reply to another command */
    CHECK(exchanges(3, 15, 0) == EIO && host.dead == EIO);
    host.dead = 0;
    CHECK(host_exchange(&host, 0) == EINVAL && !host.dead); /* it has no room in a command */
    CHECK(send(wakes[1], "abc", 3, 0) == 3 && !wait_for_reply(&host)); /* all that has rung is taken at once */
    CHECK(recv(wakes[0], &state, 1, MSG_DONTWAIT) < 0);
    CHECK(!sigaction(SIGALRM, &action, NULL) && !setitimer(ITIMER_REAL, &soon, NULL));
    CHECK(!wait_for_reply(&host) && !host.dead); /* a signal ends no attachment */
    setitimer(ITIMER_REAL, &never, NULL);
    lock_commands(&host, &before); /* who is cancelled within would leave the lock */
    CHECK(before == PTHREAD_CANCEL_ENABLE && !pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state));
    CHECK(state == PTHREAD_CANCEL_DISABLE);
    unlock_commands(&host, before);
    CHECK(!pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) && state == PTHREAD_CANCEL_ENABLE);
    close(ends[1]);
    CHECK(wait_for_reply(&host) == EIO && host.dead == EIO);
}

static void attaching(void)
{
    struct host *made = calloc(1, sizeof *made);
    size_t bytes = sizeof(struct softhca_message_header) + 16;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[64], asked[4096];
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof path - 1);
    int ends[2], listening, child, status;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) && made);
    *made = (struct host){.control = ends[0], .memfd = -1, .wake = -1};
    CHECK(!make_host_memory(made));
    foreign_told = EPERM, answers(ends[1], ATTACH, 0, bytes, 1);
    CHECK(!send_attach(made) && made->foreign == EPERM && made->wake >= 0 && made->doorbells && made->flag);
    made->wake = -1, foreign_told = 0, answers(ends[1], ATTACH, 0, bytes, 0);
    CHECK(send_attach(made) == EPROTO); /* without a socket that wakes it */
    while (recv(ends[1], asked, sizeof asked, MSG_DONTWAIT) > 0)
        ;
    answers(ends[1], DETACH, 0, sizeof(struct softhca_message_header), 0);
    made->wake = dup(0);
    made->dead = EIO;
    host_detach(made); /* without a word to who has gone */
    CHECK(recv(ends[1], asked, sizeof asked, MSG_DONTWAIT) <= 0);
    if (geteuid())
        return;
    /* root's adapter is anybody's, and another user's nobody's else: it writes memory */
    memset(path, 0, sizeof path);
    memset(path, 'x', sizeof path - 1);
    snprintf(path, sizeof path - 1, "@softhca-test-%d-", getpid());
    path[strlen(path)] = 'x';
    memcpy(address.sun_path, path, sizeof path - 1);
    address.sun_path[0] = 0;
    listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(!bind(listening, (struct sockaddr *)&address, length) && !listen(listening, 4));
    if (!(child = fork())) {
        close(listening);
        _exit(setuid(1) || connect_to(path) < 0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    close(listening);
    CHECK(!pipe(ends));
    if (!(child = fork())) {
        CHECK(!setuid(1));
        listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        CHECK(!bind(listening, (struct sockaddr *)&address, length) && !listen(listening, 4));
        CHECK(write(ends[1], "", 1) == 1);
        pause();
    }
    CHECK(read(ends[0], asked, 1) == 1);
    status = connect_to(path) < 0 ? errno : 0;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(status == EPERM);
}

/* A descriptor that says so, of which `seals` are closed. */
static int descriptor_of(const char *text, size_t bytes, int seals)
{
    int made = memfd_create("descriptor", MFD_ALLOW_SEALING);
    CHECK(write(made, text, bytes) == (ssize_t)bytes && !fcntl(made, F_ADD_SEALS, seals));
    return made;
}

static int imports(const char *text, size_t bytes)
{
    struct ibv_context *base = ibv_import_device(descriptor_of(text, bytes, SEALS));
    CHECK(!base || base == &opened.context);
    return base ? 0 : errno;
}

static void importing(void)
{
    static const char good[] = FIRST_LINE "name\n@place\n";
    struct device device = {.socket = "/run/a"};
    char text[MOST_BYTES + 10];
    struct ibv_pd *domain;
    struct ibv_mr *mr;
    int made;
    opened.host = &host;
    CHECK(!ibv_import_device(999) && errno == EBADF && !ibv_import_device(0) && errno == EOPNOTSUPP);
    made = descriptor_of(good, sizeof good - 1, F_SEAL_SHRINK);
    CHECK(!ibv_import_device(made) && errno == EOPNOTSUPP); /* who gave it may change it still */
    CHECK(!imports(good, sizeof good - 1) && !strcmp(name_told, "name") && !strcmp(place_told, "@place"));
    CHECK(opened.context.cmd_fd > made && told.import_context.descriptor == 77);
    CHECK(imports(good, sizeof good) == EOPNOTSUPP && imports(good, sizeof good - 2) == EOPNOTSUPP);
    CHECK(imports(FIRST_LINE "\n@place\n", sizeof FIRST_LINE + 7) == EOPNOTSUPP);
    CHECK(imports(FIRST_LINE "name\n\n", sizeof FIRST_LINE + 5) == EOPNOTSUPP);
    CHECK(imports(FIRST_LINE "name\na\nb\n", sizeof FIRST_LINE + 8) == EOPNOTSUPP);
    CHECK(imports(FIRST_LINE "na\0me\na\n", sizeof FIRST_LINE + 7) == EOPNOTSUPP);
    CHECK(imports(FIRST_LINE "name\na\0b\n", sizeof FIRST_LINE + 8) == EOPNOTSUPP);
    CHECK(imports("softhca device 2\nname\na\n", 24) == EOPNOTSUPP);
    memset(text, 'a', sizeof text);
    memcpy(text, good, sizeof good - 2);
    text[MOST_BYTES] = text[MOST_BYTES + 1] = '\n';
    CHECK(imports(text, MOST_BYTES + 1) == EOPNOTSUPP && imports(text, MOST_BYTES + 2) == EOPNOTSUPP);
    CHECK(!closed);
    refuses = EPERM;
    CHECK(imports(good, sizeof good - 1) == EPERM && closed == 1);
    CHECK(!ibv_import_pd(&opened.context, 5) && errno == EPERM);
    refuses = 0;
    domain = ibv_import_pd(&opened.context, 5);
    CHECK(domain && domain->handle == 5 && told.import_pd.pd == 5);
    mr = ibv_import_mr(domain, 6);
    CHECK(mr && mr->length == 4096 && mr->lkey == 3 && mr->rkey == 4 && mr->handle == 6 && told.import_mr.pd == 5);
    ibv_unimport_mr(mr);
    ibv_unimport_pd(domain);
    CHECK(calls.unimport_pd == 1 && told.unimport_pd.pd == 5);
    strcpy(device.device.name, "here");
    opened.device = &device, opened.context.cmd_fd = -1;
    made = lowest();
    refuses = EPERM;
    CHECK(export_context(&opened) == EPERM && lowest() == made && opened.context.cmd_fd < 0);
    refuses = 0;
    CHECK(!export_context(&opened) && opened.context.cmd_fd == made && ftruncate(made, 0) < 0);
    CHECK(ibv_import_device(made) && !strcmp(name_told, "here") && !strcmp(place_told, "/run/a"));
}

int main(int argc, char **argv)
{
    static const struct named cases[] = {
        {"runs", runs},
        {"rings", rings},
        {"taking", taking},
        {"ringing", ringing},
        {"checking", checking},
        {"sockets", addresses_of_sockets},
        {"control", control},
        {"unread", unread},
        {"commands", commands},
        {"attaching", attaching},
        {"importing", importing},
    };
    return run_one(cases, sizeof cases / sizeof *cases, argc, argv);
}
