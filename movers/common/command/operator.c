/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/operator.h"

#include <stdio.h>
#include <string.h>

#include "common/command/front.h"
#include "common/serve/log.h"

void mover_take_log(struct argp_state *state, void *place, char *text)
{
    static const char *const words[] = {"error", "warning", "info"};
    (void)place;
    for (unsigned level = MOVER_LOG_ERROR; level <= MOVER_LOG_INFO; level++)
        if (!strcmp(text, words[level]))
            return mover_log_open((enum mover_log_level)level, true);
    argp_error(state, "--log is error, warning or info, not '%s'", text);
}

void mover_take_verbose(struct argp_state *state, void *place, char *text)
{
    (void)state, (void)place, (void)text;
    mover_log_open(MOVER_LOG_INFO, false);
}

int mover_operator_export(const struct mover_operator *wish, struct mover_exporter *exporter,
                          struct mover_loop *loop, const struct mover_control_setup *source)
{
    char error[512], address[256] = "";
    if (wish->metrics && strlen(wish->metrics) >= sizeof(address))
        return mover_fail("--metrics is ADDR[:PORT], and no such long text");
    if (wish->metrics)
        strcpy(address, wish->metrics);
    if (mover_exporter_open(exporter, loop, source, wish->metrics ? address : NULL,
                            wish->metrics_file, error, sizeof(error)))
        return mover_fail("%s", error);
    return MOVER_DONE;
}
