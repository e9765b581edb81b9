/* SPDX-License-Identifier: BSD-2-Clause */
/* The front of a mover's program: it finds the command that is asked for, and says what goes wrong
 * in that command's name. `sidewire MOVER` runs the program. */
#ifndef SW_MOVERS_FRONT_H
#define SW_MOVERS_FRONT_H

/* Exit statuses. A line of arguments that makes no sense ends the program with USAGE. */
enum { MOVER_DONE = 0, MOVER_FAILED = 1, MOVER_USAGE = 2 };

/* `main` gets its arguments from the command's own name on, and returns the exit status. */
struct mover_command {
    const char *name, *summary;
    int (*main)(int argc, char **argv);
};

struct mover_hint {
    const char *name, *text;
};

/*
 *     static const struct mover_command commands[] = {{"serve", "answers clients", serve}, {0}};
 *     static const struct mover_front front = {
 *         .mover = "echo", .summary = "Sends back what comes.", .commands = commands,
 *         .examples = "  sidewire echo serve -l 127.0.0.1\n"};
 *     int main(int argc, char **argv) { return mover_front_main(&front, argc, argv); }
 */
struct mover_front {
    const char *mover, *summary;
    const struct mover_command *commands; /* the last has no name */
    const char *examples;                 /* lines */
    /* Words that users of other tools try, and what is here in their place; the last has no name.
     * May be NULL. */
    const struct mover_hint *hints;
};

/* Runs the command that argv[1] names; "help" and "--help" list all. "--version", alone or of a
 * command, tells that of Sidewire. Returns the exit status. */
int mover_front_main(const struct mover_front *front, int argc, char **argv);
/* For a command with commands of its own, as `sidewire pmem log append`: from here on messages have
 * `word`, too. Returns all words up to it, for argv[0]. */
char *mover_front_enter(const char *word);
/* "pmem log append" while that runs: what messages have behind "sidewire". */
const char *mover_front_words(void);

/* "sidewire pmem ls: " and what went wrong, a line on standard error, or of a server's log
 * (serve/log.h). Returns MOVER_FAILED. */
int mover_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* At the end of what was printed. MOVER_DONE, if all of it was written; else it fails as above. */
int mover_finish_output(void);

#endif
