cdef extern from "pythread.h":
    unsigned long thread_ident "PyThread_get_thread_ident"()

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdatomic.h>
    #include <time.h>
    #include <unistd.h>

    #ifndef SOFTHCA_DEFERRED_SIGNALS
    #define SOFTHCA_DEFERRED_SIGNALS

    #define SOFTHCA_UNUSED __attribute__((unused))

    /* Read and written by handlers in any thread, so each access has its place in one order of all. */
    static _Atomic int signals_deferring;          /* the main thread is within a section */
    static _Atomic int signals_running;            /* handlers that have begun and not ended */
    static _Atomic int signals_told;               /* Python has been told of one and may not have looked */
    static _Atomic unsigned long long signals_kept;     /* those that came within the section: bit number - 1 */
    static _Atomic int signals_process;            /* whose they are */
    static void (*python_handler)(int);            /* the interpreter's, which only notes the number */

    static void signals_tell(int number) {
        python_handler(number);
        atomic_store(&signals_told, 1);
    }

    static void signals_keep(int number) {
        unsigned long long bit = 1ULL << (number - 1);
        int process = getpid();
        if (atomic_exchange(&signals_process, process) != process)
            atomic_store(&signals_kept, 0); /* what is pending at a fork is the parent's */
        atomic_fetch_or(&signals_kept, bit);
        /* Where the section ends meanwhile, one of both tells it. */
        if (!atomic_load(&signals_deferring) && (atomic_fetch_and(&signals_kept, ~bit) & bit))
            signals_tell(number);
    }

    static void signals_handler(int number) {
        int before = errno;
        atomic_fetch_add(&signals_running, 1);  /* before the look: else a section could begin in between */
        if (atomic_load(&signals_deferring))
            signals_keep(number);
        else
            signals_tell(number);
        atomic_fetch_sub(&signals_running, 1);
        errno = before;
    }

    /* Whether nobody handles it. */
    SOFTHCA_UNUSED static int signals_free(int number) {
        struct sigaction now;
        return sigaction(number, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL;
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

    /* 0 where the section has begun, else 1: Python has to look for signals first.  A handler that has not
       seen that it has begun runs in another thread, or has told of its signal. */
    SOFTHCA_UNUSED static int signals_begin(void) {
        int running;
        atomic_store(&signals_deferring, 1);
        running = atomic_load(&signals_running);
        if (!running && !atomic_load(&signals_told))
            return 0;
        atomic_store(&signals_told, 0);
        signals_end();
        if (running)
            sched_yield();
        return 1;
    }

    /* Python has stopped looking at the first one whose handler raised. */
    SOFTHCA_UNUSED static void signals_look_again(void) { atomic_store(&signals_told, 1); }

    /* In a forked child: the handlers of other threads do not run here, and what they have kept is the
       parent's; within a section the thread goes on being. */
    SOFTHCA_UNUSED static void signals_forked(int within) {
        atomic_store(&signals_running, 0);
        if (atomic_load(&signals_process) != getpid())
            atomic_store(&signals_kept, 0);
        if (!within)
            signals_end();
    }
    #endif
    """
    int signals_begin()
    void signals_end()
    void signals_look_again()
    void signals_forked(int within)
    int signals_free(int number)
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
cdef object _handle()
cdef object _finalize(object close, object thing)
