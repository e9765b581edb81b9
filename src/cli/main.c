/* SPDX-License-Identifier: BSD-2-Clause */
/* The `sidewire` command: finds the subcommand. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "cli/command.h"

static int show_help(int argc, char **argv);

static const struct sw_command commands[] = {
    {"run", "runs a program with the devices", sw_command_run},
    {"doctor", "says what this machine allows, and how to mend the rest", sw_command_doctor},
    {"devices", "lists the devices that programs will see", sw_command_devices},
    {"status", "tells which way the connections of `run --sockets` took", sw_command_status},
    {"nvme", "serves and reaches NVMe namespaces over RDMA", sw_command_mover},
    {"pmem", "serves and reaches persistent memory over RDMA", sw_command_mover},
    {"transfer", "moves blocks of memory between processes and hosts", sw_command_mover},
    {"snapshot", "saves the state of programs, and restores it", sw_command_mover},
    {"coll", "sums and gathers buffers of many processes", sw_command_mover},
    {"help", "explains a command", show_help},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

struct main_args {
    const struct sw_command *command;
    int argc;
    char **argv; /* from the command's name on */
};

/* A mover that is not of this package is found by its program: one at most for each run. */
static const struct sw_command *command_find(const char *name)
{
    static struct sw_command other = {.summary = "a mover", .main = sw_command_mover};
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    other.name = name;
    return sw_has_mover(name) ? &other : NULL;
}

static error_t parse_front(int key, char *value, struct argp_state *state)
{
    struct main_args *args = state->input;
    (void)value;
    switch (key) {
    case ARGP_KEY_ARGS:
        args->argv = state->argv + state->next;
        args->argc = state->argc - state->next;
        args->command = command_find(args->argv[0]);
        if (!args->command)
            argp_error(state, "there is no command '%s'", args->argv[0]);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK);
        exit(SW_STATUS_USAGE);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Puts the table of commands before the examples. */
static char *filter_help(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)text;
    char *out = NULL;
    size_t len;
    FILE *stream = open_memstream(&out, &len);
    if (!stream)
        return (char *)text;
    fputs("Commands:\n", stream);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  %-8s  %s\n", commands[i].name, commands[i].summary);
    fprintf(stream, "\n%s", text);
    fclose(stream);
    return out;
}

static const struct argp argp = {
    .parser = parse_front,
    .args_doc = "COMMAND [ARGS...]",
    .doc = "RDMA without RDMA hardware: runs unmodified verbs programs on a software NIC in user "
           "space."
           "\v"
           "Examples:\n"
           "  sidewire doctor                              what works here\n"
           "  sidewire run ib_write_bw                     the server of a pair\n"
           "  sidewire run -- ib_write_bw localhost        and its client\n"
           "  sidewire help run                            the options of run\n"
           "\n"
           "The manual page is sidewire(1).",
    .help_filter = filter_help,
};

static int main_run_command(const struct sw_command *command, int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof(name), "sidewire %s", command->name);
    argv[0] = name; /* what argp says in messages and usage lines */
    return command->main(argc, argv);
}

static int show_help(int argc, char **argv)
{
    char option[] = "--help";
    char *help_argv[] = {(char *)"sidewire", option, NULL};
    const bool is_option = argc == 2 && argv[1][0] == '-' && argv[1][1];
    if (argc == 1 || is_option) {
        if (is_option)
            help_argv[1] = argv[1]; /* `sidewire help --version` is `sidewire --version` */
        argp_parse(&argp, 2, help_argv, ARGP_IN_ORDER, NULL, NULL); /* exits */
        return SW_STATUS_OK;
    }
    const struct sw_command *command = command_find(argv[1]);
    if (!command || argc > 2) {
        fprintf(stderr, "sidewire help: %s '%s'\n",
                command ? "one command at a time, not also" : "there is no command",
                command ? argv[2] : argv[1]);
        if (!command)
            fputs("Try `sidewire --help', which lists them.\n", stderr);
        return SW_STATUS_USAGE;
    }
    return command->main == show_help ? show_help(1, help_argv)
                                      : main_run_command(command, 2, help_argv);
}

int main(int argc, char **argv)
{
    struct main_args args = {0};
    char version[64];
    snprintf(version, sizeof(version), "sidewire %s", sw_version());
    argp_program_version = version;
    argp_err_exit_status = SW_STATUS_USAGE;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
    int status = main_run_command(args.command, args.argc, args.argv);
    /* Output that could not be written is a failure too: `sidewire doctor --json >/dev/full`. */
    if (fflush(stdout) || ferror(stdout)) {
        perror("sidewire: cannot write the output");
        return status ? status : SW_STATUS_NO;
    }
    return status;
}
