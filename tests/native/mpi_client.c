/* Two ranks: latency and bandwidth; all ranks: sums over MPI_Allreduce and data from each to each, checked.
 *
 * mpi_client MODE ROUNDS BYTES ..., with MODE latency, bandwidth, allreduce or alltoall.  Rank 0 prints a line
 * for each: the mode, the ranks, the bytes, and a figure (microseconds one way or a call, or MB/s).
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16, TAG = 7 };

static int rank, ranks, rounds;
static size_t bytes;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_at(int round, size_t place)
{
    return (unsigned char)(round * 31 + place % 251);
}

static void fill(unsigned char *data, int round)
{
    for (size_t place = 0; place < bytes; place++)
        data[place] = byte_at(round, place);
}

static void check(const unsigned char *data, int round)
{
    for (size_t place = 0; place < bytes; place++)
        if (data[place] != byte_at(round, place))
            fail("other bytes than were sent");
}

static unsigned char *room(size_t count)
{
    unsigned char *found = calloc(count ? count : 1, 1);
    if (!found)
        fail("no memory");
    return found;
}

/* Half of a round trip, in microseconds. */
static double latency(int count)
{
    unsigned char *data = room(bytes), *back = room(bytes);
    double begin = MPI_Wtime();
    for (int round = 0; round < count; round++) {
        if (rank == 0) {
            fill(data, round);
            MPI_Send(data, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            MPI_Recv(back, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(back, round);
        } else if (rank == 1) {
            MPI_Recv(back, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(back, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        }
    }
    double taken = MPI_Wtime() - begin;
    free(data);
    free(back);
    return taken * 1e6 / (2.0 * count);
}

/* MB/s from rank 0 to rank 1, WINDOW messages under way at once. */
static double bandwidth(int count)
{
    unsigned char *data = room(bytes * WINDOW);
    MPI_Request under_way[WINDOW];
    unsigned char answer = 0;
    for (int i = 0; rank == 0 && i < WINDOW; i++)
        fill(data + i * bytes, i);
    double begin = MPI_Wtime();
    for (int round = 0; round < count && rank < 2; round++) {
        for (int i = 0; i < WINDOW; i++)
            if (rank == 0)
                MPI_Isend(data + i * bytes, (int)bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &under_way[i]);
            else
                MPI_Irecv(data + i * bytes, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &under_way[i]);
        MPI_Waitall(WINDOW, under_way, MPI_STATUSES_IGNORE);
    }
    if (rank == 0)
        MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (rank == 1)
        MPI_Send(&answer, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    double taken = MPI_Wtime() - begin;
    for (int i = 0; rank == 1 && i < WINDOW; i++)
        check(data + i * bytes, i);
    free(data);
    return (double)bytes * WINDOW * count / taken / 1e6;
}

/* Microseconds a sum of bytes / 8 numbers over all ranks. */
static double allreduce(int count)
{
    size_t numbers = bytes / sizeof(int64_t);
    int64_t *mine = (int64_t *)(void *)room(bytes), *sum = (int64_t *)(void *)room(bytes);
    double begin = MPI_Wtime();
    for (int round = 0; round < count; round++) {
        for (size_t i = 0; i < numbers; i++)
            mine[i] = (int64_t)(rank + 1) * (int64_t)(i + 1) + round;
        MPI_Allreduce(mine, sum, (int)numbers, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        for (size_t i = 0; i < numbers; i++)
            if (sum[i] != (int64_t)ranks * (ranks + 1) / 2 * (int64_t)(i + 1) + (int64_t)ranks * round)
                fail("a wrong sum");
    }
    double taken = MPI_Wtime() - begin;
    free(mine);
    free(sum);
    return taken * 1e6 / count;
}

/* Microseconds a round in which each rank has `bytes` bytes for each other. */
static double alltoall(int count)
{
    unsigned char *mine = room(bytes * (size_t)ranks), *theirs = room(bytes * (size_t)ranks);
    double begin = MPI_Wtime();
    for (int round = 0; round < count; round++) {
        for (int peer = 0; peer < ranks; peer++)
            fill(mine + bytes * (size_t)peer, round + rank * ranks + peer);
        MPI_Alltoall(mine, (int)bytes, MPI_BYTE, theirs, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
        for (int peer = 0; peer < ranks; peer++)
            check(theirs + bytes * (size_t)peer, round + peer * ranks + rank);
    }
    double taken = MPI_Wtime() - begin;
    free(mine);
    free(theirs);
    return taken * 1e6 / count;
}

static const struct {
    const char *name;
    double (*run)(int);
} modes[] = {{"latency", latency}, {"bandwidth", bandwidth}, {"allreduce", allreduce}, {"alltoall", alltoall}};

static void run(char **words)
{
    rounds = atoi(words[1]);
    bytes = (size_t)atol(words[2]);
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        if (strcmp(words[0], modes[i].name))
            continue;
        modes[i].run(rounds / 10 + 1); /* connects */
        MPI_Barrier(MPI_COMM_WORLD);
        double figure = modes[i].run(rounds);
        if (rank == 0)
            printf("%s %d %zu %.2f\n", modes[i].name, ranks, bytes, figure);
        return;
    }
    fail("no such mode");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4 || argc % 3 != 1 || ranks < 2)
        fail("mpi_client MODE ROUNDS BYTES ..., of two ranks or more");
    for (char **words = argv + 1; *words; words += 3)
        run(words);
    MPI_Finalize();
}
