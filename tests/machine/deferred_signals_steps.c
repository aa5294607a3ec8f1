/* The handler of deferred_signals.pxd, whose C stands in section.h, and an interpreter's that stands still. */
#include "section.h"

#include <assert.h>
#include <pthread.h>
#include <semaphore.h>

static sem_t came, goes_on;
static _Atomic int noted;

static void note(int number) {
    (void)number;
    atomic_fetch_add(&noted, 1);
}

static void note_late(int number) {
    sem_post(&came);
    while (sem_wait(&goes_on) != 0) {
    }
    note(number);
}

static void *get_signal(void *nothing) {
    pthread_kill(pthread_self(), SIGUSR1);
    return nothing;
}

static void begins_only_when_the_interpreter_has_noted_what_another_thread_got(void) {
    pthread_t thread;
    int each;
    python_handler = note_late;
    pthread_create(&thread, NULL, get_signal, NULL);
    sem_wait(&came);
    for (each = 0; each < 100; each++)
        assert(signals_begin() == 1);
    sem_post(&goes_on);
    pthread_join(thread, NULL);
    assert(noted == 1);
    assert(signals_begin() == 1); /* once more: it has to look */
    assert(signals_begin() == 0);
    signals_end();
}

/* One comes between the two looks of a beginning: no section has begun, so nobody will end one. */
static void tells_what_was_kept_though_no_section_began(void) {
    python_handler = note;
    noted = 0;
    atomic_store(&signals_told, 1);
    atomic_store(&signals_deferring, 1);
    raise(SIGUSR1);
    assert(noted == 0);
    assert(signals_begin() == 1);
    assert(noted == 1);
    while (signals_begin())
        ;
    signals_end();
    assert(noted == 1);
}

int main(void) {
    sem_init(&came, 0, 0);
    sem_init(&goes_on, 0, 0);
    signal(SIGUSR1, signals_handler);
    begins_only_when_the_interpreter_has_noted_what_another_thread_got();
    tells_what_was_kept_though_no_section_began();
    return 0;
}
