/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/dump/words.h"

#include <stddef.h>
#include <string.h>

#include "collectives/core/call.h"
#include "collectives/core/recorder.h"

static const char *const recorded_words[] = {
    [COLL_RECORDED_SEND - SW_COLL_KINDS] = "send",
    [COLL_RECORDED_RECV - SW_COLL_KINDS] = "recv",
    [COLL_RECORDED_SPLIT - SW_COLL_KINDS] = "split",
    [COLL_RECORDED_SHRINK - SW_COLL_KINDS] = "shrink",
};

static const char *const status_words[] = {
    [SW_COLL_OK] = "ok",
    [SW_COLL_AGAIN] = "under way",
    [SW_COLL_TIMEOUT] = "timeout",
    [SW_COLL_INVALID] = "invalid",
    [SW_COLL_MISMATCH] = "mismatch",
    [SW_COLL_RANK_GONE] = "rank gone",
    [SW_COLL_BROKEN] = "broken",
    [SW_COLL_NO_MEMORY] = "no memory",
    [SW_COLL_NOT_SUPPORTED] = "not supported",
    [SW_COLL_ADDRESS] = "address",
    [SW_COLL_VERSION] = "version",
    [SW_COLL_PROTOCOL] = "protocol",
    [SW_COLL_FORKED] = "forked",
    [SW_COLL_SYSTEM] = "system",
    [SW_COLL_REVOKED] = "revoked",
};

static const char *const activity_words[COLL_ACTIVITIES] = {
    [COLL_IN_OPERATION] = "operation", [COLL_IN_SEND] = "send",     [COLL_IN_RECV] = "recv",
    [COLL_IN_AGREEMENT] = "agree",     [COLL_IN_SHRINK] = "shrink", [COLL_HAS_FAILED] = "failed",
    [COLL_IN_OPENING] = "open",
};

static const char *const order_words[] = {
    [SW_COLL_ORDER_TREE] = "tree",
    [SW_COLL_ORDER_ANY] = "any",
};

static const char *const why_words[COLL_DUMP_WHYS] = {
    [COLL_DUMP_CALLED] = "call",
    [COLL_DUMP_FAILED] = "error",
    [COLL_DUMP_SIGNALED] = "signal",
    [COLL_DUMP_READ] = "page",
};

static const char *const process_words[COLL_PROCESSES] = {
    [COLL_PROCESS_ALIVE] = "alive",
    [COLL_PROCESS_STOPPED] = "stopped",
    [COLL_PROCESS_DEAD] = "dead",
};

#define WORD_OF(words, number) \
    ((number) < sizeof(words) / sizeof(*(words)) ? (words)[number] : NULL)

const char *coll_dump_word(enum coll_word_list list, uint32_t number)
{
    switch (list) {
    case COLL_WORDS_KIND:
        return number < SW_COLL_KINDS ? sw_coll_kind_name((enum sw_coll_kind)number)
                                      : WORD_OF(recorded_words, number - SW_COLL_KINDS);
    case COLL_WORDS_TYPE:
        return sw_coll_type_name((enum sw_coll_type)number);
    case COLL_WORDS_OP:
        return sw_coll_op_name((enum sw_coll_op)number);
    case COLL_WORDS_PLAN:
        return coll_plan_name((enum coll_plan)number);
    case COLL_WORDS_STATUS:
        return WORD_OF(status_words, number);
    case COLL_WORDS_ACTIVITY:
        return WORD_OF(activity_words, number);
    case COLL_WORDS_ORDER:
        return WORD_OF(order_words, number);
    case COLL_WORDS_WHY:
        return WORD_OF(why_words, number);
    case COLL_WORDS_PROCESS:
        return WORD_OF(process_words, number);
    }
    return NULL;
}

uint32_t coll_dump_number(enum coll_word_list list, const char *word)
{
    enum { MORE_THAN_ANY = 64 };
    for (uint32_t number = 0; word && number < MORE_THAN_ANY; number++) {
        const char *known = coll_dump_word(list, number);
        if (known && !strcmp(known, word))
            return number;
    }
    return UINT32_MAX;
}
