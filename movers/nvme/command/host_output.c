/* SPDX-License-Identifier: BSD-2-Clause */
/* What commands of the host print: errors with what mends them, JSON, clean strings. */
#include "nvme/command/host_commands.h"

#include <string.h>

#include "common/text/size.h"

static const char *mend_of(enum sw_nvme_status status, uint16_t code)
{
    enum { INVALID_HOST = 0x184, INVALID_PARAM = 0x182, INVALID_NS = 0xb, SCT_PATH = 3 };
    switch (status) {
    case SW_NVME_FAILED:
        if ((code & 0x7ff) == INVALID_HOST)
            return "The target does not allow this host: add its NQN there, or give another one "
                   "by --hostnqn.";
        if ((code & 0x7ff) == INVALID_PARAM)
            return "Are the names of the subsystem and of this host (--hostnqn) right? sidewire "
                   "nvme discover shows what is there.";
        if ((code & 0x7ff) == INVALID_NS)
            return "sidewire nvme list shows the namespaces that are there.";
        if ((code >> 8 & 7) == SCT_PATH)
            return "Another member of the group serves this host, or none does yet: give the "
                   "addresses of all members, -a ADDR -a ADDR ..., and it waits.";
        return NULL;
    case SW_NVME_REFUSED:
        return "Is the target running, and is the port right (--trsvcid, 4420 by default)?";
    case SW_NVME_UNREACHABLE:
    case SW_NVME_TIMEOUT:
        return "Is the target running, and does the network lead there? --connect-timeout gives "
               "it more time.";
    case SW_NVME_UNSUPPORTED:
        return "The target must offer keyed SGLs.";
    case SW_NVME_AUTHENTICATION:
        return "--dhchap-secret is the host's secret, --dhchap-ctrl-secret that of the target; "
               "both "
               "as the target has them, for this host's NQN (--hostnqn).";
    case SW_NVME_ADDRESS: /* its text says it: a name, a port, or no device */
    case SW_NVME_OK:
    case SW_NVME_AGAIN:
    case SW_NVME_INVALID:
    case SW_NVME_TOO_LONG:
    case SW_NVME_NOT_REGISTERED:
    case SW_NVME_NO_MEMORY:
    case SW_NVME_NOT_DONE:
    case SW_NVME_MAYBE_DONE:
    case SW_NVME_PROTOCOL:
    case SW_NVME_CLOSED:
    case SW_NVME_SYSTEM:
    case SW_NVME_FORKED:
        return NULL;
    }
    return NULL;
}

static void print_mend(enum sw_nvme_status status, uint16_t code)
{
    const char *mend = mend_of(status, code);
    if (mend)
        fprintf(stderr, "  %s\n", mend);
}

int nv_fail_error(const struct sw_nvme_error *error)
{
    if (error->nvme_status)
        mover_fail("%s (0x%x)", error->text, error->nvme_status);
    else
        mover_fail("%s", error->text);
    print_mend(error->status, error->nvme_status);
    return 1;
}

int nv_fail_result(const char *what, const struct sw_nvme_result *result)
{
    if (result->status == SW_NVME_FAILED)
        mover_fail("%s: NVMe status: %s(0x%x)", what, sw_nvme_code_text(result->nvme_status),
                   result->nvme_status);
    else
        mover_fail("%s: %s", what, sw_nvme_status_text(result->status));
    print_mend(result->status, result->nvme_status);
    return 1;
}

bool nv_parse_size(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t value;
    if (!mover_parse_size(text, &value) || value > max)
        return false;
    *out = value;
    return true;
}

void nv_clean_string(const char *text, size_t bytes, char *out, size_t out_bytes)
{
    size_t len = 0;
    while (len < bytes && len + 1 < out_bytes && text[len])
        len++;
    while (len && text[len - 1] == ' ')
        len--;
    for (size_t i = 0; i < len; i++)
        out[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
    out[len] = '\0';
}
