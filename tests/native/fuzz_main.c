/* libFuzzer's entry where there is no libFuzzer: fuzz_main RUNS SECONDS SEED KEPT FILE… takes the files as inputs,
   and then, RUNS times or for SECONDS, whichever is over first, what it makes of them by the dice of SEED.  The
   input that ended the program stands in the file KEPT; one that takes longer than LIMIT_S ends it, by SIGALRM.
   The exit status is 2 where a word is wrong, and where a file cannot be read or is longer than MOST_BYTES. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES 4096
#define MOST_CHANGES 8
#ifndef LIMIT_S
#define LIMIT_S 20
#endif

struct input {
    size_t bytes;
    unsigned char data[MOST_BYTES];
};

static struct input *inputs;
static size_t input_count;
static uint64_t dice; /* xorshift64, which is never 0 */
static int kept;

int LLVMFuzzerTestOneInput(const unsigned char *, size_t);

static uint64_t drawn(uint64_t sides)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return dice % sides;
}

/* One of the inputs, and rather one of the first: those that were written by hand. */
static const struct input *chosen(void)
{
    return &inputs[drawn(1 + drawn(1 + drawn(input_count)))];
}

static int run(const struct input *input)
{
    if (ftruncate(kept, 0) || pwrite(kept, input->data, input->bytes, 0) != (ssize_t)input->bytes)
        return -1;
    alarm(LIMIT_S);
    LLVMFuzzerTestOneInput(input->data, input->bytes);
    alarm(0);
    return 0;
}

static int read_file(const char *path, struct input *input)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file < 0 ? -1 : read(file, input->data, sizeof input->data);
    unsigned char more;
    if (bytes < 0)
        perror(path);
    if (bytes == MOST_BYTES && read(file, &more, 1)) {
        fprintf(stderr, "%s: longer than %d bytes\n", path, MOST_BYTES);
        bytes = -1;
    }
    if (file >= 0)
        close(file);
    input->bytes = bytes < 0 ? 0 : (size_t)bytes;
    return bytes < 0 ? -1 : 0;
}

static void erase(struct input *input, size_t at, size_t bytes)
{
    bytes = bytes < input->bytes - at ? bytes : input->bytes - at;
    memmove(input->data + at, input->data + at + bytes, input->bytes - at - bytes);
    input->bytes -= bytes;
}

/* Part of another input at a place of this one; what is too long for it falls off. */
static void insert(struct input *input, size_t at, const struct input *other)
{
    size_t from = other->bytes ? drawn(other->bytes) : 0, bytes = other->bytes - from, room = MOST_BYTES - at;
    bytes = bytes ? 1 + drawn(bytes) : 0;
    bytes = bytes < room ? bytes : room;
    room -= bytes;
    room = input->bytes - at < room ? input->bytes - at : room;
    memmove(input->data + at + bytes, input->data + at, room);
    memcpy(input->data + at, other->data + from, bytes);
    input->bytes = at + bytes + room;
}

static void change(struct input *input)
{
    size_t at = input->bytes ? drawn(input->bytes) : 0;
    uint64_t kind = input->bytes ? drawn(6) : 5;
    switch (kind) {
    case 0: input->data[at] ^= (unsigned char)(1 << drawn(8)); break;
    case 1: input->data[at] = (unsigned char)drawn(256); break;
    case 2: input->data[at] = (unsigned char[]){0, 1, 0x7f, 0x80, 0xff}[drawn(5)]; break;
    case 3: input->data[at] += (unsigned char)(drawn(2) ? 1 : -1); break;
    case 4: erase(input, at, 1 + drawn(16)); break;
    case 5: insert(input, at, chosen()); break;
    }
}

int main(int count, char **words)
{
    static struct input input;
    struct timespec now, end;
    long runs = count > 5 ? atol(words[1]) : -1, done;
    if (runs < 0 || (kept = open(words[4], O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0
        || !(inputs = calloc((size_t)count - 5, sizeof *inputs)))
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += atol(words[2]);
    dice = strtoull(words[3], NULL, 10) * 2 + 1;
    for (int i = 5; i < count; i++)
        if (read_file(words[i], &inputs[input_count]) || run(&inputs[input_count++]))
            return 2;
    for (done = 0; done < runs; done++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec >= end.tv_sec)
            break;
        input = *chosen();
        for (uint64_t i = 1 + drawn(MOST_CHANGES); i > 0; i--)
            change(&input);
        if (run(&input))
            return 2;
    }
    printf("%zu files, %ld changed ones\n", input_count, done);
    return 0;
}
