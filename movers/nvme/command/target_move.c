/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire nvme target move`: gives a namespace of a group to another member, and waits until that
 * has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command/control.h"
#include "common/command/remote.h"
#include "common/time/clock.h"
#include "nvme/command/command.h"

enum { LOOK_US = 50000, WAIT_S = 30, QUORUM_S = 5 };

struct move_args {
    struct mover_ask ask;
    const char *nsid, *to;
    long number;
    bool is_json;
};

static void check_move(struct argp_state *state, void *arguments)
{
    struct move_args *args = arguments;
    if (!args->to)
        argp_error(state, "say which namespace by --namespace, and by --to the member");
    args->number = nv_take_nsid(state, args->nsid);
}

#define MOVE(member) offsetof(struct move_args, member)

static const struct mover_option move_options[] = {
    {"namespace", 'n', "BACKEND", 0, "The namespace, by its number", 1, mover_take_text,
     MOVE(nsid)},
    {"to", 0, "MEMBER", 0, "The member of the group that is to have it", 1, mover_take_text,
     MOVE(to)},
    MOVER_OPTION_FORMAT(MOVE(is_json)),
    MOVER_OPTION_CONTROL(MOVE(ask.path)),
    MOVER_OPTION_PID(MOVE(ask.pid)),
    {0},
};

/* What a member knows of it. */
struct move_view {
    bool is_told, has_quorum;
    char owner[64]; /* "" for nobody, or one that takes it still */
    json_int_t epoch;
};

static void move_look(const struct move_args *args, struct move_view *view)
{
    size_t i;
    const json_t *one;
    char *text = mover_ask_command(&args->ask, "status");
    json_t *status = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *group = json_object_get(status, "group");
    *view = (struct move_view){.is_told = group,
                               .has_quorum = json_is_true(json_object_get(group, "has_quorum"))};
    json_array_foreach(json_object_get(group, "owners"), i, one)
    {
        const char *phase = json_string_value(json_object_get(one, "phase")),
                   *name = json_string_value(json_object_get(one, "owner"));
        if (json_integer_value(json_object_get(one, "nsid")) != args->number)
            continue;
        view->epoch = json_integer_value(json_object_get(one, "epoch"));
        if (phase && name && !strcmp(phase, "owned"))
            snprintf(view->owner, sizeof(view->owner), "%s", name);
    }
    json_decref(status);
    free(text);
}

/* It is not known whether it moves: what the group has decided stays decided. */
static int move_is_open(const struct move_args *args, const struct move_view *view, const char *why)
{
    return mover_fail("namespace %ld has not moved yet, and may move still: %s has it, %s",
                      args->number, *view->owner ? view->owner : "nobody", why);
}

/* The next owner after `epoch` is the one that was wanted, or it was all in vain. */
static int await_owner(const struct move_args *args, json_int_t epoch)
{
    const uint64_t begun_ns = mover_now_ns();
    uint64_t quorum_ns = begun_ns;
    struct move_view view;
    char said[128];
    for (;; usleep(LOOK_US)) {
        const uint64_t now_ns = mover_now_ns();
        move_look(args, &view);
        if (!view.is_told)
            return MOVER_FAILED;
        if (!strcmp(view.owner, args->to)) {
            snprintf(said, sizeof(said), "namespace %ld: %s has it", args->number, view.owner);
            return mover_control_done(said, args->is_json);
        }
        if (*view.owner && view.epoch > epoch)
            return mover_fail("namespace %ld does not move to %s: %s has it now. Another move came "
                              "first, or %s could not take it, and its own lines say why",
                              args->number, args->to, view.owner, args->to);
        if (view.has_quorum)
            quorum_ns = now_ns;
        if (now_ns >= quorum_ns + QUORUM_S * NS_PER_S)
            return move_is_open(args, &view, "and the group's log has no quorum, or no leader");
        if (now_ns >= begun_ns + WAIT_S * NS_PER_S)
            return move_is_open(args, &view, "and the targets' own lines say why");
    }
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
    const json_int_t epoch = strtoll(text, NULL, 10);
    free(text);
    return await_owner(&args, epoch);
}
