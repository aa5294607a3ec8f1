/* Rings whose other side writes what an input says into the shared pages: libFuzzer's entry.  Pages that nobody may
   touch stand around a ring's; who breaks a rule of rings ends the program. */
#include <sys/mman.h>

#include "fuzz_adapter.h"

#define MOST_ENTRIES 8
#define MOST_BODY 600
#define MOST_ROOM 700
#define RING_PAGES 3
#define STEPS 200
#define MUST(what) ((what) ? (void)0 : __builtin_trap())

static unsigned char *pages; /* one that nobody may touch, the ring's three, and another one */

static uint16_t fed_number(void)
{
    uint16_t number;
    fed_bytes(&number, sizeof number);
    return number;
}

static void begin(struct ring *ring)
{
    if (!pages) {
        pages = mmap(NULL, (RING_PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(pages != MAP_FAILED && !mprotect(pages + PAGE, RING_PAGES * PAGE, PROT_READ | PROT_WRITE));
    }
    memset(pages + PAGE, 0, RING_PAGES * PAGE);
    memset(ring, 0, sizeof *ring);
    ring->entries = 1 + fed() % MOST_ENTRIES;
    ring->body_bytes = 1 + fed_number() % MOST_BODY;
    if (ring->body_bytes < ring->entries)
        ring->body_bytes = ring->entries;
    ring->control = (void *)(pages + PAGE);
    /* both end where their page does, so that nobody goes beyond */
    ring->references = (void *)(pages + 3 * PAGE - 8 * ring->entries);
    ring->bodies = pages + 4 * PAGE - ring->body_bytes;
}

/* The other side's, at any moment. */
static void scribble(struct ring *ring)
{
    uint64_t number = 0;
    unsigned char what = fed();
    fed_bytes(&number, fed() % 9);
    switch (what % 6) {
    case 0: ring->control->tail = number; break;
    case 1: ring->control->head = number; break;
    case 2: ring->control->tail = ring->head + number % (ring->entries + 2); break;
    case 3: ring->control->head = ring->head + number % (ring->entries + 2); break;
    case 4:
        fed_bytes(&ring->references[number % ring->entries].body_bytes, 1);
        ring->references[number % ring->entries].body_offset = fed_number() % MOST_BODY;
        break;
    case 5: fed_bytes(ring->references, 8 * ring->entries); fed_bytes(ring->bodies, ring->body_bytes); break;
    }
}

static void take(struct ring *ring)
{
    uint32_t room = 1 + fed_number() % MOST_ROOM;
    unsigned char *entry = malloc(room); /* what is written behind it is seen */
    int broken = ring->broken, got;
    uint64_t head = ring->head;
    MUST(entry != NULL);
    got = ring_take(ring, entry, room);
    MUST(got >= -1 && got <= (int)room && got <= (int)ring->body_bytes);
    MUST(ring->head == head + (got > 0));
    MUST(!broken || (got == -1 && ring->broken));
    MUST(ring_filled(ring) <= ring->entries);
    if (fed() % 2)
        ring_release(ring);
    free(entry);
}

static void append(struct ring *ring)
{
    unsigned char entry[MOST_BODY];
    uint32_t bytes = ring->body_bytes / ring->entries, tail = ring->body_tail;
    uint64_t filled = ring_filled(ring);
    int room = ring_has_room(ring);
    MUST(ring_filled(ring) <= filled && (!room || ring_filled(ring) < ring->entries));
    if (!room)
        return;
    bytes = 1 + fed() % bytes;
    memset(entry, fed(), sizeof entry);
    MUST(!ring_place(ring, bytes) || ring_place(ring, bytes) == ring->bodies + tail);
    ring_copy_in(ring, tail, entry, bytes);
    ring_add(ring, bytes);
    MUST(ring->body_tail < ring->body_bytes && ring->index < ring->entries);
    if (fed() % 2)
        ring_publish(ring);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t count)
{
    struct ring taken, filled;
    adapter_begin(data, count);
    begin(&taken);
    filled = taken; /* a ring of its own, whose pages they share: each is the other's other side, too */
    for (int i = 0; i < STEPS && fed_more(); i++) {
        unsigned char kind = fed();
        if (kind % 4 == 0)
            scribble(kind / 4 % 2 ? &taken : &filled);
        else if (kind % 4 == 3)
            append(&filled);
        else
            take(&taken);
    }
    return 0;
}
