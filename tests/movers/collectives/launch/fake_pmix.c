/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libpmix that answers as FAKE_PMIX says, right or wrong: "NAME=VALUE NAME=VALUE" with
 *
 *   init     "refuse", "hang"
 *   rank     of this process
 *   size     "none", "null", "text", or a number; local: the same of this host
 *   put      "refuse"
 *   word     "refuse", "absent", "silent", "null", "number", or what the others get
 *   texts    "none": errors have no words
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pmix.h>

static void *volatile never_told; /* as by a library that may yet tell it */

/* The value of a name; "" without it. The last one stays as it is until the next call. */
static const char *fake_value(const char *name)
{
    static _Thread_local char words[400];
    const char *variable = getenv("FAKE_PMIX");
    char *rest = words;
    snprintf(words, sizeof(words), "%s", variable ? variable : "");
    for (char *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (value && (size_t)(value - word) == strlen(name) && !strncmp(word, name, strlen(name)))
            return value + 1;
    }
    return "";
}

static bool fake_is(const char *name, const char *value)
{
    return !strcmp(fake_value(name), value);
}

pmix_status_t PMIx_Init(pmix_proc_t *proc, pmix_info_t info[], size_t ninfo)
{
    (void)info, (void)ninfo;
    while (fake_is("init", "hang"))
        pause();
    if (fake_is("init", "refuse"))
        return PMIX_ERR_UNREACH;
    strcpy(proc->nspace, "fake");
    proc->rank = (pmix_rank_t)strtoul(fake_value("rank"), NULL, 10);
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Finalize(const pmix_info_t info[], size_t ninfo)
{
    (void)info, (void)ninfo;
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
                       size_t ninfo, pmix_value_t **val)
{
    (void)proc, (void)info, (void)ninfo;
    const char *name = strcmp(key, PMIX_JOB_SIZE) == 0     ? "size"
                       : strcmp(key, PMIX_LOCAL_SIZE) == 0 ? "local"
                                                           : "local_rank";
    const char *value = fake_value(name);
    if (!*value || !strcmp(value, "none"))
        return PMIX_ERR_NOT_FOUND;
    *val = NULL;
    if (!strcmp(value, "null"))
        return PMIX_SUCCESS;
    *val = calloc(1, sizeof(**val));
    const bool is_text = !strcmp(value, "text");
    (*val)->type = is_text ? PMIX_STRING : PMIX_UINT32;
    if (!is_text)
        (*val)->data.uint32 = (uint32_t)strtoul(value, NULL, 10);
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Get_nb(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
                          size_t ninfo, pmix_value_cbfunc_t cbfunc, void *cbdata)
{
    (void)proc, (void)key, (void)info, (void)ninfo;
    char word[400];
    pmix_value_t value = {.type = PMIX_STRING, .data = {.string = word}};
    snprintf(word, sizeof(word), "%s", fake_value("word"));
    if (!strcmp(word, "refuse"))
        return PMIX_ERR_NOT_SUPPORTED;
    if (!strcmp(word, "silent")) {
        never_told = cbdata;
        return PMIX_SUCCESS;
    }
    if (!strcmp(word, "number"))
        value.type = PMIX_UINT32;
    const bool is_absent = !strcmp(word, "absent");
    cbfunc(is_absent ? PMIX_ERR_NOT_FOUND : PMIX_SUCCESS, strcmp(word, "null") ? &value : NULL,
           cbdata);
    return PMIX_SUCCESS;
}

pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *val)
{
    (void)scope, (void)key, (void)val;
    return fake_is("put", "refuse") ? PMIX_ERR_NO_PERMISSIONS : PMIX_SUCCESS;
}

pmix_status_t PMIx_Commit(void)
{
    return PMIX_SUCCESS;
}

const char *PMIx_Error_string(pmix_status_t status)
{
    static _Thread_local char text[40];
    snprintf(text, sizeof(text), "fake error %d", status);
    return fake_is("texts", "none") ? NULL : text;
}
