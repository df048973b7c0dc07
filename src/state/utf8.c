/* UTF-8: see utf8.h. */
#include "state/utf8.h"

size_t state_utf8_length(const void *text, size_t bytes) {
    const unsigned char *c = text;
    if (bytes == 0) return 0;
    if (c[0] < 0x80) return 1;
    size_t length = 0;
    if (c[0] >= 0xc2 && c[0] <= 0xdf)
        length = 2;
    else if ((c[0] & 0xf0) == 0xe0)
        length = 3;
    else if (c[0] >= 0xf0 && c[0] <= 0xf4)
        length = 4;
    if (length > bytes) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
    }
    if (length == 0) return 0;
    if (c[0] == 0xe0 && c[1] < 0xa0) return 0;
    if (c[0] == 0xed && c[1] > 0x9f) return 0;
    if (c[0] == 0xf0 && c[1] < 0x90) return 0;
    if (c[0] == 0xf4 && c[1] > 0x8f) return 0;
    return length;
}

bool state_utf8_valid(const void *text, size_t bytes) {
    const unsigned char *cursor = text;
    while (bytes > 0) {
        size_t length = state_utf8_length(cursor, bytes);
        if (length == 0) return false;
        cursor += length;
        bytes -= length;
    }
    return true;
}
