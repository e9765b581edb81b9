/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `sidewire nvme`: becomes the program sidewire-nvme, on the kernel's device that its address
 * belongs to or that `--device NAME` names, else on the devices of this library. The program knows
 * of neither.
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

#define OWN \
    "sidewire" /* --device sidewire: ours, though the address belongs to one of the kernel */
#define SYSFS "/sys/class/infiniband"
#define KERNEL_CM "/dev/infiniband/rdma_cm"

static const struct sw_address_option address_options[] = {{"-l", "--listen", true},
                                                           {"-w", "--host-traddr", true},
                                                           {"-a", "--traddr", false},
                                                           {NULL, NULL, false}};

/* Beside this command in the build tree, else where it was installed to. */
static bool find_program(char path[PATH_MAX])
{
    char here[PATH_MAX];
    const ssize_t len = readlink("/proc/self/exe", here, sizeof(here) - 1);
    char *slash = NULL;
    if (len > 0) {
        here[len] = 0;
        slash = strrchr(here, '/');
    }
    static const char *const places[] = {"../../movers/nvme", "../" SW_LIBEXECDIR};
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(*places); i++) {
        const int n =
            snprintf(path, PATH_MAX, "%.*s/%s/sidewire-nvme", (int)(slash - here), here, places[i]);
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

static int run_on_hardware(const char *device, char **argv)
{
    if (!is_hardware(device)) {
        fprintf(stderr,
                "sidewire nvme: the kernel has no device '%s'; 'sidewire devices' lists them\n",
                device);
        return SW_STATUS_NO;
    }
    execv(argv[0], argv);
    fprintf(stderr, "sidewire nvme: cannot run %s: %s\n", argv[0], strerror(errno));
    return 126;
}

/* The kernel's device that an address on the command line belongs to, if this user may use it. */
static const char *device_of_words(char *const *words, int count)
{
    static char name[SW_DEVICE_NAME_MAX];
    if (!sw_device_choose(SYSFS, words, count, address_options, name) || !is_hardware(name) ||
        access(KERNEL_CM, R_OK | W_OK))
        return NULL;
    return name;
}

int sw_command_nvme(int argc, char **argv)
{
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
        device = device_of_words(argv + at, argc - at);
    else if (!strcmp(device, OWN))
        device = NULL;
    if (!find_program(program)) {
        fprintf(stderr, "sidewire nvme: sidewire-nvme is not where it was built or installed to; "
                        "'make install' puts it there\n");
        return SW_STATUS_NO;
    }
    if (is_verbose)
        fprintf(stderr, "sidewire nvme: on %s\n", device ? device : "Sidewire's own devices");
    char **words = calloc((size_t)(argc - at) + 4, sizeof(*words));
    if (!words)
        return SW_STATUS_NO;
    words[0] = argv[0];
    words[1] = (char *)"--";
    words[2] = program;
    memcpy(words + 3, argv + at, (size_t)(argc - at) * sizeof(*words));
    return device ? run_on_hardware(device, words + 2) : sw_command_run(argc - at + 3, words);
}
