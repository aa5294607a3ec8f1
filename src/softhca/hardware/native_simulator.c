/* Runs a design whose processes are functions in C: what Amaranth's simulator does in each step, in which every
 * process whose inputs have changed reads what signals are and says what they will be.
 *
 * Before this text stand SLOTS, PROCESSES and RANK, the highest number of rows of all memories; behind it the
 * functions and the tables that are declared here.  A slot is a signal or a memory.
 */
#include <stdlib.h>
#include <string.h>

typedef long long N;
typedef __int128 W;
typedef unsigned __int128 UW;

struct memory {
  int depth;
  W *rows, *queued;       /* what they are and what they will be */
  char *is_queued;
  int *queue, count;      /* rows that will be others */
};

struct gates {
  W curr[SLOTS + 1], next[SLOTS + 1], was[SLOTS + 1];
  struct memory memories[SLOTS + 1];
  char is_pending[SLOTS + 1], is_due[PROCESSES + 1], watched[SLOTS + 1];
  int pending[SLOTS + 1], pending_count, due[PROCESSES + 1], due_count;
  int hits[SLOTS + 1], hit_count;                      /* watched signals that have changed in the last step */
  int changed[SLOTS + 1], changed_count;               /* all signals that have */
  int rows_changed[2 * RANK + 2], row_count;           /* pairs: memory, row */
};

struct readers {
  int count;
  const int *processes;
};

static const W INITIAL[SLOTS + 1];       /* of signals */
static const int DEPTHS[SLOTS + 1];      /* of memories, 0 of signals */
static const struct readers READERS[SLOTS + 1], RISING[SLOTS + 1], FALLING[SLOTS + 1];  /* the last two: where it
                                                                                        * becomes 1 or 0 */
static void (*const RUN[PROCESSES + 1])(struct gates *);
static const char IS_COMB[PROCESSES + 1];

static void make_pending(struct gates *g, int slot) {
  if (!g->is_pending[slot]) {
    g->is_pending[slot] = 1;
    g->pending[g->pending_count++] = slot;
  }
}

void set(struct gates *g, int slot, W value) {
  if (g->next[slot] != value) {
    g->next[slot] = value;
    make_pending(g, slot);
  }
}

static void part(struct gates *g, int slot, W value, W mask) {
  set(g, slot, (g->next[slot] & ~mask) | (value & mask));
}

static W read_word(struct gates *g, int slot, W row) {
  struct memory *m = &g->memories[slot];
  return row < m->depth ? m->rows[row] : 0;
}

static void write_word(struct gates *g, int slot, W row, W value, W mask) {
  struct memory *m = &g->memories[slot];
  if (row >= m->depth)
    return;
  if (!m->is_queued[row]) {
    m->is_queued[row] = 1;
    m->queue[m->count++] = (int)row;
    m->queued[row] = m->rows[row];
  }
  m->queued[row] = (m->queued[row] & ~mask) | (value & mask);
  make_pending(g, slot);
}

static void make_due(struct gates *g, const struct readers *readers) {
  for (int i = 0; i < readers->count; i++) {
    int process = readers->processes[i];
    if (!g->is_due[process]) {
      g->is_due[process] = 1;
      g->due[g->due_count++] = process;
    }
  }
}

static int commit_memory(struct gates *g, int slot) {
  struct memory *m = &g->memories[slot];
  int changed = 0;
  make_due(g, &READERS[slot]);
  for (int i = 0; i < m->count; i++) {
    int row = m->queue[i];
    m->is_queued[row] = 0;
    if (m->rows[row] != m->queued[row]) {
      m->rows[row] = m->queued[row];
      g->rows_changed[2 * g->row_count] = slot;
      g->rows_changed[2 * g->row_count++ + 1] = row;
      changed = 1;
    }
  }
  m->count = 0;
  return changed;
}

static int commit_signal(struct gates *g, int slot) {
  if (g->curr[slot] == g->next[slot])
    return 0;
  make_due(g, &READERS[slot]);
  if (g->next[slot] == 1)
    make_due(g, &RISING[slot]);
  if (g->next[slot] == 0)
    make_due(g, &FALLING[slot]);
  g->was[slot] = g->curr[slot];
  g->curr[slot] = g->next[slot];
  g->changed[g->changed_count++] = slot;
  if (g->watched[slot])
    g->hits[g->hit_count++] = slot;
  return 1;
}

/* One step of no time; whether anything has changed. */
static int step(struct gates *g) {
  int now[PROCESSES + 1], count = g->due_count, changed = 0;
  memcpy(now, g->due, count * sizeof *now);
  g->due_count = 0;
  for (int i = 0; i < count; i++)
    g->is_due[now[i]] = 0;
  for (int i = 0; i < count; i++)
    RUN[now[i]](g);
  g->hit_count = g->changed_count = g->row_count = 0;
  count = g->pending_count;
  g->pending_count = 0;
  for (int i = 0; i < count; i++) {
    int slot = g->pending[i];
    g->is_pending[slot] = 0;
    changed |= DEPTHS[slot] ? commit_memory(g, slot) : commit_signal(g, slot);
  }
  return changed;
}

/* Steps until nothing changes, or a watched signal has; one step where it is ``single``.  Whether anything has changed
 * in the last one. */
int run(struct gates *g, int single) {
  int changed;
  do
    changed = step(g);
  while (changed && !single && !g->hit_count);
  return changed;
}

/* The words of ``value``, lowest first, as Python has them. */
void set_words(struct gates *g, int slot, unsigned long long low, N high) {
  set(g, slot, (W)((UW)high << 64 | low));
}

void write_words(struct gates *g, int slot, int row, const W *value_and_mask) {
  write_word(g, slot, row, value_and_mask[0], value_and_mask[1]);
}

/* As it is in the beginning, but for what memories hold. */
void begin(struct gates *g) {
  g->pending_count = g->due_count = g->hit_count = g->changed_count = g->row_count = 0;
  memset(g->is_pending, 0, sizeof g->is_pending);
  memset(g->is_due, 0, sizeof g->is_due);
  for (int slot = 0; slot < SLOTS; slot++) {
    struct memory *m = &g->memories[slot];
    g->curr[slot] = g->next[slot] = INITIAL[slot];
    m->count = 0;
    if (m->depth)
      memset(m->is_queued, 0, m->depth);
  }
  for (int process = 0; process < PROCESSES; process++)
    if (IS_COMB[process]) {
      g->is_due[process] = 1;
      g->due[g->due_count++] = process;
    }
}

void finish(struct gates *g) {
  for (int slot = 0; slot < SLOTS; slot++) {
    struct memory *m = &g->memories[slot];
    free(m->rows);
    free(m->queued);
    free(m->is_queued);
    free(m->queue);
  }
  free(g);
}

/* NULL without memory. */
struct gates *new_gates(void) {
  struct gates *g = calloc(1, sizeof *g);
  if (!g)
    return NULL;
  for (int slot = 0; slot < SLOTS; slot++) {
    struct memory *m = &g->memories[slot];
    size_t depth = m->depth = DEPTHS[slot];
    if (!depth)
      continue;
    m->rows = calloc(depth, sizeof *m->rows);
    m->queued = calloc(depth, sizeof *m->queued);
    m->is_queued = calloc(depth, 1);
    m->queue = calloc(depth, sizeof *m->queue);
    if (!m->rows || !m->queued || !m->is_queued || !m->queue) {
      finish(g);
      return NULL;
    }
  }
  begin(g);
  return g;
}

W *current(struct gates *g) { return g->curr; }
W *following(struct gates *g) { return g->next; }
W *previous(struct gates *g) { return g->was; }
W *rows_of(struct gates *g, int slot) { return g->memories[slot].rows; }
char *watched(struct gates *g) { return g->watched; }
int *hits(struct gates *g) { return g->hits; }
int hit_count(struct gates *g) { return g->hit_count; }
int *changed(struct gates *g) { return g->changed; }
int changed_count(struct gates *g) { return g->changed_count; }
int *rows_changed(struct gates *g) { return g->rows_changed; }
int row_count(struct gates *g) { return g->row_count; }
