cdef extern from "pythread.h":
    unsigned long thread_ident "PyThread_get_thread_ident"()

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <signal.h>
    #include <stdatomic.h>
    #include <time.h>

    #ifndef SOFTHCA_DEFERRED_SIGNALS
    #define SOFTHCA_DEFERRED_SIGNALS

    #define SOFTHCA_UNUSED __attribute__((unused))

    /* Read and written by handlers in any thread, so each access has its place in one order of all. */
    static _Atomic int signals_deferring;          /* the main thread is within a section */
    static _Atomic int signals_told;               /* Python has been told of one and may not have looked */
    static _Atomic unsigned long long signals_kept;     /* those that came within the section: bit number - 1 */
    static void (*python_handler)(int);            /* the interpreter's, which only notes the number */

    static void signals_tell(int number) {
        atomic_store(&signals_told, 1);
        python_handler(number);
    }

    static void signals_handler(int number) {
        int before = errno;
        unsigned long long bit = 1ULL << (number - 1);
        atomic_store(&signals_told, 1);  /* before the look: else a section could begin in between */
        if (atomic_load(&signals_deferring)) {
            atomic_fetch_or(&signals_kept, bit);
            /* Where the section ends meanwhile, one of both tells it. */
            if (!atomic_load(&signals_deferring) && (atomic_fetch_and(&signals_kept, ~bit) & bit))
                python_handler(number);
        } else
            python_handler(number);
        errno = before;
    }

    SOFTHCA_UNUSED static void signals_learn(int number) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler != SIG_DFL
            && now.sa_handler != SIG_IGN && now.sa_handler != signals_handler)
            python_handler = now.sa_handler;
    }

    SOFTHCA_UNUSED static int signals_known(void) { return python_handler != NULL; }

    /* Put our handler before Python's wherever that stands alone, of the signals that programs handle. */
    SOFTHCA_UNUSED static int signals_put_before(void) {
        static const int numbers[] = {SIGINT, SIGALRM, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD,
                                      SIGVTALRM, SIGPROF, SIGIO, SIGTSTP, SIGCONT, SIGWINCH, SIGPIPE, SIGXCPU};
        struct sigaction now;
        unsigned place;
        int count = 0;
        for (place = 0; place < sizeof numbers / sizeof *numbers; place++) {
            if (sigaction(numbers[place], NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO))
                continue;
            if (now.sa_handler == python_handler) {
                now.sa_handler = signals_handler;
                if (sigaction(numbers[place], &now, NULL) == 0)
                    count++;
            }
        }
        return count;
    }

    /* Whether the last time that this was true is LOOK_NS ago. */
    SOFTHCA_UNUSED static int signals_look_is_due(unsigned long long look_ns) {
        static unsigned long long due_ns;
        struct timespec at;
        unsigned long long now_ns;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &at);
        now_ns = at.tv_sec * 1000000000ULL + at.tv_nsec;
        if (now_ns < due_ns)
            return 0;
        due_ns = now_ns + look_ns;
        return 1;
    }

    /* 0 where the section has begun, else 1: Python has to look for signals first. */
    SOFTHCA_UNUSED static int signals_begin(void) {
        atomic_store(&signals_deferring, 1);
        if (!atomic_load(&signals_told))
            return 0;
        atomic_store(&signals_deferring, 0);
        atomic_store(&signals_told, 0);
        return 1;
    }

    SOFTHCA_UNUSED static void signals_end(void) {
        unsigned long long kept;
        int number;
        atomic_store(&signals_deferring, 0);
        if (!atomic_load(&signals_kept))
            return;
        kept = atomic_exchange(&signals_kept, 0);
        for (number = 1; kept; number++, kept >>= 1)
            if (kept & 1)
                signals_tell(number);
    }
    #endif
    """
    int signals_begin()
    void signals_end()
    void signals_learn(int number)
    int signals_known()
    int signals_put_before()
    int signals_look_is_due(unsigned long long look_ns)

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1


cdef unsigned long main_thread
cdef unsigned int depth

cpdef bint begin() except -1
cpdef object end()
