/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * deny [-e ERRNO] SYSCALL,... -- CMD ARGS...
 * Runs CMD with some system calls refused by a seccomp filter, as a container would refuse them.
 * CMD's children inherit it. Status 125: the filter could not be made; 126, 127: CMD could not be
 * run.
 */
#include <errno.h>
#include <linux/ioctl.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00) /* Linux 6.1, linux/userfaultfd.h */
#endif

enum { STATUS_OWN_FAULT = 125, STATUS_NOT_EXECUTABLE = 126, STATUS_NOT_FOUND = 127 };

static int errno_of_name(const char *name)
{
    char *end;
    long number = strtol(name, &end, 10);
    if (end != name && *end == '\0' && number > 0 && number < 4096)
        return (int)number;
    for (int err = 1; err < 200; err++) {
        const char *known = strerrorname_np(err);
        if (known && !strcmp(known, name))
            return err;
    }
    return 0;
}

/* Refuses the calls of a comma-separated list. 0 or -1, having said why. */
static int deny_list(scmp_filter_ctx filter, char *list, int err)
{
    for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
        int number = seccomp_syscall_resolve_name(name);
        if (number == __NR_SCMP_ERROR) {
            fprintf(stderr, "deny: unknown system call '%s'\n", name);
            return -1;
        }
        int failed = seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)err), number, 0);
        /* For root there is a device that makes the same descriptors. */
        if (!failed && !strcmp(name, "userfaultfd"))
            failed = seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)err), SCMP_SYS(ioctl), 1,
                                      SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, USERFAULTFD_IOC_NEW));
        if (failed) {
            fprintf(stderr, "deny: cannot refuse '%s': %s\n", name, strerror(-failed));
            return -1;
        }
    }
    return 0;
}

/* 0 or -1, having said why. */
static int load_filter(char *list, int err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return -1;
    int failed = deny_list(filter, list, err);
    if (!failed && (failed = seccomp_load(filter)) != 0)
        fprintf(stderr, "deny: cannot load the filter: %s\n", strerror(-failed));
    seccomp_release(filter);
    return failed ? -1 : 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: deny [-e ERRNO] SYSCALL,... -- CMD ARGS...\n");
    return STATUS_OWN_FAULT;
}

int main(int argc, char **argv)
{
    int err = EPERM;
    int option;
    while ((option = getopt(argc, argv, "+e:")) != -1) {
        if (option != 'e' || !(err = errno_of_name(optarg)))
            return usage();
    }
    char *list = optind < argc ? argv[optind++] : NULL;
    if (optind < argc && !strcmp(argv[optind], "--"))
        optind++;
    if (!list || optind >= argc)
        return usage();

    if (load_filter(list, err))
        return STATUS_OWN_FAULT;
    execvp(argv[optind], argv + optind);
    fprintf(stderr, "deny: cannot run '%s': %s\n", argv[optind], strerror(errno));
    return errno == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
}
