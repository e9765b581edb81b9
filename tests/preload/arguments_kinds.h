/* SPDX-License-Identifier: BSD-2-Clause */
/* What an argument can be: kinds, of a letter each, and the values of each kind. */
#ifndef SW_TESTS_PRELOAD_ARGUMENTS_KINDS_H
#define SW_TESTS_PRELOAD_ARGUMENTS_KINDS_H

#include <stdbool.h>

enum side { LIBC, HOOK, SIDES };
enum { VALUES_MAX = 20, BUFFER_BYTES = 4096 };

/* One thing that an argument can be; on either side it may have another value. */
struct value {
    const char *name;
    long on[SIDES];
    bool is_node; /* ours on one side, sysfs on the other: contents may differ */
};

struct kind {
    char letter;
    int count;
    struct value values[VALUES_MAX];
};

/* Where results go: readable and writable; nothing behind it can be read. */
extern char *kinds_page;

/* Makes all kinds, and a folder of files for them; and removes that again. */
void kinds_prepare(void);
void kinds_clean(void);
const struct kind *kinds_find(char letter);

/* In a child, before its first call: what earlier ones have used is as new. Sockets and the
 * listener only for calls that need them: the latter takes long. */
void kinds_renew(enum side side, bool has_sockets, bool has_listener);
/* After a call: what it made where nothing was. */
void kinds_remove_made(void);

#endif
