/* SPDX-License-Identifier: BSD-2-Clause */
/* The front of a program: which command runs, in whose name it speaks, and how far work is. */
#include <argp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/command/front.h"
#include "common/command/progress.h"

enum { TEXT_MAX = 2048, OTHER = 7 };

static int run_ls(int argc, char **argv)
{
    printf("%s %d\n", argv[0], argc);
    return OTHER;
}

static int run_log(int argc, char **argv)
{
    char *name = mover_front_enter(argv[1]);
    printf("%s, %s, %d\n", name, mover_front_words(), argc);
    return mover_fail("%s is %d", "this", 5);
}

static const struct mover_command commands[] = {
    {"ls", "lists", run_ls}, {"log", "logs", run_log}, {0}};
static const struct mover_hint hints[] = {{"dir", "'ls' lists"}, {0}};

static const struct mover_front front = {.mover = "try",
                                         .summary = "Tries it.",
                                         .commands = commands,
                                         .examples = "  sidewire try ls\n",
                                         .hints = hints};

/* Standard output and error of a process with these words; its status. */
static int run_front(char *const words[], char text[TEXT_MAX])
{
    int fds[2], status = 0, argc = 1;
    size_t used = 0;
    char *argv[8] = {(char *)"sidewire-try"};
    assert_int_equal(pipe(fds), 0);
    for (; words[argc - 1]; argc++)
        argv[argc] = words[argc - 1];
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        const int code = mover_front_main(&front, argc, argv);
        fflush(NULL);
        _exit(argp_err_exit_status == MOVER_USAGE ? code : -1);
    }
    close(fds[1]);
    for (ssize_t n; (n = read(fds[0], text + used, TEXT_MAX - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void front__runs_a_command_under_its_name(void **state)
{
    char text[TEXT_MAX];
    (void)state;
    assert_int_equal(run_front((char *[]){(char *)"ls", (char *)"x", NULL}, text), OTHER);
    assert_string_equal(text, "sidewire try ls 2\n");
}

static void front__fails_in_the_name_of_a_command_below(void **state)
{
    char text[TEXT_MAX];
    (void)state;
    assert_int_equal(run_front((char *[]){(char *)"log", (char *)"append", NULL}, text),
                     MOVER_FAILED);
    assert_non_null(strstr(text, "sidewire try log append, try log append, 2\n"));
    assert_non_null(strstr(text, "sidewire try log append: this is 5\n"));
}

static void front__lists_its_commands(void **state)
{
    static const char list[] = "Usage: sidewire try COMMAND [OPTION...]\nTries it.\n\nCommands:\n"
                               "  ls            lists\n  log           logs\n\nExamples:\n"
                               "  sidewire try ls\n";
    char text[TEXT_MAX];
    (void)state;
    assert_int_equal(run_front((char *[]){(char *)"help", NULL}, text), MOVER_DONE);
    assert_string_equal(text, list);
    assert_int_equal(run_front((char *[]){(char *)"--help", NULL}, text), MOVER_DONE);
    assert_string_equal(text, list);
    assert_int_equal(run_front((char *[]){NULL}, text), MOVER_USAGE);
    assert_string_equal(text, list);
    assert_int_equal(run_front((char *[]){(char *)"zork", NULL}, text), MOVER_USAGE);
    assert_string_equal(text, "sidewire try: there is no command 'zork'\n"
                              "Try `sidewire try --help', which lists them.\n");
    assert_int_equal(run_front((char *[]){(char *)"dir", NULL}, text), MOVER_USAGE);
    assert_string_equal(text, "sidewire try: there is no command 'dir': 'ls' lists\n");
}

static void progress__is_shown_where_it_must(void **state)
{
    char text[TEXT_MAX] = "";
    struct mover_progress progress;
    FILE *const own = stderr;
    (void)state;
    stderr = fmemopen(text, sizeof(text) - 1, "w");
    assert_non_null(stderr);
    mover_progress_begin(&progress, 4 << 20, true);
    mover_progress_at(&progress, 1 << 20); /* too early to tell */
    fflush(stderr);
    assert_string_equal(text, "");
    progress.shown_ns -= 1000000000;
    mover_progress_at(&progress, 2 << 20);
    fflush(stderr);
    assert_ptr_equal(strstr(text, "\r 50.0%  2.0 of 4.0 MiB"), text);
    mover_progress_end(&progress);
    fclose(stderr);
    stderr = own;
    assert_int_equal(text[strlen(text) - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(front__runs_a_command_under_its_name),
        cmocka_unit_test(front__fails_in_the_name_of_a_command_below),
        cmocka_unit_test(front__lists_its_commands),
        cmocka_unit_test(progress__is_shown_where_it_must),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
