/* What stands for a path, and the functions that calls of this object's names are handed on to. */
#ifndef SOFTHCA_PATHS_H
#define SOFTHCA_PATHS_H

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define DECLARE(name) static void *found_##name
/* The function of this name of the objects behind this one, libc among them; NULL: none has it. */
#define NEXT(name) ((__typeof__(&name))next_function(#name, &found_##name))
#define PLACED(path) place(path, (char[4096]){0}, 4096)

void *next_function(const char *name, void **found);

/* What stands for `path`, in `room` where it is another one. */
const char *place(const char *path, char *room, size_t bytes);

#endif
