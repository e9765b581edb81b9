/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `sidewire run`: sets the environment and becomes CMD. It does not fork, so exit codes, signals,
 * the terminal and the process id are CMD's own. The statuses 125, 126 and 127 are those of env(1).
 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/checkers.h"
#include "cli/closed.h"
#include "cli/command.h"
#include "cli/fault.h"
#include "cli/library.h"
#include "cli/program.h"
#include "link/engine_cpus.h"
#include "link/faults/faults.h"

struct run_args {
    bool force, sockets, collectives, valgrind;
    int argc;
    char **argv; /* of CMD */
};

enum {
    KEY_DIRECT = 256,
    KEY_LINK,
    KEY_ADOPT,
    KEY_LIVENESS,
    KEY_TCP_FALLBACK,
    KEY_DEVICES,
    KEY_LOG,
    KEY_FAULTS,
    KEY_ENGINE_CPUS,
    KEY_SOCKETS,
    KEY_COLLECTIVES,
    KEY_VALGRIND,
    KEY_FORCE
};

static const char *const direct_words[] = {"auto", "mapped", "cma", "ring", "off", NULL};
static const char *const link_words[] = {"auto", "direct", "roce", "tcp", "iwarp", NULL};
static const char *const fallback_words[] = {"auto", "never", NULL};
static const char *const liveness_words[] = {"auto", "never", NULL};
static const char *const adopt_words[] = {"auto", "never", NULL};
static const char *const sockets_words[] = {"auto", "hosts", "tcp", NULL};
static const char *const collectives_words[] = {"auto", "tell", NULL};
static const char *const log_words[] = {"error", "warn", "info", "debug", NULL};

static const struct argp_option options[] = {
    {"direct", KEY_DIRECT, "RUNG", 0,
     "Limit the ways to a peer's memory: auto (default), mapped, cma, ring or off", 0},
    {"link", KEY_LINK, "LINK", 0,
     "How queue pairs reach each other: auto (default: direct on this host, RoCE to others), "
     "direct, roce, tcp (others over TCP) or iwarp (by TCP; the devices are iWARP's then)",
     0},
    {"adopt", KEY_ADOPT, "WHEN", 0,
     "Whether plain memory is made mappable by peers: auto (default) or never", 0},
    {"liveness", KEY_LIVENESS, "WHEN", 0,
     "Whether processes of other hosts are known to live by a TCP connection: auto (default) or "
     "never",
     0},
    {"tcp-fallback", KEY_TCP_FALLBACK, "WHEN", 0,
     "Whether queue pairs whose packets find no answer on another host go over TCP: auto "
     "(default) or never",
     0},
    {"devices", KEY_DEVICES, "LIST", 0,
     "Only make devices for these network interfaces, e.g. lo,eth0; iw_eth0 is its iWARP device",
     0},
    {"log", KEY_LOG, "LEVEL", 0, "What is told on stderr: error, warn (default), info or debug", 0},
    {"faults", KEY_FAULTS, "SPEC", 0,
     "Inject faults: loss=1%,dup=0.1%,reorder=2%:50us, corrupt=1e-4,delay=20us,rnr=1%,seed=7 "
     "(without the space) or @SCRIPT",
     0},
    {"engine-cpus", KEY_ENGINE_CPUS, "WHERE", 0,
     "Which processors the library's own thread runs on: auto (default: those of CMD, but off the "
     "one that waits for its memory to change), program (never others) or a list as 0-3,8",
     0},
    {"sockets", KEY_SOCKETS, "WAY", OPTION_ARG_OPTIONAL,
     "TCP connections of CMD by RDMA where the peer has it, too: auto (default: to peers on this "
     "host), hosts (to other hosts as well) or tcp, which only tells of them; see sidewire status",
     0},
    {"collectives", KEY_COLLECTIVES, "HOW", OPTION_ARG_OPTIONAL,
     "Collective calls of CMD's MPI (MPICH, Open MPI) by RDMA, with sums in a fixed order: auto "
     "(default), or tell, which prints at the end how many calls were carried out so",
     0},
    {"valgrind", KEY_VALGRIND, NULL, 0,
     "Run CMD by valgrind, without what that says of the library; VALGRIND_OPTS has more options "
     "of it",
     0},
    {"force", KEY_FORCE, NULL, 0,
     "Run CMD even if the library cannot be preloaded into it; its children may get it", 0},
    {0},
};

static void set_one_of(struct argp_state *state, const char *variable, const char *option,
                       const char *value, const char *const *words)
{
    for (const char *const *word = words; *word; word++) {
        if (!strcmp(*word, value)) {
            setenv(variable, value, 1);
            return;
        }
    }
    char list[128] = "";
    for (const char *const *word = words; *word; word++) {
        if (word != words)
            strcat(list, word[1] ? ", " : " or ");
        strcat(list, *word);
    }
    argp_error(state, "--%s is %s, not '%s'", option, list, value);
}

/* Tried here, so that a mistake is told before CMD runs. A script is found wherever CMD goes. */
static void set_faults(struct argp_state *state, const char *value)
{
    static struct sw_faults tried;
    char error[256], path[PATH_MAX + 1] = "@";
    if (sw_faults_parse(value, &tried, error, sizeof(error)))
        argp_error(state, "--faults: %s", error);
    bool is_script = *value == '@' && realpath(value + 1, path + 1);
    setenv("SIDEWIRE_FAULTS", is_script ? path : value, 1);
}

static void set_engine_cpus(struct argp_state *state, const char *value)
{
    enum sw_cpus_wish wish;
    cpu_set_t list;
    if (!sw_cpus_parse(value, &wish, &list))
        argp_error(state,
                   "--engine-cpus is auto, program or a list of processors as 0-3,8, not '%s'",
                   value);
    setenv("SIDEWIRE_ENGINE_CPUS", value, 1);
}

static error_t parse_run(int key, char *value, struct argp_state *state)
{
    struct run_args *args = state->input;
    switch (key) {
    case KEY_DIRECT:
        set_one_of(state, "SIDEWIRE_DIRECT", "direct", value, direct_words);
        return 0;
    case KEY_LINK:
        set_one_of(state, "SIDEWIRE_LINK", "link", value, link_words);
        return 0;
    case KEY_ADOPT:
        set_one_of(state, "SIDEWIRE_ADOPT", "adopt", value, adopt_words);
        return 0;
    case KEY_LIVENESS:
        set_one_of(state, "SIDEWIRE_LIVENESS", "liveness", value, liveness_words);
        return 0;
    case KEY_TCP_FALLBACK:
        set_one_of(state, "SIDEWIRE_TCP_FALLBACK", "tcp-fallback", value, fallback_words);
        return 0;
    case KEY_LOG:
        set_one_of(state, "SIDEWIRE_LOG", "log", value, log_words);
        return 0;
    case KEY_DEVICES:
        if (*value == '\0')
            argp_error(state, "--devices wants names of network interfaces, e.g. lo,eth0");
        setenv("SIDEWIRE_DEVICES", value, 1);
        return 0;
    case KEY_FAULTS:
        set_faults(state, value);
        return 0;
    case KEY_ENGINE_CPUS:
        set_engine_cpus(state, value);
        return 0;
    case KEY_SOCKETS:
        args->sockets = true;
        set_one_of(state, "SIDEWIRE_SOCKETS", "sockets", value ? value : "auto", sockets_words);
        return 0;
    case KEY_COLLECTIVES:
        args->collectives = true;
        set_one_of(state, "SIDEWIRE_COLLECTIVES", "collectives", value ? value : "auto",
                   collectives_words);
        return 0;
    case KEY_VALGRIND:
        args->valgrind = true;
        return 0;
    case KEY_FORCE:
        args->force = true;
        return 0;
    case ARGP_KEY_ARGS: /* the first word that is no option and all after it */
        args->argv = state->argv + state->next;
        args->argc = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no command to run");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse_run,
    .args_doc = "[--] CMD [ARGS...]",
    .doc = "Runs CMD with the Sidewire devices. Exit codes and signals are CMD's own."
           "\v"
           "Examples:\n"
           "  sidewire run ib_write_lat                     the server of a pair\n"
           "  sidewire run -- ib_write_lat -s 8 localhost   and its client\n"
           "  sidewire run --direct cma -- ibv_devinfo -v   without mapping memory\n"
           "  sidewire run --sockets -- redis-server        a TCP program over RDMA\n"
           "  sidewire run --collectives -- mpirun -n 4 PROGRAM   sums of MPI by RDMA\n"
           "\n"
           "Status: that of CMD; 125 if sidewire itself fails, 126 if CMD cannot be run, 127 if it "
           "is not found.",
};

/* Ours first, then what was there, without an earlier mention of ours. */
static int preload_library(const char *library)
{
    const char *old = getenv("LD_PRELOAD");
    size_t room = strlen(library) + (old ? strlen(old) : 0) + 2;
    char *value = malloc(room);
    char *rest = strdup(old ? old : "");
    if (!value || !rest) {
        free(value);
        free(rest);
        return -1;
    }
    strcpy(value, library);
    for (char *word = strtok(rest, ": "); word; word = strtok(NULL, ": ")) {
        if (strcmp(word, library)) {
            strcat(value, ":");
            strcat(value, word);
        }
    }
    int failed = setenv("LD_PRELOAD", value, 1);
    free(rest);
    free(value);
    return failed;
}

/* Open MPI looks for components here first, then where it always does. */
static int set_component_folder(const char *folder)
{
    static const char variable[] = "OMPI_MCA_mca_base_component_path";
    const char *old = getenv(variable);
    if (!old || !*old)
        old = "SYSTEM_DEFAULT:USER_DEFAULT";
    size_t len = strlen(folder);
    if (!strncmp(old, folder, len) && old[len] == ':')
        return 0;
    char *value = NULL;
    if (asprintf(&value, "%s:%s", folder, old) < 0)
        return -1;
    int failed = setenv(variable, value, 1);
    free(value);
    return failed;
}

/* 0, or a status. */
static int add_collectives(const struct sw_library *library)
{
    static struct sw_library mpich;
    static char openmpi[PATH_MAX];
    if (sw_library_find_mpi(library, &mpich, openmpi)) {
        sw_fault(mpich.mend, "cannot use %s: %s", mpich.path, mpich.reason);
        return SW_STATUS_RUN_FAILED;
    }
    /* UCX, which carries messages of both, would take our devices, and between hosts the wrong one.
     */
    if ((*mpich.path && preload_library(mpich.path)) ||
        (*openmpi && set_component_folder(openmpi)) || setenv("UCX_TLS", "^ib", 0)) {
        sw_fault(NULL, "cannot set the environment: %s", strerror(errno));
        return SW_STATUS_RUN_FAILED;
    }
    return 0;
}

/* CMD cannot be started at all. */
static int refuse_program(enum sw_program_fault fault, const char *name,
                          const struct sw_program *program)
{
    if (strcmp(program->image, program->path) && fault != SW_PROGRAM_OK) {
        sw_fault("correct the first line of the script", "cannot run '%s': its interpreter '%s' %s",
                 program->path, program->image,
                 fault == SW_PROGRAM_NOT_FOUND ? "does not exist" : "is not executable");
        return SW_STATUS_NOT_EXECUTABLE;
    }
    if (fault == SW_PROGRAM_NOT_FOUND) {
        sw_fault(NULL, "cannot run '%s': %s", name,
                 strchr(name, '/') ? "there is no such file" : "there is no such command in PATH");
        return SW_STATUS_NOT_FOUND;
    }
    if (fault == SW_PROGRAM_DIRECTORY) {
        sw_fault(NULL, "cannot run '%s': it is a folder", name);
        return SW_STATUS_NOT_EXECUTABLE;
    }
    static struct sw_closed closed;
    sw_closed_explain(program->path, 'x', &closed);
    sw_fault(closed.mend, "cannot run '%s': %s", program->path, closed.reason);
    return SW_STATUS_NOT_EXECUTABLE;
}

/* CMD would start, but without the device. */
static int run_warn_of(enum sw_program_fault fault, const struct sw_program *program, bool force)
{
    const char *why = "";
    const char *mend = "";
    switch (fault) {
    case SW_PROGRAM_STATIC:
        why = "is statically linked: there is no loader that could preload a library into it";
        mend = "link it dynamically; --force runs it anyway, without the device";
        break;
    case SW_PROGRAM_PRIVILEGED:
        why = "gains privileges when run (set-user-ID, set-group-ID or file capabilities): the "
              "loader then drops "
              "LD_PRELOAD, for its children too";
        mend =
            "put it in front: sudo sidewire run -- CMD; --force runs it anyway, without the device";
        break;
    case SW_PROGRAM_FOREIGN_MACHINE:
        why = "is for another processor or word size than libsidewire.so";
        mend = "use a program built for this machine; --force runs it anyway, without the device";
        break;
    case SW_PROGRAM_FOREIGN_LIBC:
        why = "is linked to another C library than libsidewire.so, which is for glibc";
        mend = "use a glibc build of it; --force runs it anyway, without the device";
        break;
    case SW_PROGRAM_OK:
    case SW_PROGRAM_NOT_FOUND:
    case SW_PROGRAM_DIRECTORY:
    case SW_PROGRAM_NOT_EXECUTABLE:
        return 0;
    }
    sw_fault(force ? NULL : mend, "%s '%s': it %s", force ? "no device for" : "cannot serve",
             program->image, why);
    return force ? 0 : SW_STATUS_NOT_EXECUTABLE;
}

/* A file that is neither a binary nor starts with #! is a shell script, as for execvp(3). */
static void exec_by_shell(const char *path, const struct run_args *args)
{
    char **argv = calloc((size_t)args->argc + 2, sizeof(*argv));
    if (!argv)
        return;
    argv[0] = (char *)"sh";
    argv[1] = (char *)path;
    for (int i = 1; i < args->argc; i++)
        argv[i + 1] = args->argv[i];
    execv("/bin/sh", argv);
    free(argv);
}

/* What is run in place of CMD. 0, or a status. */
static int run_by_valgrind(const struct sw_library *library, struct run_args *args,
                           struct sw_program *program)
{
    const enum sw_program_fault fault = sw_program_find("valgrind", program);
    if (fault == SW_PROGRAM_NOT_FOUND) {
        sw_fault("apt-get install valgrind", "cannot run '%s' by valgrind: it is not installed",
                 args->argv[0]);
        return SW_STATUS_NOT_FOUND;
    }
    if (fault != SW_PROGRAM_OK)
        return refuse_program(fault, "valgrind", program);
    args->argv = sw_checkers_by_valgrind(library, args->argc, args->argv);
    if (args->argv)
        return 0;
    sw_fault(NULL, "no memory");
    return SW_STATUS_RUN_FAILED;
}

int sw_command_run(int argc, char **argv)
{
    struct run_args args = {0};
    argp_err_exit_status = SW_STATUS_RUN_FAILED;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);

    static struct sw_program program;
    enum sw_program_fault fault = sw_program_find(args.argv[0], &program);
    if (fault == SW_PROGRAM_NOT_FOUND || fault == SW_PROGRAM_DIRECTORY ||
        fault == SW_PROGRAM_NOT_EXECUTABLE)
        return refuse_program(fault, args.argv[0], &program);
    int status = run_warn_of(fault, &program, args.force);
    if (status)
        return status;

    static struct sw_library library;
    if (sw_library_find(&library)) {
        sw_fault(library.mend, "cannot use %s: %s", library.path, library.reason);
        return SW_STATUS_RUN_FAILED;
    }
    static struct sw_library sockets;
    if (args.sockets && sw_library_find_sockets(&library, &sockets)) {
        sw_fault(sockets.mend, "cannot use %s: %s", sockets.path, sockets.reason);
        return SW_STATUS_RUN_FAILED;
    }
    if (preload_library(library.path) || (args.sockets && preload_library(sockets.path)) ||
        sw_checkers_allow_preload()) {
        sw_fault(NULL, "cannot set the environment: %s", strerror(errno));
        return SW_STATUS_RUN_FAILED;
    }
    if (args.collectives && (status = add_collectives(&library)))
        return status;
    if (args.valgrind && (status = run_by_valgrind(&library, &args, &program)))
        return status;
    execv(program.path, args.argv);
    if (errno == ENOEXEC)
        exec_by_shell(program.path, &args);
    sw_fault(NULL, "cannot run '%s': %s", program.path, strerror(errno));
    return errno == ENOENT ? SW_STATUS_NOT_FOUND : SW_STATUS_NOT_EXECUTABLE;
}
