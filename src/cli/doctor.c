/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire doctor`: what works here, why the rest does not, and the command that mends it. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/command.h"
#include "cli/connections.h"
#include "cli/json.h"
#include "cli/machine.h"
#include "cli/meeting.h"
#include "cli/report.h"
#include "cli/rungs.h"
#include "cli/written_pages.h"

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "Print JSON", 0},
    SW_OPTION_FORMAT,
    {0},
};

static error_t parse_doctor(int key, char *value, struct argp_state *state)
{
    bool *as_json = state->input;
    switch (key) {
    case 'j':
        *as_json = true;
        return 0;
    case 'o':
        *as_json = sw_take_format(state, value);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "it takes no arguments, and got '%s'", value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse_doctor,
    .doc =
        "Tries what Sidewire can use on this machine, as this user, and says why not and what "
        "mends it. Then the connections of your running programs: by which link, to whom, and what "
        "each waits for."
        "\v"
        "Status: 0 if at least one way to a peer's memory works, otherwise 1.",
};

int sw_command_doctor(int argc, char **argv)
{
    bool as_json = false;
    argp_parse(&argp, argc, argv, 0, NULL, &as_json);

    static struct sw_report report;
    struct sw_meeting meeting;
    sw_meeting_try(&meeting);
    sw_rungs_probe(&report, meeting.stage == SW_MEETING_DONE);
    sw_meeting_report(&meeting, &report);
    sw_machine_probe(&report);
    sw_written_pages_probe(&report);
    sw_connections_probe(&report);
    if (as_json)
        sw_report_print_json(&report, stdout);
    else
        sw_report_print(&report, stdout);
    return sw_report_usable(&report) ? SW_STATUS_OK : SW_STATUS_NO;
}
