/* Open files of the rdma_cm device when descriptors are closed behind its back.  cm_file.c stands here whole,
   with no identifiers and no devices; argv[1] names what is tried. */
#define _GNU_SOURCE
#include "cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int closes(int descriptor);
static int looks(int folder, const char *path, struct stat *status, int flags);
#define close closes
#define fstatat looks
#include "cm_file.c"
#undef close
#undef fstatat

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            exit(1);                                                  \
        }                                                             \
    } while (0)

static void (*meanwhile)(void); /* what another thread does behind the next look at a descriptor */
static int number;

static int raw_close(int descriptor)
{
    return (int)syscall(SYS_close, descriptor);
}

static int closes(int descriptor) /* as the preloaded one */
{
    struct file *file = cm_find(descriptor);
    return file ? cm_close(file, descriptor) : raw_close(descriptor);
}

static int looks(int folder, const char *path, struct stat *status, int flags)
{
    int result = fstatat(folder, path, status, flags);
    void (*then)(void) = meanwhile;
    meanwhile = NULL;
    if (then)
        then();
    return result;
}

struct identifier *identifier_next(uint32_t *handle) { return (void)handle, NULL; }
static struct identifier *freed;
void identifier_free(struct identifier *id) { freed = id; }
void identifiers_forget(void) {}
static int taken;
struct device *devices_take(void) { return taken++, NULL; }
void devices_free(struct device *list) { (void)list; }
void devices_abandon(void) {}
int cm_command(struct file *file, const struct ucma_header *header, const void *fields)
{
    return (void)file, (void)header, (void)fields, ENOSYS;
}

static int stranger(void)
{
    int descriptor = open("/dev/null", O_RDONLY);
    CHECK(descriptor >= 0);
    return descriptor;
}

static int is_open_at_all(int descriptor)
{
    return fcntl(descriptor, F_GETFD) >= 0;
}

/* A file whose descriptor is a stranger's now. */
static void displace(void)
{
    int other;
    number = cm_open(O_CLOEXEC);
    CHECK(number >= 0 && cm_find(number));
    other = stranger();
    CHECK(dup2(other, number) == number);
    CHECK(!raw_close(other));
}

static void open_anew(void)
{
    CHECK(!raw_close(number));
    CHECK(cm_open(0) == number);
}

/* Another thread opens a file under the number between a look at its descriptor and what follows from it. */
static void opened_meanwhile(void)
{
    displace();
    meanwhile = open_anew;
    CHECK(!cm_find(number));
    CHECK(cm_find(number));
    CHECK(open_files == 1 && taken == 1);
    CHECK(!closes(number) && !is_open_at_all(number));
    CHECK(open_files == 0 && taken == 2);
}

/* A descriptor that this object itself closes has a number under which a file was forgotten. */
static void number_is_its_own(void)
{
    int opened, inner;
    displace();
    opened = cm_open(0);
    CHECK(opened >= 0 && opened != number && open_files == 2);
    CHECK(!raw_close(number));
    inner = files[opened]->inner;
    files[opened]->inner = fcntl(inner, F_DUPFD_CLOEXEC, number);
    CHECK(files[opened]->inner == number && !raw_close(inner));
    CHECK(!closes(opened) && !is_open_at_all(number) && open_files == 1);
    CHECK(stranger() == (opened < number ? opened : number) && files[number]);
    CHECK(!cm_find(number) && !files[number] && open_files == 0 && taken == 1);
}

/* All descriptors were closed by their numbers, and others have them. */
static void numbers_are_others(void)
{
    int first = stranger(), opened;
    CHECK(!raw_close(first));
    opened = cm_open(0);
    CHECK(opened == first);
    CHECK(!syscall(SYS_close_range, first, ~0U, 0));
    for (int each = first; each < first + 3; each++)
        CHECK(stranger() == each);
    CHECK(!closes(first) && !is_open_at_all(first));
    CHECK(is_open_at_all(first + 1) && is_open_at_all(first + 2));
    CHECK(open_files == 0 && taken == 1);
}

/* What is closed is closed: its three descriptors, and the devices with the last file. */
static void all_is_closed(void)
{
    int first = stranger(), one, two;
    CHECK(!raw_close(first));
    one = cm_open(0), two = cm_open(O_CLOEXEC);
    CHECK(fcntl(one, F_GETFD) == 0 && fcntl(two, F_GETFD) == FD_CLOEXEC);
    CHECK(!closes(one) && taken == 0 && open_files == 1);
    CHECK(!closes(two) && taken == 1 && open_files == 0);
    for (int each = first; each < first + 6; each++)
        CHECK(!is_open_at_all(each));
    CHECK(closes(one) == -1 && errno == EBADF);
}

static struct identifier owners[3];
static struct group groups[2];

static void post(struct file *file, struct identifier *owner, struct group *group, uint32_t what)
{
    struct event *event = calloc(1, sizeof *event);
    CHECK(event);
    event->owner = owner, event->group = group, event->ucma.event = what;
    file_post(file, event);
}

static int readable(int descriptor)
{
    char token;
    return recv(descriptor, &token, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

static ssize_t get(int descriptor, struct ucma_event *found, uint16_t room)
{
    struct {
        struct ucma_header header;
        uint64_t response;
    } __attribute__((packed)) command = {
        {.command = UCMA_GET_EVENT, .in = sizeof(uint64_t), .out = room}, (uintptr_t)found};
    struct file *file = cm_find(descriptor);
    CHECK(file);
    memset(found, 0xAA, sizeof *found);
    return cm_write(file, descriptor, &command, sizeof command);
}

/* A descriptor is readable exactly while events wait, and each is told once, in order. */
static void events_in_order(void)
{
    int one = cm_open(O_NONBLOCK), two = cm_open(O_NONBLOCK);
    struct file *first = cm_find(one), *second = cm_find(two);
    struct ucma_event found;
    size_t whole = sizeof found;
    CHECK(get(one, &found, (uint16_t)whole) == -1 && errno == EAGAIN && !readable(one));
    post(first, &owners[0], NULL, 1), post(first, &owners[1], &groups[0], 2), post(first, &owners[0], NULL, 3);
    CHECK(readable(one));
    CHECK(get(one, &found, offsetof(struct ucma_event, reserved) - 1) == -1 && errno == ENOSPC && readable(one));
    for (uint32_t what = 1; what <= 3; what++) {
        CHECK(readable(one));
        CHECK(get(one, &found, (uint16_t)whole) > 0 && found.event == what);
    }
    CHECK(!readable(one) && get(one, &found, (uint16_t)whole) == -1 && errno == EAGAIN);
    CHECK(owners[0].events_reported == 2 && owners[1].events_reported == 1 && groups[0].events_reported == 1);
    /* moved with their owner, the group's alone or all; the last one of a list, and the first */
    post(first, &owners[0], NULL, 4), post(first, &owners[1], &groups[0], 5), post(first, &owners[1], &groups[1], 6);
    file_move(first, second, &owners[1], &groups[1]);
    CHECK(readable(one) && readable(two));
    post(first, &owners[1], NULL, 7);
    file_move(first, second, &owners[1], NULL);
    CHECK(get(one, &found, (uint16_t)whole) > 0 && found.event == 4 && !readable(one));
    for (uint32_t what = 5; what <= 7; what++) {
        static const uint32_t order[] = {6, 5, 7};
        CHECK(get(two, &found, (uint16_t)whole) > 0 && found.event == order[what - 5]);
    }
    CHECK(!readable(two));
    /* nobody's, and dropped: in the middle, at the end, the last one, one that does not wait */
    post(first, &owners[2], NULL, 8);
    file_move(first, NULL, &owners[2], NULL);
    CHECK(!readable(one));
    post(first, &owners[0], NULL, 9), post(first, &owners[0], NULL, 10), post(first, &owners[0], NULL, 11);
    file_drop(first, first->first->next->next);
    file_drop(second, first->first);
    post(first, &owners[0], NULL, 12);
    file_drop(first, first->first->next);
    CHECK(get(one, &found, (uint16_t)whole) > 0 && found.event == 9 && readable(one));
    file_drop(first, first->first);
    CHECK(!readable(one));
    post(first, &owners[0], NULL, 13);
    CHECK(get(one, &found, (uint16_t)whole) > 0 && found.event == 13);
    CHECK(!closes(one) && !closes(two));
    /* one that is opened anew has nothing of an event that nobody has taken */
    one = cm_open(O_NONBLOCK), post(cm_find(one), &owners[0], NULL, 14), free(cm_find(one)->first);
    CHECK(!closes(one));
    one = cm_open(O_NONBLOCK);
    CHECK(!readable(one));
    post(cm_find(one), &owners[0], NULL, 15);
    CHECK(readable(one));
    /* programs of older interfaces have less room, and get no more */
    CHECK(get(one, &found, offsetof(struct ucma_event, reserved)) > 0 && found.event == 15);
    CHECK(found.reserved == 0xAAAAAAAA && found.ece.vendor_id == 0xAAAAAAAA);
    shutdown(cm_find(one)->other, SHUT_WR);
    CHECK(get(one, &found, (uint16_t)whole) == -1 && errno == EIO);
    CHECK(!closes(one));
}

/* A request's connection belongs to the file that its event has moved to, and is known once that is taken. */
static void requests_move(void)
{
    int one = cm_open(O_NONBLOCK), two = cm_open(O_NONBLOCK);
    struct file *first = cm_find(one), *second = cm_find(two);
    struct ucma_event found;
    post(first, &owners[0], NULL, 1);
    owners[1].file = first, owners[1].request = first->first, first->first->child = &owners[1];
    file_move(first, second, &owners[0], NULL);
    CHECK(owners[1].file == second && owners[1].request);
    CHECK(get(two, &found, sizeof found) > 0 && !owners[1].request);
    post(first, &owners[0], NULL, 2);
    owners[1].request = first->first, first->first->child = &owners[1];
    file_move(first, NULL, &owners[0], NULL);
    CHECK(!owners[1].request && freed == &owners[1] && !first->first && first->last == &first->first);
}

/* Commands that cannot be, and lengths that are just too short. */
static void lengths(void)
{
    int one = cm_open(O_NONBLOCK);
    struct file *file = cm_find(one);
    struct ucma_event event;
    struct {
        struct ucma_header header;
        uint64_t response;
    } __attribute__((packed)) command = {
        {.command = UCMA_GET_EVENT, .in = 8, .out = sizeof event}, (uintptr_t)&event};
    CHECK(cm_write(file, one, &command, sizeof command.header - 1) == -1 && errno == EINVAL);
    CHECK(cm_write(file, one, &command, sizeof command - 1) == -1 && errno == EINVAL);
    command.header.in = 7;
    CHECK(cm_write(file, one, &command, sizeof command) == -1 && errno == EINVAL);
    command.header.in = 8, command.header.command = UCMA_COMMANDS;
    CHECK(cm_write(file, one, &command, sizeof command) == -1 && errno == EINVAL);
    command.header.command = UCMA_COMMANDS - 1;
    CHECK(cm_write(file, one, &command, sizeof command) == -1 && errno == ENOSYS);
    CHECK(!cm_find(-1) && !cm_find(MOST_FILES));
    CHECK(!closes(one));
    CHECK(cm_write(file, one, &command, sizeof command) == -1 && errno == EBADF);
    command.header.command = UCMA_GET_EVENT;
    CHECK(cm_write(file, one, &command, sizeof command) == -1 && errno == EBADF);
}

/* A file ends with the last who waits in it, once; who finds out late that it was closed ends nothing. */
static void waited_in(void)
{
    int one = cm_open(O_NONBLOCK), inner, before;
    struct file *file = cm_find(one);
    inner = file->inner;
    CHECK(use(file, one));
    CHECK(!closes(one) && !file->ended && is_open_at_all(inner) && open_files == 1);
    CHECK(!use(file, one) && !file->ended);
    unuse(file);
    CHECK(file->ended && !is_open_at_all(inner) && open_files == 0 && taken == 1);
    CHECK(!use(file, one) && open_files == 0 && taken == 1);
    errno = before = ENOTTY;
    CHECK(!cm_find(one) && errno == before); /* a look changes no errno */
    displace();
    errno = before;
    CHECK(!cm_find(number) && errno == before && !files[number]);
    displace();
    CHECK(!raw_close(number));
    errno = before;
    CHECK(!cm_find(number) && errno == before && !files[number]);
}

/* The child of a fork has the descriptors and nothing behind them; its parent keeps all. */
static void forked(void)
{
    int one = cm_open(O_NONBLOCK), status, inner = cm_find(one)->inner;
    struct ucma_event event;
    pid_t child;
    post(cm_find(one), &owners[0], NULL, 1);
    CHECK(use(cm_find(one), one)); /* a thread waits there, which the child has not */
    child = fork();
    if (!child) {
        CHECK(get(one, &event, sizeof event) == -1 && errno == EIO && open_files == 0);
        CHECK(!closes(one) && taken == 0 && !is_open_at_all(inner));
        one = cm_open(0);
        CHECK(one >= 0 && open_files == 1 && !closes(one) && taken == 1);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    unuse(cm_find(one));
    CHECK(get(one, &event, sizeof event) > 0 && event.event == 1);
    CHECK(open_files == 1 && !closes(one) && taken == 1);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"opened-meanwhile", opened_meanwhile}, {"number-is-its-own", number_is_its_own},
        {"numbers-are-others", numbers_are_others}, {"all-is-closed", all_is_closed},
        {"events", events_in_order}, {"requests", requests_move}, {"lengths", lengths}, {"forks", forked},
        {"waits", waited_in},
    };
    for (size_t at = 0; argc == 2 && at < sizeof cases / sizeof *cases; at++)
        if (!strcmp(argv[1], cases[at].name)) {
            cases[at].run();
            return 0;
        }
    return 2;
}
