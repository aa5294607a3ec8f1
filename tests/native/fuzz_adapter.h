/* An adapter process within the program, which answers with what an input says.  It stands where `host.c` asks a
   real one: behind the wake of a command, and behind the control socket. */
#ifndef SOFTHCA_FUZZ_ADAPTER_H
#define SOFTHCA_FUZZ_ADAPTER_H

#include "host.h"

/* What is left of the input; zeros behind its end. */
unsigned char fed(void);
void fed_bytes(void *out, size_t bytes);
int fed_more(void);

/* Begin with an input.  Where `honest`, the adapter's answers are what they should be. */
void adapter_begin(const unsigned char *data, size_t bytes);
extern int adapter_honest;
/* Whether its port is InfiniBand's, with LIDs and a subnet manager. */
extern int adapter_native;
/* The adapter's end of a ring that a program has opened by COMMAND_OPEN_CM, or
   COMMAND_REGISTER_AGENT; NULL: by none. */
struct ring *adapter_ring(const struct host *host, uint32_t command);
/* The transaction of the last datagram that a program has sent, in network order, once; 0: there is none. */
uint64_t adapter_question(void);
/* An event from the input to the channel that was opened last but `index`. */
void adapter_event(unsigned index, unsigned kind, unsigned element);
/* Put what the input says where the adapter writes in a ring of the program's. */
void adapter_scribble(struct ring *ring, const void *entry, unsigned bytes);
/* Close what the adapter has. */
void adapter_end(void);

#endif
