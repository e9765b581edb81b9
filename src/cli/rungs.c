/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The two processes of each trial are siblings or strangers to each other as real peers are: a
 * parent may do things to its child that Yama forbids others.
 */
#include "cli/rungs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/shm.h"
#include "cli/refusal.h"
#include "cli/report.h"
#include "device/adopt/adopt.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum { CMA_BYTES = 8192, HUGE_BYTES = 2 << 20 };

/* What the actor's exit status means, besides an errno. */
enum { EXIT_DAMAGED = 255, EXIT_ERRNO_MAX = 254 };

static const char cma_before = 0x11, cma_after = 0x22;
static char cma_memory[CMA_BYTES]; /* at the same address in the forked processes */

static bool is_filled(const char *bytes, size_t len_bytes, char value)
{
    for (size_t i = 0; i < len_bytes; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

/* Lets others reach it as the device does, then waits for the pipe to close and looks at its
 * memory. */
static void cma_target(int ready_fd, int stop_fd)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    memset(cma_memory, cma_before, sizeof(cma_memory));
    char byte = 0;
    if (write(ready_fd, &byte, 1) != 1)
        _exit(EXIT_DAMAGED);
    ssize_t ignored = read(stop_fd, &byte, 1);
    (void)ignored;
    _exit(is_filled(cma_memory, sizeof(cma_memory), cma_after) ? 0 : EXIT_DAMAGED);
}

static void cma_actor(pid_t target)
{
    static char own[CMA_BYTES];
    struct iovec local = {own, sizeof(own)};
    struct iovec remote = {cma_memory, sizeof(cma_memory)};
    if (process_vm_readv(target, &local, 1, &remote, 1, 0) != CMA_BYTES)
        _exit(errno < EXIT_ERRNO_MAX ? errno : EXIT_ERRNO_MAX);
    if (!is_filled(own, sizeof(own), cma_before))
        _exit(EXIT_DAMAGED);
    memset(own, cma_after, sizeof(own));
    if (process_vm_writev(target, &local, 1, &remote, 1, 0) != CMA_BYTES)
        _exit(errno < EXIT_ERRNO_MAX ? errno : EXIT_ERRNO_MAX);
    _exit(0);
}

static int exit_status(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return EXIT_DAMAGED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_DAMAGED;
}

/* 0, an errno, or EXIT_DAMAGED when bytes arrived that were not sent. */
static int try_cma(void)
{
    int ready[2], stop[2];
    if (pipe(ready))
        return errno;
    if (pipe(stop)) {
        int err = errno;
        close(ready[0]);
        close(ready[1]);
        return err;
    }
    int verdict = EXIT_DAMAGED;
    char byte;
    pid_t target = fork();
    if (target == 0) {
        close(ready[0]);
        close(stop[1]);
        cma_target(ready[1], stop[0]);
    }
    close(ready[1]);
    close(stop[0]);
    pid_t actor = target > 0 && read(ready[0], &byte, 1) == 1 ? fork() : -1;
    if (actor == 0) {
        close(stop[1]); /* the target waits for the last copy to close */
        cma_actor(target);
    }
    if (actor > 0)
        verdict = exit_status(actor);
    close(stop[1]);
    close(ready[0]);
    int seen = target > 0 ? exit_status(target) : EXIT_DAMAGED;
    return verdict ? verdict : seen;
}

static void rungs_probe_cma(struct sw_report *report)
{
    int err = try_cma();
    struct sw_finding *finding =
        sw_report_add(report, SW_GROUP_RUNGS, err ? SW_VERDICT_NO : SW_VERDICT_YES, "cma");
    if (err == 0)
        sw_finding_detail(finding, "process_vm_readv and process_vm_writev: one copy, any memory");
    else if (err == EXIT_DAMAGED)
        sw_finding_detail(finding,
                          "process_vm_readv or process_vm_writev moved other bytes than asked");
    else
        sw_refusal_explain_ptrace(finding, "process_vm_readv/writev", err);
}

/* Says more than the reason of adoption does: which call the kernel refused, and how. */
static void explain_adoption(struct sw_finding *finding, enum sw_adopt_reason reason)
{
    if (reason == SW_ADOPT_DISABLED) {
        sw_finding_detail(finding, "SIDEWIRE_ADOPT=never");
        sw_finding_mend(finding, "unset SIDEWIRE_ADOPT");
        return;
    }
    if (reason == SW_ADOPT_NO_UFFD) {
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
        int err = errno;
        if (fd >= 0)
            close(fd);
        if (fd < 0) {
            sw_refusal_explain(finding, "userfaultfd", err,
                               "CONFIG_USERFAULTFD, version 5.11 or later");
            return;
        }
        sw_finding_detail(finding, "userfaultfd cannot protect memory from writing here");
        sw_finding_mend(
            finding,
            "boot a kernel of version 5.11 or later, with CONFIG_HAVE_ARCH_USERFAULTFD_WP");
        return;
    }
    if (reason == SW_ADOPT_NO_MEMFD) {
        int fd = memfd_create("sidewire-doctor", MFD_CLOEXEC);
        int err = errno;
        if (fd >= 0)
            close(fd);
        if (fd < 0) {
            sw_refusal_explain(finding, "memfd_create", err, "CONFIG_MEMFD_CREATE");
            return;
        }
    }
    sw_finding_detail(finding, "%s", sw_adopt_reason_str(reason));
}

static void probe_adoption(struct sw_report *report)
{
    enum sw_adopt_reason reason = sw_adopt_probe();
    struct sw_finding *finding = sw_report_add(
        report, SW_GROUP_RUNGS, reason == SW_ADOPT_OK ? SW_VERDICT_YES : SW_VERDICT_NO,
        "mapped, plain memory");
    if (reason == SW_ADOPT_OK)
        sw_finding_detail(
            finding, "malloc'ed buffers are made mappable when registered (userfaultfd, memfd)");
    else
        explain_adoption(finding, reason);
}

/* Huge pages are a choice of the program, so none of them is no fault. */
static void probe_huge(struct sw_report *report)
{
    struct sw_finding *finding =
        sw_report_add(report, SW_GROUP_RUNGS, SW_VERDICT_NOTE, "mapped, huge pages");
    int fd = memfd_create("sidewire-doctor", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
    void *base = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, HUGE_BYTES) == 0)
        base = mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int err = errno;
    if (base != MAP_FAILED) {
        finding->verdict = SW_VERDICT_YES;
        sw_finding_detail(finding, "huge pages of programs that use them");
        munmap(base, HUGE_BYTES);
    } else if (fd >= 0 && err == ENOMEM) {
        sw_finding_detail(finding, "none are reserved, only for programs that ask for them");
        sw_finding_mend(finding, "sysctl -w vm.nr_hugepages=64 (as root)");
    } else {
        sw_finding_detail(finding, "no huge pages here (%s), only for programs that ask for them",
                          strerror(err));
    }
    if (fd >= 0)
        close(fd);
}

/* Every rung needs that processes meet: without it none serves, whatever the kernel allows. */
static void add_blocked(struct sw_report *report, const char *name)
{
    struct sw_finding *finding = sw_report_add(report, SW_GROUP_RUNGS, SW_VERDICT_NO, name);
    sw_finding_detail(finding, "processes cannot meet; see below");
}

void sw_rungs_probe(struct sw_report *report, bool met)
{
    if (!met) {
        add_blocked(report, "mapped");
        add_blocked(report, "cma");
        add_blocked(report, "ring");
        return;
    }
    probe_adoption(report);
    sw_finding_detail(
        sw_report_add(report, SW_GROUP_RUNGS, SW_VERDICT_YES, "mapped, shared memory"),
        "memfd, /dev/shm and other shared files are mapped as they are");
    probe_huge(report);
    rungs_probe_cma(report);
    sw_finding_detail(sw_report_add(report, SW_GROUP_RUNGS, SW_VERDICT_YES, "ring"),
                      "copies through shared memory by both sides; the last resort");
}
