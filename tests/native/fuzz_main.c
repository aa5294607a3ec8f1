/* Runs libFuzzer's entry on files that are named, without libFuzzer. */
#include <stdio.h>

int LLVMFuzzerTestOneInput(const unsigned char *, size_t);

int main(int count, char **words)
{
    static unsigned char data[1 << 16];
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(words[i], "rb");
        size_t bytes = file ? fread(data, 1, sizeof data, file) : 0;
        if (!file)
            return 2;
        fclose(file);
        fprintf(stderr, "%s\n", words[i]);
        LLVMFuzzerTestOneInput(data, bytes);
    }
    return 0;
}
