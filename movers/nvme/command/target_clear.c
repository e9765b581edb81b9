/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire nvme target clear`: a group forgets that the disk of a namespace has failed a flush. */
#include <stdlib.h>

#include "common/command/control.h"
#include "common/command/remote.h"
#include "nvme/command/command.h"

struct clear_args {
    struct mover_ask ask;
    const char *nsid;
    long number;
    bool is_json;
};

static void check_clear(struct argp_state *state, void *arguments)
{
    struct clear_args *args = arguments;
    args->number = nv_take_nsid(state, args->nsid);
}

#define CLEAR(member) offsetof(struct clear_args, member)

static const struct mover_option clear_options[] = {
    {"namespace", 'n', "BACKEND", 0, "The namespace, by its number", 1, mover_take_text,
     CLEAR(nsid)},
    MOVER_OPTION_FORMAT(CLEAR(is_json)),
    MOVER_OPTION_CONTROL(CLEAR(ask.path)),
    MOVER_OPTION_PID(CLEAR(ask.pid)),
    {0},
};

int nv_target_clear(const struct mover_ask *ask, int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Says that the disk of a namespace of a group is sound again. Once a flush has "
                 "failed, all later ones fail, at each owner: what hosts wrote before may be lost. "
                 "Check the disk first, and what is on it.\v"
                 "Example:\n"
                 "  sidewire nvme target clear --namespace 1\n",
        .own = {.rows = clear_options, .check = check_clear}};
    struct clear_args args = {.ask = *ask};
    mover_parse(&usage, argc, argv, &args);
    char *text = mover_ask(
        &args.ask, json_pack("{s:s, s:I}", "command", "clear", "nsid", (json_int_t)args.number));
    const int code = text ? mover_control_done(text, args.is_json) : MOVER_FAILED;
    free(text);
    return code;
}
