/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `sidewire coll`, `sidewire nvme`, `sidewire pmem`, `sidewire transfer`, and other movers: become
 * the programs sidewire-coll and so on, on the kernel's device that their address belongs to or
 * that `--device NAME` names, else on the devices of this library. They know of neither.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/device_choice.h"
#include "cli/hardware.h"

/* --device sidewire: ours, though the address belongs to one of the kernel */
#define OWN "sidewire"
#define SYSFS "/sys/class/infiniband"
#define KERNEL_CM "/dev/infiniband/rdma_cm"

/* Which options have an address. A letter means something else with other commands. */
static const struct mover {
    const char *name, *command;          /* NULL: all others */
    struct sw_address_option options[3]; /* ended by an empty one */
} movers[] = {
    {"coll", NULL, {{"--local", "--local", true}, {"--meet", "--meet", false}}},
    {"nvme", "target", {{"-l", "--listen", true}}},
    {"nvme", NULL, {{"-w", "--host-traddr", true}, {"-a", "--traddr", false}}},
    {"pmem", "serve", {{"-l", "--listen", true}}},
    {"pmem", "log", {{"-c", "--copy", false}}},
    {"pmem", NULL, {{"-a", "--address", false}}},
    {"transfer", "serve", {{"-l", "--listen", true}}},
    {"transfer", NULL, {{"-w", "--local", true}}},
    {NULL, "serve", {{"-l", "--listen", true}}}, /* a mover that is not of this package */
    {NULL, NULL, {{"-a", "--address", false}}},
};

/* Where the program of a mover may be, seen from this command: in the build tree, where an example
 * has no folder of its own, or where it was installed to. What lies two folders above a command
 * that was installed may be anybody's. */
static const struct place {
    const char *folder;
    bool has_folders; /* one of each mover */
    bool is_built;
} places[] = {{"../../movers", true, true},
              {"../../examples", false, true},
              {"../" SW_LIBEXECDIR, false, false}};

static const char *folder_of(const char *mover)
{
    return strcmp(mover, "coll") ? mover : "collectives";
}

static bool is_in_build_tree(const char *folder, size_t len)
{
    static const char end[] = "/src/cli";
    return len >= strlen(end) && !strncmp(folder + len - strlen(end), end, strlen(end));
}

static bool find_program(const char *mover, char path[PATH_MAX])
{
    char here[PATH_MAX];
    const ssize_t len = readlink("/proc/self/exe", here, sizeof(here) - 1);
    char *slash = NULL;
    if (len > 0) {
        here[len] = 0;
        slash = strrchr(here, '/');
    }
    if (!slash || strchr(mover, '/'))
        return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const struct place *place = &places[i];
        if (place->is_built && !is_in_build_tree(here, (size_t)(slash - here)))
            continue;
        const int n = snprintf(path, PATH_MAX, "%.*s/%s/%s/sidewire-%s", (int)(slash - here), here,
                               place->folder, place->has_folders ? folder_of(mover) : ".", mover);
        if (n > 0 && n < PATH_MAX && !access(path, X_OK))
            return true;
    }
    return false;
}

static bool is_hardware(const char *name)
{
    struct sw_hardware hardware;
    sw_hardware_read(&hardware);
    for (int i = 0; i < hardware.count; i++)
        if (!strcmp(hardware.devices[i].name, name))
            return true;
    return false;
}

static int run_on_hardware(const char *mover, const char *device, char **argv)
{
    if (!is_hardware(device)) {
        fprintf(stderr,
                "sidewire %s: the kernel has no device '%s'; 'sidewire devices' lists them\n",
                mover, device);
        return SW_STATUS_NO;
    }
    execv(argv[0], argv);
    fprintf(stderr, "sidewire %s: cannot run %s: %s\n", mover, argv[0], strerror(errno));
    return 126;
}

/* The kernel's device that an address on the command line belongs to, if this user may use it. */
static const char *device_of_words(const char *mover, char *const *words, int count)
{
    static char name[SW_DEVICE_NAME_MAX];
    const struct mover *of = movers;
    while ((of->name && strcmp(of->name, mover) != 0) ||
           (of->command && (!count || strcmp(of->command, words[0]) != 0)))
        of++;
    if (!sw_device_choose(SYSFS, words, count, of->options, name) || !is_hardware(name) ||
        access(KERNEL_CM, R_OK | W_OK))
        return NULL;
    return name;
}

int sw_command_mover(int argc, char **argv)
{
    const char *mover = strchr(argv[0], ' ') + 1; /* behind "sidewire" */
    static char program[PATH_MAX];
    const char *device = NULL;
    bool is_verbose = false;
    int at = 1;
    for (; at < argc; at++) {
        if (!strcmp(argv[at], "-v"))
            is_verbose = true;
        else if (!strcmp(argv[at], "--device") && at + 1 < argc)
            device = argv[++at];
        else
            break;
    }
    if (!device)
        device = device_of_words(mover, argv + at, argc - at);
    else if (!strcmp(device, OWN))
        device = NULL;
    if (!find_program(mover, program)) {
        fprintf(stderr,
                "sidewire %s: sidewire-%s is not where it was built or installed to; "
                "'make build' or 'make install' puts it there\n",
                mover, mover);
        return SW_STATUS_NO;
    }
    if (is_verbose)
        fprintf(stderr, "sidewire %s: on %s\n", mover, device ? device : "Sidewire's own devices");
    char **words = calloc((size_t)(argc - at) + 4, sizeof(*words));
    if (!words)
        return SW_STATUS_NO;
    words[0] = argv[0];
    words[1] = (char *)"--";
    words[2] = program;
    memcpy(words + 3, argv + at, (size_t)(argc - at) * sizeof(*words));
    return device ? run_on_hardware(mover, device, words + 2)
                  : sw_command_run(argc - at + 3, words);
}

bool sw_has_mover(const char *mover)
{
    static char program[PATH_MAX];
    return find_program(mover, program);
}
