/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of options: where values go, which are refused, and what --help has of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/command/option.h"
#include "common/command/remote.h"

enum { TEXT_MAX = 4096, WORDS_MAX = 16, USAGE = 2 };

struct remote {
    const char *address, *port;
    uint32_t connect_timeout_ms;
    bool is_json;
};

struct arguments {
    struct remote remote;
    uint64_t bytes, runtime_ns;
    bool may_destroy;
    const char *file;
};

#define REMOTE(member) offsetof(struct remote, member)
#define OWN(member) offsetof(struct arguments, member)

static const struct mover_option remote_rows[] = {
    MOVER_OPTION_ADDRESS(REMOTE(address)),
    MOVER_OPTION_PORT(REMOTE(port), "4455"),
    MOVER_OPTION_CONNECT_TIMEOUT(REMOTE(connect_timeout_ms), "5000"),
    MOVER_OPTION_FORMAT(REMOTE(is_json)),
    {0},
};

static const struct mover_option rows[] = {
    {"bs", 0, "BYTES", 0, "Bytes of a request", 1, MOVER_TO(struct arguments, bytes)},
    {.letter = 'B', .flags = MOVER_OLD},
    {"runtime", 0, "S", 0, "Seconds", 1, mover_take_time, OWN(runtime_ns)},
    {"destroy-data", 'D', NULL, 0, "What is there may be overwritten", 1,
     MOVER_TO(struct arguments, may_destroy)},
    {.name = "destroy", .flags = MOVER_OLD},
    {0},
};

static void take_file(struct argp_state *state, void *arguments, char *text)
{
    struct arguments *args = arguments;
    if (args->file)
        argp_error(state, "one file");
    args->file = text;
}

static void check_address(struct argp_state *state, void *arguments)
{
    const struct remote *remote = arguments;
    if (!remote->address)
        argp_error(state, "no address");
}

static void check_bytes(struct argp_state *state, void *arguments)
{
    const struct arguments *args = arguments;
    if (!args->bytes)
        argp_error(state, "no bytes");
}

static const struct mover_options shared = {.rows = remote_rows, .check = check_address};
static const struct mover_usage with_file = {
    .words = "FILE",
    .about = "Tries it.",
    .own = {.rows = rows, .word = take_file, .check = check_bytes},
    .shared = &shared};
static const struct mover_usage with_word = {
    .words = "DISK", .own = {.rows = rows, .only_word = "disk", .only_word_at = OWN(file)}};
static const struct mover_usage alone = {.about = "Tries it.", .own = {.rows = rows}};

static int split_words(char *words, char *argv[WORDS_MAX])
{
    static char name[] = "sidewire try";
    int argc = 1;
    argv[0] = name;
    for (char *rest = words; (argv[argc] = strtok_r(rest, " ", &rest)); argc++)
        ;
    return argc;
}

/* Standard output and error of a process that parses the words; its status. */
static int say_words(const struct mover_usage *usage, const char *line, char text[TEXT_MAX])
{
    int pipe_fds[2], status = 0;
    size_t used = 0;
    assert_int_equal(pipe(pipe_fds), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        struct arguments args = {.bytes = 1};
        char words[256], *argv[WORDS_MAX];
        snprintf(words, sizeof(words), "%s", line);
        dup2(pipe_fds[1], STDOUT_FILENO);
        dup2(pipe_fds[1], STDERR_FILENO);
        argp_err_exit_status = USAGE;
        mover_parse(usage, split_words(words, argv), argv, &args);
        _exit(0);
    }
    close(pipe_fds[1]);
    for (ssize_t n; (n = read(pipe_fds[0], text + used, TEXT_MAX - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    close(pipe_fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void option__values_go_to_their_places(void **state)
{
    struct arguments args = {.remote = {.port = "4455", .connect_timeout_ms = 5000}};
    char *argv[WORDS_MAX];
    char words[] = "-a 192.0.2.1 --connect-timeout=70 -ojson --bs 4K --runtime 0.25 x -D";
    (void)state;
    mover_parse(&with_file, split_words(words, argv), argv, &args);
    assert_string_equal(args.remote.address, "192.0.2.1");
    assert_string_equal(args.remote.port, "4455");
    assert_int_equal(args.remote.connect_timeout_ms, 70);
    assert_true(args.remote.is_json);
    assert_int_equal(args.bytes, 4096);
    assert_int_equal(args.runtime_ns, 250000000);
    assert_true(args.may_destroy);
    assert_string_equal(args.file, "x");
}

static void option__old_spellings_have_the_place_of_the_row_before(void **state)
{
    struct arguments args = {.bytes = 1};
    char text[TEXT_MAX], *argv[WORDS_MAX];
    char words[] = "-B 8K --destroy";
    (void)state;
    mover_parse(&alone, split_words(words, argv), argv, &args);
    assert_int_equal(args.bytes, 8192);
    assert_true(args.may_destroy);
    assert_int_equal(say_words(&alone, "-B1 -B2 --destroy", text), 0);
    assert_string_equal(text, ""); /* told before the fork: once is enough */
}

static void option__what_is_wrong_ends_the_program(void **state)
{
    static const struct {
        const char *words, *told;
    } cases[] = {
        {"-a x --bs zork", "\"zork\" is no number"},
        {"-a x --bs 1Z", "\"1Z\" is no number"},
        {"-a x --bs 18446744073709551615", "\"18446744073709551615\" is too many"},
        {"-a x --connect-timeout 4G", "\"4G\" is too many"},
        {"-a x -o xml", "\"xml\" is no format"},
        {"-a x --runtime -1", "\"-1\" is not a time"},
        {"-a x --runtime 1m", "\"1m\" is not a time"},
        {"-a x --bs 0", "no bytes"},
        {"--bs 1", "no address"},
        {"-a x one two", "one file"},
        {"-a x --zork", "unrecognized option"},
    };
    char text[TEXT_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(say_words(&with_file, cases[i].words, text), USAGE);
        assert_ptr_equal(strstr(text, "sidewire try: "), text);
        assert_non_null(strstr(text, cases[i].told));
    }
    assert_int_equal(say_words(&alone, "zork", text), USAGE);
    assert_non_null(strstr(text, "what is 'zork'?"));
}

static void option__an_only_word_is_there_once(void **state)
{
    struct arguments args = {.bytes = 1};
    char text[TEXT_MAX], *argv[WORDS_MAX];
    char words[] = "-D a --bs 4K";
    (void)state;
    mover_parse(&with_word, split_words(words, argv), argv, &args);
    assert_string_equal(args.file, "a");
    assert_int_equal(say_words(&with_word, "-D", text), USAGE);
    assert_non_null(strstr(text, "the disk is missing"));
    assert_int_equal(say_words(&with_word, "a -D b", text), USAGE);
    assert_non_null(strstr(text, "one disk; 'b' is another"));
}

static void option__help_has_all_but_the_old(void **state)
{
    char text[TEXT_MAX];
    (void)state;
    assert_int_equal(say_words(&with_file, "--help", text), 0);
    assert_non_null(strstr(text, "Usage: sidewire try [OPTION...] FILE"));
    assert_non_null(strstr(text, "-s, --port=PORT            Port of the server (4455)"));
    assert_non_null(strstr(text, "--bs=BYTES             Bytes of a request"));
    assert_null(strstr(text, "-B"));
    assert_null(strstr(text, "--destroy "));
    assert_true(strstr(text, "--runtime") < strstr(text, "--connect-timeout"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(option__values_go_to_their_places),
        cmocka_unit_test(option__old_spellings_have_the_place_of_the_row_before),
        cmocka_unit_test(option__what_is_wrong_ends_the_program),
        cmocka_unit_test(option__an_only_word_is_there_once),
        cmocka_unit_test(option__help_has_all_but_the_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
