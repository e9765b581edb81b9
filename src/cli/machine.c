/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/machine.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/hardware.h"
#include "cli/library.h"
#include "cli/refusal.h"
#include "cli/report.h"
#include "device/nic/netdev.h"
#include "link/paired/socket.h"
#include "link/roce/port/holder.h"
#include "wire/packet.h"

/* Each peer costs a handful of descriptors, and each shared region one more. */
enum { OPEN_FILES_MIN = 1024 };

static struct sw_finding *add_finding(struct sw_report *report, enum sw_verdict verdict,
                                      const char *name)
{
    return sw_report_add(report, SW_GROUP_MACHINE, verdict, name);
}

static void probe_library(struct sw_report *report)
{
    static struct sw_library library;
    int failed = sw_library_find(&library);
    struct sw_finding *finding =
        add_finding(report, failed ? SW_VERDICT_NO : SW_VERDICT_YES, "libsidewire.so");
    if (failed) {
        sw_finding_detail(finding, "%.200s: %.300s", library.path, library.reason);
        sw_finding_mend(finding, "%.500s", library.mend);
    } else {
        sw_finding_detail(finding, "%.500s", library.path);
    }
}

static void probe_stock(struct sw_report *report)
{
    void *handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
    struct sw_finding *finding =
        add_finding(report, handle ? SW_VERDICT_YES : SW_VERDICT_NO, "libibverbs");
    if (!handle) {
        sw_finding_detail(
            finding, "the stock library is missing; programs that speak verbs are linked to it");
        sw_finding_mend(finding, "apt-get install libibverbs1 (as root)");
        return;
    }
    struct link_map *map = NULL;
    char whole[PATH_MAX];
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && realpath(map->l_name, whole))
        sw_finding_detail(finding, "%.500s", whole);
    dlclose(handle);
}

static void probe_hardware(struct sw_report *report)
{
    struct sw_hardware hardware;
    sw_hardware_read(&hardware);
    struct sw_finding *finding = add_finding(report, SW_VERDICT_NOTE, "RDMA hardware");
    sw_finding_detail(finding, "%s",
                      hardware.count ? "stays visible and untouched beside the Sidewire devices"
                                     : "none, and none is needed");
    for (int i = 0; i < hardware.count; i++)
        sw_finding_append(finding, hardware.devices[i].name);
}

static void probe_interfaces(struct sw_report *report)
{
    struct sw_finding *finding = add_finding(report, SW_VERDICT_NO, "interfaces up");
    int failed = sw_netdev_refresh(NULL, NULL);
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        if (info.up)
            sw_finding_append(finding, info.ifname);
    }
    if (*finding->detail) {
        finding->verdict = SW_VERDICT_YES;
    } else if (failed) {
        sw_refusal_explain(finding, "reading the network interfaces", -failed, "CONFIG_NET");
    } else if (getenv("SIDEWIRE_DEVICES")) {
        sw_finding_detail(finding,
                          "none of those in SIDEWIRE_DEVICES=%.200s, so there is no device",
                          getenv("SIDEWIRE_DEVICES"));
        sw_finding_mend(finding, "unset SIDEWIRE_DEVICES");
    } else {
        sw_finding_detail(finding, "none, so there is no device");
        sw_finding_mend(finding, "ip link set lo up (as root)");
    }
}

/* One of the two address families alone may be held. */
static void probe_port_family(struct sw_finding *finding, bool is_ipv4)
{
    struct sw_holder holder;
    char who[160], text[224];
    if (!sw_holder_keeps_out(SW_ROCE_PORT, is_ipv4))
        return;
    sw_holder_find(SW_ROCE_PORT, is_ipv4, &holder);
    sw_holder_describe(&holder, who, sizeof(who));
    snprintf(text, sizeof(text), "of IPv%c held by %s", is_ipv4 ? '4' : '6', who);
    sw_finding_append(finding, text);
    if (holder.pid)
        sw_finding_mend(finding, "kill %ld", holder.pid);
    else if (!*finding->mend)
        sw_finding_mend(finding,
                        "rmmod rdma_rxe, if it is the kernel's; ss -ulnp 'sport = :%u' "
                        "tells (as root)",
                        SW_ROCE_PORT);
    finding->verdict = SW_VERDICT_NO;
}

static void probe_udp_port(struct sw_report *report)
{
    char name[24];
    snprintf(name, sizeof(name), "UDP port %u", SW_ROCE_PORT);
    struct sw_finding *finding = add_finding(report, SW_VERDICT_YES, name);
    probe_port_family(finding, true);
    probe_port_family(finding, false);
    sw_finding_append(finding, finding->verdict == SW_VERDICT_NO
                                   ? "so other hosts are out of reach by RoCE"
                                   : "free for packets to other hosts");
}

static void probe_tcp_port(struct sw_report *report)
{
    char name[24];
    sw_paired_read_settings();
    snprintf(name, sizeof(name), "TCP port %u", sw_paired_port());
    struct sw_finding *finding = add_finding(report, SW_VERDICT_YES, name);
    sw_finding_detail(finding, "free for the calls of other hosts (--link tcp, or where UDP does "
                               "not pass)");
    if (!sw_paired_is_kept_out())
        return;
    finding->verdict = SW_VERDICT_NO;
    sw_finding_detail(finding, "another program listens there, so other hosts cannot call by TCP "
                               "(--link tcp, or where UDP does not pass)");
    sw_finding_mend(finding,
                    "ss -ltnp 'sport = :%u' names it; or SIDEWIRE_TCP_PORT=4792, on all "
                    "hosts",
                    sw_paired_port());
}

static void probe_limits(struct sw_report *report)
{
    struct rlimit files, locked;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        struct sw_finding *finding = add_finding(
            report, files.rlim_cur < OPEN_FILES_MIN ? SW_VERDICT_NO : SW_VERDICT_YES, "open files");
        sw_finding_detail(finding, "at most %llu", (unsigned long long)files.rlim_cur);
        if (files.rlim_cur < OPEN_FILES_MIN) {
            sw_finding_append(finding, "few for a program with many peers");
            sw_finding_mend(finding, "ulimit -n %d", OPEN_FILES_MIN);
        }
    }
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0)
        sw_finding_detail(add_finding(report, SW_VERDICT_NOTE, "locked memory"),
                          "no limit matters: nothing is locked");
}

static void probe_user_namespace(struct sw_report *report)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) ? errno : 0);
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    int err = pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EAGAIN;
    struct sw_finding *finding = add_finding(report, SW_VERDICT_NOTE, "user namespaces");
    sw_finding_detail(finding, err ? "refused (%s); only rootless containers need them" : "allowed",
                      strerror(err));
    if (err && sw_proc_number("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0)
        sw_finding_mend(finding, "sysctl -w kernel.unprivileged_userns_clone=1 (as root)");
    else if (err && sw_proc_number("/proc/sys/user/max_user_namespaces", 1) == 0)
        sw_finding_mend(finding, "sysctl -w user.max_user_namespaces=10000 (as root)");
}

static void probe_settings(struct sw_report *report)
{
    static const char *const names[] = {"SIDEWIRE_DIRECT",
                                        "SIDEWIRE_ADOPT",
                                        "SIDEWIRE_ADOPT_MAX",
                                        "SIDEWIRE_DEVICES",
                                        "SIDEWIRE_LOG",
                                        "SIDEWIRE_LIB",
                                        "SIDEWIRE_LINK",
                                        "SIDEWIRE_TCP_PORT",
                                        "SIDEWIRE_TCP_CC",
                                        "SIDEWIRE_TCP_MPTCP",
                                        "SIDEWIRE_TCP_FALLBACK",
                                        "SIDEWIRE_IWARP_CRC",
                                        "SIDEWIRE_LIVENESS",
                                        "SIDEWIRE_FAULTS",
                                        "SIDEWIRE_SPLICE",
                                        "SIDEWIRE_ENGINE_CPUS",
                                        "SIDEWIRE_PERSISTENT_BARS",
                                        "SIDEWIRE_SOCKETS",
                                        "SIDEWIRE_SOCKETS_POLL_US",
                                        "SIDEWIRE_COLLECTIVES"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (!value)
            continue;
        struct sw_finding *finding = add_finding(report, SW_VERDICT_NOTE, names[i]);
        sw_finding_detail(finding, "%.400s", value);
        if (i == 0 && strcmp(value, "auto"))
            sw_finding_append(finding, "so programs may not use all of the ways above");
    }
}

void sw_machine_probe(struct sw_report *report)
{
    probe_library(report);
    probe_stock(report);
    probe_interfaces(report);
    probe_udp_port(report);
    probe_tcp_port(report);
    probe_hardware(report);
    probe_limits(report);
    probe_user_namespace(report);
    struct utsname name;
    if (uname(&name) == 0)
        sw_finding_detail(add_finding(report, SW_VERDICT_NOTE, "kernel"), "%s, %s", name.release,
                          sw_is_filtered() ? "with a seccomp filter on this process"
                                           : "no seccomp filter on this process");
    probe_settings(report);
}
