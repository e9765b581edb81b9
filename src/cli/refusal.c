/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/refusal.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "cli/report.h"

/* Documentation/admin-guide/LSM/Yama.rst of the kernel */
enum { YAMA_RESTRICTED = 1, YAMA_ADMIN_ONLY = 2, YAMA_NO_ATTACH = 3 };

long sw_proc_number(const char *path, long fallback)
{
    long value = fallback;
    FILE *file = fopen(path, "re");
    if (file) {
        if (fscanf(file, "%ld", &value) != 1)
            value = fallback;
        fclose(file);
    }
    return value;
}

bool sw_is_filtered(void)
{
    return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_FILTER;
}

void sw_refusal_explain(struct sw_finding *finding, const char *call, int err, const char *kernel)
{
    if ((err == EPERM || err == ENOSYS || err == EACCES) && sw_is_filtered()) {
        sw_finding_detail(finding,
                          "%s is refused (%s) by a seccomp filter, a container's as a rule", call,
                          strerror(err));
        sw_finding_mend(
            finding,
            "allow it in the filter, e.g. docker run --security-opt seccomp=unconfined ...");
    } else if (err == ENOSYS || err == EINVAL) {
        sw_finding_detail(finding, "%s: %s: the kernel lacks %s", call, strerror(err), kernel);
        sw_finding_mend(finding, "boot a kernel with %s", kernel);
    } else {
        sw_finding_detail(finding, "%s: %s", call, strerror(err));
    }
}

void sw_refusal_explain_ptrace(struct sw_finding *finding, const char *call, int err)
{
    long scope = sw_proc_number("/proc/sys/kernel/yama/ptrace_scope", 0);
    if (err == EPERM && scope == YAMA_ADMIN_ONLY) {
        sw_finding_detail(
            finding, "%s is refused: kernel.yama.ptrace_scope is 2, for administrators only", call);
        sw_finding_mend(finding, "sysctl -w kernel.yama.ptrace_scope=%d (as root)",
                        YAMA_RESTRICTED);
    } else if (err == EPERM && scope == YAMA_NO_ATTACH) {
        sw_finding_detail(
            finding, "%s is refused: kernel.yama.ptrace_scope is 3, for nobody until the next boot",
            call);
        sw_finding_mend(
            finding,
            "echo kernel.yama.ptrace_scope=1 >/etc/sysctl.d/60-ptrace.conf (as root), and boot");
    } else {
        sw_refusal_explain(finding, call, err, "CONFIG_CROSS_MEMORY_ATTACH");
    }
}
