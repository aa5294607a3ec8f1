/* What decodes replies of commands, answers of the control socket and their reasons: libFuzzer's entry.  The bytes
   are taken as they are, and behind a header of each command and message in turn. */
#include "host.h"

#include "fuzz_tables.h"

#define ANSWER_BYTES sizeof(struct softhca_message_header)
#define REPLY_BYTES sizeof(struct softhca_reply_header)

static void as_replies(unsigned char *whole, size_t bytes)
{
    struct softhca_reply_header header = {.error = 0};
    header.bytes = (uint32_t)(bytes - sizeof header);
    for (header.command = 0; header.command < COMMANDS; header.command++) {
        memcpy(whole, &header, sizeof header);
        decode_all(whole, bytes);
    }
}

static void as_answers(unsigned char *whole, size_t bytes)
{
    struct softhca_message_header header = {.magic = SOFTHCA_MESSAGE_MAGIC, .version = SOFTHCA_ABI_VERSION};
    header.bytes = (uint32_t)(bytes - sizeof header);
    for (header.message = 0; header.message < MESSAGES; header.message++) {
        memcpy(whole, &header, sizeof header);
        decode_all(whole, bytes);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes)
{
    unsigned char *whole = calloc(1, bytes ? bytes : 1); /* as long as the input: what is read behind it is seen */
    if (!whole)
        return 0;
    if (bytes)
        memcpy(whole, data, bytes);
    decode_all(whole, bytes);
    if (bytes >= REPLY_BYTES)
        as_replies(whole, bytes);
    if (bytes >= ANSWER_BYTES)
        as_answers(whole, bytes);
    free(whole);
    return 0;
}
