/* SPDX-License-Identifier: BSD-2-Clause */
/* Plans of two layouts, and lists of blocks in several memories or regions, as plans need them. */
#include <stdlib.h>

#include "module.h"
#include "sidewire/transfer_plan.h"

static bool read_table(PyObject *object, uint32_t **table, uint32_t *count)
{
    struct py_index index;
    *table = NULL;
    *count = 0;
    if (object == Py_None)
        return true;
    if (!py_index_take(object, &index))
        return false;
    *table = malloc(index.count * sizeof(**table));
    for (uint32_t i = 0; *table && i < index.count; i++) /* what is too large is no block either */
        (*table)[i] = index.values[i] < UINT32_MAX ? (uint32_t)index.values[i] : UINT32_MAX;
    *count = index.count;
    py_index_drop(&index);
    if (!*table)
        PyErr_NoMemory();
    return *table;
}

static bool read_model(PyObject *tuple, struct sw_plan_model *model)
{
    return PyArg_ParseTuple(tuple, "IIIII:model", &model->layers, &model->planes, &model->heads,
                            &model->head_elements, &model->element_bytes);
}

/* The order belongs to the tuple, the table to the caller. */
static bool read_side(PyObject *tuple, struct sw_plan_side *side, uint32_t **table)
{
    PyObject *blocks_of_tokens;
    *table = NULL;
    if (!PyArg_ParseTuple(tuple, "sIIIIIIO:side", &side->order, &side->ranks, &side->rank,
                          &side->layer_first, &side->layers, &side->block_tokens, &side->blocks,
                          &blocks_of_tokens) ||
        !read_table(blocks_of_tokens, table, &side->table_count))
        return false;
    side->table = *table;
    return true;
}

static PyObject *list_extents(const struct sw_xfer_extent *extents, uint32_t count)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *one = Py_BuildValue("IKKKK", extents[i].part, extents[i].offset, extents[i].bytes,
                                      extents[i].stride, extents[i].count);
        if (!one || PyList_Append(list, one))
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *say_plan(const struct sw_plan *plan)
{
    PyObject *source = list_extents(plan->source, plan->source_count);
    PyObject *target = list_extents(plan->target, plan->target_count);
    PyObject *said =
        source && target ? Py_BuildValue("OOIK", source, target, plan->blocks, plan->bytes) : NULL;
    Py_XDECREF(source);
    Py_XDECREF(target);
    return said;
}

PyObject *py_reshard(PyObject *module, PyObject *args)
{
    (void)module;
    struct sw_plan_model model;
    struct sw_plan_side source = {.order = NULL}, target = {.order = NULL};
    PyObject *model_tuple, *source_tuple, *target_tuple, *said = NULL;
    uint32_t *source_table = NULL, *target_table = NULL;
    unsigned long long first, tokens;
    struct sw_xfer_error error;
    struct sw_plan plan;
    if (!PyArg_ParseTuple(args, "O!O!O!KK:reshard", &PyTuple_Type, &model_tuple, &PyTuple_Type,
                          &source_tuple, &PyTuple_Type, &target_tuple, &first, &tokens) ||
        !read_model(model_tuple, &model))
        return NULL;
    if (read_side(source_tuple, &source, &source_table) &&
        read_side(target_tuple, &target, &target_table)) {
        if (sw_plan_reshard(&model, &source, &target, first, tokens, &error, &plan)) {
            py_raise(error.status, error.text);
        } else {
            said = say_plan(&plan);
            sw_plan_free(&plan);
        }
    }
    free(source_table);
    free(target_table);
    return said;
}

PyObject *py_plan_memory(PyObject *module, PyObject *args)
{
    (void)module;
    struct sw_plan_model model;
    struct sw_plan_side side = {.order = NULL};
    PyObject *model_tuple, *side_tuple;
    struct sw_xfer_error error;
    uint32_t parts, *table;
    uint64_t bytes;
    if (!PyArg_ParseTuple(args, "O!O!:plan_memory", &PyTuple_Type, &model_tuple, &PyTuple_Type,
                          &side_tuple) ||
        !read_model(model_tuple, &model) || !read_side(side_tuple, &side, &table))
        return NULL;
    free(table);
    if (sw_plan_memory(&model, &side, &error, &parts, &bytes))
        return py_raise(error.status, error.text);
    return Py_BuildValue("IK", parts, bytes);
}

/* ---- blocks of extents ---- */

static bool read_extent(PyObject *tuple, struct sw_xfer_extent *extent)
{
    unsigned long long offset, bytes, stride, count;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "an extent is (part, offset, bytes, stride, count)");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "IKKKK:extent", &extent->part, &offset, &bytes, &stride, &count))
        return false;
    extent->offset = offset;
    extent->bytes = bytes;
    extent->stride = stride;
    extent->count = count;
    return true;
}

/* A number's __index__() may run anything, also what makes a list shorter: so this is a tuple. */
static struct sw_xfer_extent *read_extents(PyObject *tuple, uint32_t *count)
{
    const Py_ssize_t size = PyTuple_Size(tuple);
    if (size < 1) {
        if (!PyErr_Occurred())
            py_raise(SW_XFER_INVALID, "there has to be at least one extent");
        return NULL;
    }
    struct sw_xfer_extent *extents = calloc((size_t)size, sizeof(*extents));
    bool is_fine = extents;
    for (Py_ssize_t i = 0; is_fine && i < size; i++)
        is_fine = read_extent(PyTuple_GetItem(tuple, i), &extents[i]);
    if (!extents)
        PyErr_NoMemory();
    if (!is_fine) {
        free(extents);
        return NULL;
    }
    *count = (uint32_t)size;
    return extents;
}

/* The memories of the tuple. It holds them, but not their handles, which another thread may release
 * until this one is within the agent. */
struct memories {
    struct py_memory **all;
    struct sw_xfer_memory **handles;
    uint32_t count;
};

static void drop_memories(struct memories *memories)
{
    free(memories->all);
    free(memories->handles);
}

static bool take_memories(struct py_blocks *blocks, struct memories *memories)
{
    const Py_ssize_t size = PyTuple_Size(blocks->memories);
    *memories = (struct memories){.count = (uint32_t)size};
    memories->all = calloc((size_t)size + 1, sizeof(*memories->all)); /* + 1: never of no size */
    memories->handles = calloc((size_t)size + 1, sizeof(*memories->handles));
    bool is_fine = memories->all && memories->handles && size > 0;
    for (Py_ssize_t i = 0; is_fine && i < size; i++) {
        PyObject *item = PyTuple_GetItem(blocks->memories, i);
        memories->all[i] = (struct py_memory *)item;
        is_fine = Py_TYPE(item) == py_memory_type && memories->all[i]->agent == blocks->agent;
        if (is_fine)
            blocks->is_readonly |= memories->all[i]->data.is_readonly;
    }
    return is_fine;
}

/* Within the agent. */
static bool take_handles(struct memories *memories)
{
    for (uint32_t i = 0; i < memories->count; i++) {
        memories->handles[i] = memories->all[i]->handle;
        if (!memories->handles[i])
            return false;
    }
    return true;
}

static enum sw_xfer_status make_local(struct py_blocks *blocks,
                                      const struct sw_xfer_extent *extents, uint32_t count)
{
    struct py_agent *agent = blocks->agent;
    struct py_stay stay;
    struct memories memories;
    bool are_memories = take_memories(blocks, &memories);
    enum sw_xfer_status status = SW_XFER_INVALID;
    if (are_memories && py_enter(&stay, agent)) {
        are_memories = take_handles(&memories);
        if (are_memories)
            status = sw_xfer_blocks_local(agent->handle, memories.handles, memories.count, extents,
                                          count, &blocks->handle);
        py_leave(&stay);
    }
    if (status && !PyErr_Occurred())
        py_raise(status, are_memories ? sw_xfer_status_text(status)
                                      : "there have to be memories of this agent, none released");
    drop_memories(&memories);
    return status;
}

/* Agent.blocks(memories, extents) */
PyObject *py_blocks_of_memories(struct py_agent *agent, PyObject *args, PyObject *words)
{
    static char *names[] = {"memories", "extents", NULL};
    PyObject *memories, *list;
    uint32_t count;
    if (!PyArg_ParseTupleAndKeywords(args, words, "OO:blocks", names, &memories, &list))
        return NULL;
    memories = PySequence_Tuple(memories);
    PyObject *tuple = memories ? PySequence_Tuple(list) : NULL;
    struct sw_xfer_extent *extents = tuple ? read_extents(tuple, &count) : NULL;
    struct py_blocks *blocks = extents ? py_new(py_blocks_type) : NULL;
    if (blocks) {
        blocks->agent = (struct py_agent *)Py_NewRef((PyObject *)agent);
        blocks->memories = Py_NewRef(memories);
        if (make_local(blocks, extents, count)) {
            Py_DECREF((PyObject *)blocks);
            blocks = NULL;
        }
    }
    free(extents);
    Py_XDECREF(tuple);
    Py_XDECREF(memories);
    return (PyObject *)blocks;
}

/* Their parts become regions of the card. */
static bool name_regions(PyObject *card, PyObject *regions, struct sw_xfer_extent *extents,
                         uint32_t count)
{
    const Py_ssize_t size = PyTuple_Size(regions);
    uint32_t *numbers = size > 0 ? calloc((size_t)size, sizeof(*numbers)) : NULL;
    uint64_t total;
    bool is_fine = numbers;
    if (!numbers)
        py_raise(SW_XFER_INVALID, "there has to be at least one region");
    for (Py_ssize_t i = 0; is_fine && i < size; i++)
        is_fine = py_find_region(card, PyTuple_GetItem(regions, i), &numbers[i], &total);
    for (uint32_t i = 0; is_fine && i < count; i++) {
        is_fine = extents[i].part < (size_t)size;
        if (is_fine)
            extents[i].part = numbers[extents[i].part];
        else
            py_raise(SW_XFER_INVALID, "an extent has a part without a region");
    }
    free(numbers);
    return is_fine;
}

static enum sw_xfer_status make_remote(struct py_blocks *blocks, PyObject *card,
                                       const struct sw_xfer_extent *extents, uint32_t count)
{
    struct py_stay stay;
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(card, &bytes, &length) || !py_enter(&stay, blocks->agent))
        return SW_XFER_SYSTEM;
    const enum sw_xfer_status status = sw_xfer_blocks_remote(
        blocks->peer->handle, bytes, (size_t)length, extents, count, &blocks->handle);
    py_leave(&stay);
    if (status)
        py_raise(status, sw_xfer_status_text(status));
    return status;
}

/* Peer.blocks_of(regions, extents, card=None) */
PyObject *py_blocks_of_regions(struct py_peer *peer, PyObject *args, PyObject *words)
{
    static char *names[] = {"regions", "extents", "card", NULL};
    PyObject *regions, *list, *card = Py_None;
    uint32_t count;
    if (!PyArg_ParseTupleAndKeywords(args, words, "OO|O:blocks_of", names, &regions, &list, &card))
        return NULL;
    if (card == Py_None)
        card = peer->card;
    regions = PySequence_Tuple(regions);
    PyObject *tuple = regions ? PySequence_Tuple(list) : NULL;
    struct sw_xfer_extent *extents = tuple ? read_extents(tuple, &count) : NULL;
    struct py_blocks *blocks = NULL;
    if (extents && name_regions(card, regions, extents, count))
        blocks = py_new(py_blocks_type);
    if (blocks) {
        blocks->agent = (struct py_agent *)Py_NewRef((PyObject *)peer->agent);
        blocks->peer = (struct py_peer *)Py_NewRef((PyObject *)peer);
        if (make_remote(blocks, card, extents, count)) {
            Py_DECREF((PyObject *)blocks);
            blocks = NULL;
        }
    }
    free(extents);
    Py_XDECREF(tuple);
    Py_XDECREF(regions);
    return (PyObject *)blocks;
}
