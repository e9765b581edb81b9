/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/operator.h"

#include <stdint.h>
#include <string.h>

#include "common/command/front.h"
#include "common/serve/log.h"
#include "common/text/endpoint.h"
#include "common/text/number.h"

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

enum { ADDRESS_BYTES = 256 };

/* A port may be a name, too. */
static bool is_operator_address(const char *text)
{
    char copy[ADDRESS_BYTES];
    const char *address, *port = "0";
    uint16_t number;
    if (strlen(text) >= sizeof(copy) || !mover_split_endpoint(strcpy(copy, text), &address, &port))
        return false;
    return *port && (port[strspn(port, "0123456789")] || mover_parse_port(port, &number));
}

void mover_take_metrics(struct argp_state *state, void *place, char *text)
{
    if (!is_operator_address(text))
        argp_error(state, "--metrics is ADDR[:PORT], with a port up to 65535, not '%.100s'", text);
    *(const char **)place = text;
}

int mover_operator_export(const struct mover_operator *wish, struct mover_exporter *exporter,
                          struct mover_loop *loop, const struct mover_control_setup *source)
{
    char error[512], address[ADDRESS_BYTES] = "";
    if (wish->metrics)
        strcpy(address, wish->metrics);
    if (mover_exporter_open(exporter, loop, source, wish->metrics ? address : NULL,
                            wish->metrics_file, error, sizeof(error)))
        return mover_fail("%s", error);
    return MOVER_DONE;
}
