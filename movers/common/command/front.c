/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/front.h"

#include <argp.h>
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/serve/log.h"

static char front_words[96] = "sidewire"; /* a program runs one command */

static void list_commands(const struct mover_front *front, FILE *out)
{
    fprintf(out, "Usage: sidewire %s COMMAND [OPTION...]\n%s\n\nCommands:\n", front->mover,
            front->summary);
    for (const struct mover_command *one = front->commands; one->name; one++)
        fprintf(out, "  %-13s %s\n", one->name, one->summary);
    fprintf(out, "\nExamples:\n%s", front->examples);
}

char *mover_front_enter(const char *word)
{
    const size_t used = strlen(front_words);
    assert(used + 1 + strlen(word) < sizeof(front_words));
    snprintf(front_words + used, sizeof(front_words) - used, " %s", word);
    return front_words;
}

const char *mover_front_words(void)
{
    const char *space = strchr(front_words, ' ');
    return space ? space + 1 : "";
}

int mover_front_main(const struct mover_front *front, int argc, char **argv)
{
    argp_err_exit_status = MOVER_USAGE;
    mover_log_name(front_words);
    argp_program_version = "sidewire " MOVER_VERSION;
    mover_front_enter(front->mover);
    if (argc > 1 && !strcmp(argv[1], "--version")) {
        puts(argp_program_version);
        return MOVER_DONE;
    }
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help"))) {
        list_commands(front, stdout);
        return MOVER_DONE;
    }
    for (const struct mover_command *one = front->commands; argc > 1 && one->name; one++)
        if (!strcmp(argv[1], one->name)) {
            argv[1] = mover_front_enter(one->name); /* what argp says in messages */
            return one->main(argc - 1, argv + 1);
        }
    for (const struct mover_hint *one = front->hints; argc > 1 && one && one->name; one++)
        if (!strcmp(argv[1], one->name)) {
            mover_fail("there is no command '%s': %s", argv[1], one->text);
            return MOVER_USAGE;
        }
    if (argc > 1) {
        mover_fail("there is no command '%s'", argv[1]);
        fprintf(stderr, "Try `%s --help', which lists them.\n", front_words);
    } else {
        list_commands(front, stderr);
    }
    return MOVER_USAGE;
}

int mover_fail(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    mover_log(MOVER_LOG_ERROR, "%s", text);
    return MOVER_FAILED;
}

int mover_finish_output(void)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return MOVER_DONE;
    return mover_fail("standard output cannot be written%s%s", errno ? ": " : "",
                      errno ? strerror(errno) : "");
}
