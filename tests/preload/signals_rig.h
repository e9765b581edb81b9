/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each case is run in two children, in one of which SIGBUS is taken (base/sigbus.h), and what they
 * write down must be the same. Where it is taken, a guarded range is lost now and then, which must
 * not be seen.
 */
#ifndef SW_TESTS_PRELOAD_SIGNALS_RIG_H
#define SW_TESTS_PRELOAD_SIGNALS_RIG_H

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { NONE = -1 };

typedef void (*handler_fn)(int);

void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void note_set(const char *name, const sigset_t *set);
void note_mask(const char *name);
void note_action(const struct sigaction *action);

uint8_t *map_lost(bool guard); /* behind the end of its file */
void lose(void);               /* a peer takes its memory away while we access it */

extern volatile int handled; /* signals, by a handler below */
extern sigjmp_buf way_out;
void plain_handler(int number);
void raising_handler(int number); /* twice */
void telling_handler(int number, siginfo_t *info, void *context);
void leaving_handler(int number); /* by way_out */
const char *name_of(handler_fn handler);

/* Sets the action of SIGBUS; `masked`: a signal or NONE. */
void set_action(handler_fn handler, int flags, int masked);
void query_action(void);

/* A test of a function that notes. */
void compare(void **state);
#define COMPARED(title, body)                            \
    (struct CMUnitTest)                                  \
    {                                                    \
        title, compare, NULL, NULL, &(void (*[1])(void)) \
        {                                                \
            body                                         \
        }                                                \
    }

#endif
