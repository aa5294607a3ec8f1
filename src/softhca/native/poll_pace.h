/* What a thread does after an empty poll that follows many others.  It yields the processor; where a yield took
   long, unrelated programs compute there, and the next one would cost a time slice of theirs again: for a while
   it sleeps for moments instead, out of which the kernel wakes it before them.  No clock and no sleep here. */
#ifndef SOFTHCA_POLL_PACE_H
#define SOFTHCA_POLL_PACE_H

#include <stdint.h>

#define PACE_CONTENDED_NS 400000u /* a longer yield has let an unrelated program compute */
#define PACE_PEER_NS 1000000u     /* one up to so long may have been the peer's or the adapter's */
#define PACE_MEMORY_NS 20000000u  /* so long nobody yields after the first such yield … */
#define PACE_DOUBLINGS 2u         /* … and twice as long after each one longer than PACE_PEER_NS before */
#define PACE_SHORTEST_NAP_NS 20000u
#define PACE_LONGEST_NAP_NS 500000u
#define PACE_NAP_FRACTION 8u /* of the time that was polled in vain */

struct poll_pace {
    uint64_t contended_until_ns;
    uint64_t since_ns; /* when polls began to be in vain */
    uint32_t long_yields;
};

/* How long to sleep after an empty poll at now_ns; 0: yield, and tell pace_yielded. */
static inline uint64_t pace_nap_ns(const struct poll_pace *pace, uint64_t now_ns)
{
    uint64_t nap_ns = now_ns > pace->since_ns ? (now_ns - pace->since_ns) / PACE_NAP_FRACTION : 0;
    if (now_ns >= pace->contended_until_ns)
        return 0;
    if (nap_ns < PACE_SHORTEST_NAP_NS)
        return PACE_SHORTEST_NAP_NS;
    return nap_ns < PACE_LONGEST_NAP_NS ? nap_ns : PACE_LONGEST_NAP_NS;
}

static inline void pace_yielded(struct poll_pace *pace, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t took_ns = end_ns - begin_ns;
    if (took_ns > PACE_CONTENDED_NS)
        pace->contended_until_ns = end_ns + ((uint64_t)PACE_MEMORY_NS << pace->long_yields);
    if (took_ns > PACE_PEER_NS)
        pace->long_yields += pace->long_yields < PACE_DOUBLINGS;
    else if (took_ns <= PACE_CONTENDED_NS)
        pace->long_yields -= pace->long_yields > 0;
}

#endif
