/* Memory that is asked for while the next allocator is looked up: dlsym() asks here as it may anywhere. */
#define _GNU_SOURCE
#include <dlfcn.h>

static void *asks(void *handle, const char *name);
#define dlsym asks
#include "buffers.c"
#undef dlsym

#include <stdio.h>

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);   \
            _exit(1);                                                 \
        }                                                             \
    } while (0)

static unsigned char *kept[3];
static int asked;
static volatile size_t most = SIZE_MAX; /* the compiler is not to know */

static int is_zero(const unsigned char *block, size_t bytes)
{
    while (bytes)
        if (block[--bytes])
            return 0;
    return 1;
}

static void early_calls(void)
{
    void *place = NULL;
    unsigned char *block = malloc(100), *next = malloc(100), *grown;
    CHECK(block && next && next >= block + 100 && malloc_usable_size(block) == 100);
    memset(block, 1, 100), memset(next, 2, 100);
    grown = realloc(block, 200); /* keeps what was there, and not what stands behind */
    CHECK(grown && grown != block && grown[0] == 1 && grown[99] == 1 && is_zero(grown + 100, 100));
    CHECK(next[0] == 2 && next[99] == 2);
    kept[0] = grown, kept[1] = next;
    free(block);
    block = realloc(NULL, 3);
    CHECK(block && malloc_usable_size(block) == 3 && !realloc(block, 0));
    kept[2] = calloc(3, 7);
    CHECK(kept[2] && is_zero(kept[2], 21));
    errno = 0;
    CHECK(!calloc(most / 8 + 2, 8) && errno == ENOMEM);
    CHECK(!malloc(most) && !malloc(most - 15) && !malloc(most - 30) && !malloc(EARLY_BYTES + 1UL));
    block = malloc(1);
    CHECK(block > kept[2]); /* what was refused has moved nothing */
    for (size_t alignment = 8; alignment <= 4096; alignment *= 2) {
        CHECK(!posix_memalign(&place, alignment, 10) && place && !((uintptr_t)place % alignment));
        CHECK((block = memalign(alignment, 10)) && !((uintptr_t)block % alignment));
        CHECK(block >= (unsigned char *)place + 10);
    }
    CHECK((block = memalign(24, 10)) && !((uintptr_t)block % 32));
    CHECK((block = aligned_alloc(64, 64)) && !((uintptr_t)block % 64));
    CHECK((block = valloc(1)) && !((uintptr_t)block % 4096));
    CHECK((block = pvalloc(1)) && !((uintptr_t)block % 4096) && malloc_usable_size(block) == 4096);
    CHECK(posix_memalign(&place, 24, 10) == EINVAL && posix_memalign(&place, 1UL << 40, 10) == ENOMEM);
    CHECK(!malloc(EARLY_BYTES) && errno == ENOMEM); /* the rest is smaller, and is there still */
    CHECK(malloc(64));
}

static void *asks(void *handle, const char *name)
{
    if (!asked++)
        early_calls();
    return dlsym(handle, name);
}

int main(void)
{
    unsigned char *later = malloc(10), *grown;
    CHECK(asked && later && !is_early(later));
    grown = realloc(kept[0], 300); /* and goes to the next allocator */
    CHECK(grown && !is_early(grown) && grown[0] == 1 && grown[99] == 1 && is_zero(grown + 100, 100));
    free(kept[1]), free(kept[2]), free(grown), free(later);
    CHECK(kept[1][0] == 2);
    return 0;
}
