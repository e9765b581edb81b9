/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire nvme target move`: gives a namespace of a group to another member, and waits until that
 * has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command/control.h"
#include "common/time/clock.h"
#include "nvme/command/command.h"

enum { LOOK_US = 50000, WAIT_S = 30 };

struct move_args {
    struct mover_ask ask;
    const char *nsid, *to;
    long number;
};

static void check_move(struct argp_state *state, void *arguments)
{
    struct move_args *args = arguments;
    char *end = "";
    if (!args->nsid || !args->to)
        argp_error(state, "say which namespace by --namespace, and by --to the member");
    args->number = strtol(args->nsid, &end, 10);
    if (*end || args->number < 1 || args->number > UINT32_MAX)
        argp_error(state, "--namespace is the number of one, not '%s'", args->nsid);
}

#define MOVE(member) offsetof(struct move_args, member)

static const struct mover_option move_options[] = {
    {"namespace", 'n', "BACKEND", 0, "The namespace, by its number", 1, mover_take_text,
     MOVE(nsid)},
    {"to", 0, "MEMBER", 0, "The member of the group that is to have it", 1, mover_take_text,
     MOVE(to)},
    MOVER_OPTION_CONTROL(MOVE(ask.path)),
    MOVER_OPTION_PID(MOVE(ask.pid)),
    {0},
};

/* Writes to `owner` who owns it, "" for nobody. False: the target does not say. */
static bool move_find_owner(const struct move_args *args, char *owner, size_t owner_bytes)
{
    size_t i;
    const json_t *one;
    char *text = mover_ask_command(&args->ask, "status");
    json_t *status = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *group = json_object_get(status, "group");
    owner[0] = 0;
    json_array_foreach(json_object_get(group, "owners"), i, one)
    {
        const char *phase = json_string_value(json_object_get(one, "phase")),
                   *name = json_string_value(json_object_get(one, "owner"));
        if (json_integer_value(json_object_get(one, "nsid")) == args->number && phase && name &&
            !strcmp(phase, "owned"))
            snprintf(owner, owner_bytes, "%s", name);
    }
    json_decref(status);
    free(text);
    return group;
}

static int await_owner(const struct move_args *args)
{
    const uint64_t until_ns = mover_now_ns() + WAIT_S * NS_PER_S;
    char owner[64] = "";
    while (move_find_owner(args, owner, sizeof(owner)) && strcmp(owner, args->to) != 0) {
        if (mover_now_ns() >= until_ns) {
            mover_fail("namespace %ld has not moved in %d s: %s has it; the targets' own lines say "
                       "why",
                       args->number, WAIT_S, *owner ? owner : "nobody");
            return MOVER_FAILED;
        }
        usleep(LOOK_US);
    }
    if (strcmp(owner, args->to) != 0)
        return MOVER_FAILED;
    printf("namespace %ld: %s has it\n", args->number, args->to);
    return MOVER_DONE;
}

int nv_target_move(const struct mover_ask *ask, int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Gives a namespace of a group of targets to another member. Hosts wait meanwhile, "
                 "and see no error.\v"
                 "Example:\n"
                 "  sidewire nvme target move --namespace 1 --to target2\n",
        .own = {.rows = move_options, .check = check_move}};
    struct move_args args = {.ask = *ask};
    mover_parse(&usage, argc, argv, &args);
    char *text = mover_ask(&args.ask, json_pack("{s:s, s:I, s:s}", "command", "move", "nsid",
                                                (json_int_t)args.number, "member", args.to));
    if (!text)
        return MOVER_FAILED;
    free(text);
    return await_owner(&args);
}
