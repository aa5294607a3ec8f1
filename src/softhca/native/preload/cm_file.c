/* Open files of the rdma_cm device: descriptors that are readable while events wait, their events, what
   becomes of them at a fork. */
#include "cm.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic(struct file *) files[MOST_FILES];
static struct file *unused; /* never freed: a thread may be about to use one that another one closes */
static uint32_t open_files;
static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
/* This thread has the lock: descriptors that it closes come by cm_find(), too. */
static __thread int has_lock __attribute__((tls_model("initial-exec")));

static void lock(void)
{
    pthread_mutex_lock(&all);
    has_lock = 1;
}

static void unlock(void)
{
    has_lock = 0;
    pthread_mutex_unlock(&all);
}

void cm_lock(int *cancel_state)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel_state);
    lock();
}

void cm_unlock(int cancel_state)
{
    unlock();
    pthread_setcancelstate(cancel_state, NULL);
}

/* Forks: the child has the descriptors, and nothing that stands behind them. */

static void fork_prepare(void)
{
    lock();
}

static void fork_parent(void)
{
    unlock();
}

static void fork_child(void)
{
    for (int i = 0; i < MOST_FILES && open_files; i++) {
        struct file *file = atomic_load(&files[i]);
        if (file && !file->dead) {
            file->dead = 1;
            atomic_store(&file->users, 0);
            open_files--;
        }
    }
    open_files = 0;
    identifiers_forget();
    devices_abandon();
    unlock();
}

static void once_only(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* Descriptors */

static int inode_of(int descriptor, uint64_t *inode)
{
    struct stat status;
    if (fstatat(descriptor, "", &status, AT_EMPTY_PATH))
        return errno;
    *inode = status.st_ino;
    return 0;
}

/* Where the program has closed all descriptors by their numbers these may be others' now. */
static void close_own(int descriptor, uint64_t inode)
{
    uint64_t found;
    if (!inode_of(descriptor, &found) && found == inode)
        close(descriptor);
}

/* Free a file that was closed, unless somebody waits in it: as in the kernel, who waits for an event of it
   goes on waiting, and the file ends with the last of them.  The devices, where it was the last file. */
static struct device *release(struct file *file)
{
    struct device *ended = NULL;
    struct identifier *id;
    uint32_t handle = 0;
    if (file->descriptor >= 0 || file->ended || atomic_load(&file->users))
        return NULL;
    while (!file->dead && (id = identifier_next(&handle)))
        if (id->file == file)
            identifier_free(id);
    if (!file->dead && !--open_files)
        ended = devices_take();
    close_own(file->inner, file->inode);
    close_own(file->other, file->other_inode);
    file->ended = 1;
    file->next = unused;
    unused = file;
    return ended;
}

struct file *file_of(int descriptor)
{
    struct file *file;
    uint64_t inode;
    if (descriptor < 0 || descriptor >= MOST_FILES)
        return NULL;
    file = atomic_load_explicit(&files[descriptor], memory_order_acquire);
    if (!file || (!inode_of(descriptor, &inode) && inode == file->inode))
        return file;
    return NULL;
}

/* Take out a file whose descriptor was closed behind our back and is another file's now; the lock is held.  It
   is looked at once more: another thread may have opened one under this number meanwhile.  The devices, where it
   was the last file. */
static struct device *forget(int descriptor)
{
    struct file *file = atomic_load(&files[descriptor]);
    if (!file || file_of(descriptor) || !atomic_compare_exchange_strong(&files[descriptor], &file, NULL))
        return NULL;
    file->descriptor = -1;
    return release(file);
}

struct file *cm_find(int descriptor)
{
    int error = errno;
    struct file *file;
    struct device *ended;
    if (descriptor < 0 || descriptor >= MOST_FILES)
        return NULL;
    file = atomic_load_explicit(&files[descriptor], memory_order_acquire);
    /* In a child of vfork() it is the parent's, and this memory too. */
    if (!file || (!file->dead && file->pid != getpid()))
        return NULL;
    file = file_of(descriptor);
    if (!file && !has_lock) { /* with the lock: who comes next does it */
        LOCKED(ended = forget(descriptor));
        devices_free(ended);
    }
    errno = error;
    return file;
}

/* A file of these three descriptors, which is found from now on; the lock is held. */
static struct file *new_file(const int ends[2], int inner, const uint64_t inodes[2])
{
    struct file *file = unused;
    if (file)
        unused = file->next;
    else
        file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->descriptor = ends[0]; /* `users` stays: a thread may be finding out that it came too late */
    file->inner = inner;
    file->other = ends[1];
    file->token = file->dead = file->ended = 0;
    file->inode = inodes[0];
    file->other_inode = inodes[1];
    file->pid = getpid();
    file->first = NULL;
    file->last = &file->first;
    open_files++;
    atomic_store_explicit(&files[ends[0]], file, memory_order_release);
    return file;
}

int cm_open(int flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct file *file = NULL;
    struct device *ended = NULL;
    uint64_t inodes[2];
    int ends[2], inner = -1, error = EMFILE;
    pthread_once(&once, once_only);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (flags & O_NONBLOCK ? SOCK_NONBLOCK : 0), 0, ends))
        return -1;
    if (ends[0] < MOST_FILES && !inode_of(ends[0], &inodes[0]) && !inode_of(ends[1], &inodes[1]))
        inner = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
    if (inner >= 0) {
        error = ENOMEM;
        LOCKED(ended = forget(ends[0]); file = new_file(ends, inner, inodes));
        devices_free(ended);
    }
    if (!file) {
        close(ends[0]), close(ends[1]);
        if (inner >= 0)
            close(inner);
        errno = error;
        return -1;
    }
    if (!(flags & O_CLOEXEC))
        fcntl(ends[0], F_SETFD, 0);
    return ends[0];
}

int cm_close(struct file *file, int descriptor)
{
    struct device *ended;
    int result;
    struct file *expected = file;
    if (!atomic_compare_exchange_strong(&files[descriptor], &expected, NULL)) {
        errno = EBADF;
        return -1;
    }
    LOCKED(file->descriptor = -1; result = close(descriptor); ended = release(file));
    devices_free(ended);
    return result;
}

/* Events */

void file_post(struct file *file, struct event *event)
{
    event->next = NULL;
    *file->last = event;
    file->last = &event->next;
    if (!file->token) {
        file->token = 1;
        send(file->other, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* Take the byte back where no event waits any more.  Where it is not there a reader has taken it, and finds out by
   itself. */
static void settle(struct file *file)
{
    char token;
    if (!file->first && file->token && recv(file->inner, &token, 1, MSG_DONTWAIT) == 1)
        file->token = 0;
}

void file_move(struct file *from, struct file *to, struct identifier *owner, struct group *group)
{
    struct event **each = &from->first, *event;
    while ((event = *each)) {
        if (event->owner != owner || (group && event->group != group)) {
            each = &event->next;
            continue;
        }
        *each = event->next;
        if (to) {
            if (event->child)
                event->child->file = to;
            file_post(to, event);
        } else {
            struct identifier *child = event->child;
            free(event);
            if (child) {
                child->request = NULL;
                identifier_free(child);
            }
        }
    }
    from->last = each;
    settle(from);
}

void file_drop(struct file *file, struct event *event)
{
    struct event **each = &file->first;
    while (*each && *each != event)
        each = &(*each)->next;
    if (!*each)
        return;
    *each = event->next;
    if (file->last == &event->next)
        file->last = each;
    free(event);
    settle(file);
}

/* Whether `file` still is this open descriptor's. */
static int is_open(const struct file *file, int descriptor)
{
    return atomic_load(&files[descriptor]) == file;
}

static void unuse(void *argument)
{
    struct file *file = argument;
    struct device *ended;
    atomic_fetch_sub(&file->users, 1);
    LOCKED(ended = release(file));
    devices_free(ended);
}

/* Whether the descriptor is open; then the file does not end before unuse().  This takes no lock: a command of
   another thread may hold it until its adapter answers, and who has come before a close is to wait on. */
static int use(struct file *file, int descriptor)
{
    atomic_fetch_add(&file->users, 1);
    if (is_open(file, descriptor))
        return 1;
    unuse(file);
    return 0;
}

/* Wait for the byte, where signals and cancellation do what they do in a read(); errno. */
static int await_byte(struct file *file)
{
    char token;
    ssize_t got;
    pthread_cleanup_push(unuse, file);
    got = read(file->inner, &token, 1);
    pthread_cleanup_pop(0);
    return got < 0 ? errno : got ? 0 : EIO;
}

static int take_event(struct file *file, struct ucma_event *ucma)
{
    struct event *event = file->first;
    file->token = 0;
    if (!event)
        return 0;
    file->first = event->next;
    if (file->first) {
        file->token = 1;
        send(file->other, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
        file->last = &file->first;
    }
    event->owner->events_reported++;
    if (event->group)
        event->group->events_reported++;
    if (event->child)
        event->child->request = NULL;
    *ucma = event->ucma;
    free(event);
    return 1;
}

static int get_event(struct file *file, int descriptor, uint64_t response, size_t room)
{
    struct ucma_event ucma;
    int error = 0, found = 0;
    if (room < offsetof(struct ucma_event, reserved))
        return ENOSPC;
    if (!use(file, descriptor))
        return EBADF;
    if (file->dead)
        error = EIO;
    while (!error && !found) {
        error = await_byte(file);
        if (!error)
            LOCKED(found = take_event(file, &ucma));
    }
    unuse(file);
    if (!error)
        memcpy((void *)(uintptr_t)response, &ucma, room < sizeof ucma ? room : sizeof ucma);
    return error;
}

int cm_command(struct file *file, const struct ucma_header *header, const void *fields);

ssize_t cm_write(struct file *file, int descriptor, const void *data, size_t bytes)
{
    const char *fields = (const char *)data + sizeof(struct ucma_header);
    struct ucma_header header;
    uint64_t response;
    int error;
    if (bytes < sizeof header) {
        errno = EINVAL;
        return -1;
    }
    memcpy(&header, data, sizeof header);
    if (header.in > bytes - sizeof header || header.command >= UCMA_COMMANDS) {
        error = EINVAL;
    } else if (header.command == UCMA_GET_EVENT) {
        if (header.in < sizeof response) {
            error = EINVAL;
        } else {
            memcpy(&response, fields, sizeof response);
            error = get_event(file, descriptor, response, header.out);
        }
    } else {
        LOCKED(error = !is_open(file, descriptor) ? EBADF : file->dead ? EIO : cm_command(file, &header, fields));
    }
    if (error) {
        errno = error;
        return -1;
    }
    return (ssize_t)bytes;
}
