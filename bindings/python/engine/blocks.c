/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of blocks: evenly spaced, or by an array of their numbers, which becomes extents here. */
#include <stdlib.h>

#include "module.h"

/* As the caller says it; what is 0 is filled in. */
struct wish {
    uint32_t part;
    unsigned long long bytes, stride, offset, count;
    PyObject *index; /* NULL: evenly spaced */
};

struct extents {
    struct sw_xfer_extent *all;
    uint32_t count;
};

static bool fill_in(struct wish *wish, uint64_t total)
{
    if (wish->offset >= total || wish->bytes > total - wish->offset) {
        py_raise(SW_XFER_INVALID, "the first block does not lie within");
        return false;
    }
    if (!wish->bytes && (wish->index || wish->count > 1 || wish->stride)) {
        py_raise(SW_XFER_INVALID, "how many bytes has a block?");
        return false;
    }
    if (!wish->bytes)
        wish->bytes = total - wish->offset;
    if (!wish->stride)
        wish->stride = wish->bytes;
    if (!wish->count && !wish->index)
        wish->count = (total - wish->offset - wish->bytes) / wish->stride + 1;
    return true;
}

/* Numbers that follow each other are one extent. */
static bool python_add_block(struct extents *extents, const struct wish *wish, uint64_t number)
{
    uint64_t offset;
    if (__builtin_mul_overflow(wish->stride, number, &offset) ||
        __builtin_add_overflow(offset, wish->offset, &offset))
        return false;
    struct sw_xfer_extent *last = extents->count ? &extents->all[extents->count - 1] : NULL;
    if (last && offset > last->offset && offset - last->offset == last->count * wish->stride)
        last->count++;
    else
        extents->all[extents->count++] = (struct sw_xfer_extent){.part = wish->part,
                                                                 .offset = offset,
                                                                 .bytes = wish->bytes,
                                                                 .stride = wish->stride,
                                                                 .count = 1};
    return true;
}

static bool blocks_make_extents(struct extents *extents, const struct wish *wish)
{
    struct py_index index = {.count = 1};
    *extents = (struct extents){.all = NULL};
    if (wish->index && !py_index_take(wish->index, &index))
        return false;
    extents->all = malloc(index.count * sizeof(*extents->all));
    bool is_fine = extents->all;
    if (is_fine && !wish->index)
        extents->all[extents->count++] = (struct sw_xfer_extent){.part = wish->part,
                                                                 .offset = wish->offset,
                                                                 .bytes = wish->bytes,
                                                                 .stride = wish->stride,
                                                                 .count = wish->count};
    for (uint32_t i = 0; is_fine && wish->index && i < index.count; i++)
        is_fine = python_add_block(extents, wish, index.values[i]);
    py_index_drop(&index);
    if (is_fine)
        return true;
    if (extents->all)
        py_raise(SW_XFER_INVALID, "a block number is too large");
    else
        PyErr_NoMemory();
    free(extents->all);
    return false;
}

/* ---- which region of a card ---- */

bool py_find_region(PyObject *card, PyObject *region, uint32_t *part, uint64_t *total)
{
    struct sw_xfer_region found;
    char *bytes;
    Py_ssize_t length;
    enum sw_xfer_status status = SW_XFER_INVALID;
    *part = 0;
    if (PyBytes_AsStringAndSize(card, &bytes, &length))
        return false;
    if (region && PyUnicode_Check(region)) {
        const char *name = PyUnicode_AsUTF8AndSize(region, NULL);
        if (!name)
            return false;
        status = sw_xfer_card_find(bytes, (size_t)length, name, part);
    } else {
        const unsigned long number = region ? PyLong_AsUnsignedLong(region) : 0;
        if (PyErr_Occurred())
            return false;
        *part = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
        status = SW_XFER_OK;
    }
    if (!status)
        status = sw_xfer_card_region(bytes, (size_t)length, *part, &found);
    if (status) {
        py_raise(status, "the card has no such region");
        return false;
    }
    *total = found.bytes;
    return true;
}

/* ---- making them ---- */

static enum sw_xfer_status expand_numbers(struct py_blocks *blocks, struct py_memory *memory,
                                          const struct extents *extents, PyObject *card)
{
    struct py_agent *agent = blocks->agent;
    struct py_stay stay;
    enum sw_xfer_status status = SW_XFER_INVALID;
    char *bytes = NULL;
    Py_ssize_t length = 0;
    if (card && PyBytes_AsStringAndSize(card, &bytes, &length))
        return SW_XFER_SYSTEM;
    if (!py_enter(&stay, agent))
        return SW_XFER_SYSTEM;
    if (blocks->peer)
        status = sw_xfer_blocks_remote(blocks->peer->handle, bytes, (size_t)length, extents->all,
                                       extents->count, &blocks->handle);
    else if (memory->handle)
        status = sw_xfer_blocks_local(agent->handle, &memory->handle, 1, extents->all,
                                      extents->count, &blocks->handle);
    py_leave(&stay);
    if (status)
        py_raise(status, status == SW_XFER_INVALID
                             ? "a block does not lie within its memory or region, or the memory "
                               "was released"
                             : sw_xfer_status_text(status));
    return status;
}

static bool read_words(struct py_memory *memory, PyObject *args, PyObject *words, struct wish *wish,
                       PyObject **region, PyObject **card)
{
    static char *local[] = {"index", "bytes", "stride", "offset", "count", NULL};
    static char *remote[] = {"region", "index", "bytes", "stride", "offset", "count", "card", NULL};
    const bool is_fine =
        memory
            ? PyArg_ParseTupleAndKeywords(args, words, "|OKKKK:blocks", local, &wish->index,
                                          &wish->bytes, &wish->stride, &wish->offset, &wish->count)
            : PyArg_ParseTupleAndKeywords(args, words, "|OOKKKKO:blocks", remote, region,
                                          &wish->index, &wish->bytes, &wish->stride, &wish->offset,
                                          &wish->count, card);
    if (wish->index == Py_None)
        wish->index = NULL;
    return is_fine;
}

PyObject *py_blocks_new(struct py_memory *memory, struct py_peer *peer, PyObject *args,
                        PyObject *words)
{
    struct wish wish = {.part = 0};
    struct extents extents;
    PyObject *region = NULL, *card = Py_None;
    uint64_t total = memory ? memory->data.bytes : 0;
    if (!read_words(memory, args, words, &wish, &region, &card))
        return NULL;
    if (card == Py_None)
        card = peer ? peer->card : NULL;
    if ((peer && !py_find_region(card, region, &wish.part, &total)) || !fill_in(&wish, total) ||
        !blocks_make_extents(&extents, &wish))
        return NULL;
    struct py_blocks *blocks = py_new(py_blocks_type);
    if (blocks) {
        blocks->agent =
            (struct py_agent *)Py_NewRef((PyObject *)(memory ? memory->agent : peer->agent));
        blocks->peer = (struct py_peer *)Py_XNewRef((PyObject *)peer);
        blocks->memories = Py_XNewRef((PyObject *)memory);
        blocks->is_readonly = memory && memory->data.is_readonly;
        if (expand_numbers(blocks, memory, &extents, card)) {
            Py_DECREF((PyObject *)blocks);
            blocks = NULL;
        }
    }
    free(extents.all);
    return (PyObject *)blocks;
}

static void drop_blocks(PyObject *self)
{
    struct py_blocks *blocks = (struct py_blocks *)self;
    struct py_stay stay;
    if (blocks->handle && py_enter_quietly(&stay, blocks->agent)) {
        sw_xfer_blocks_release(blocks->handle);
        py_leave(&stay);
    }
    Py_XDECREF(blocks->memories);
    Py_XDECREF((PyObject *)blocks->peer);
    Py_XDECREF((PyObject *)blocks->agent);
    py_free(self);
}

static Py_ssize_t count_blocks(PyObject *self)
{
    struct py_blocks *blocks = (struct py_blocks *)self;
    struct py_stay stay;
    if (!py_enter(&stay, blocks->agent))
        return -1;
    const uint32_t count = sw_xfer_blocks_count(blocks->handle);
    py_leave(&stay);
    return count;
}

static PyObject *show_blocks(PyObject *self)
{
    static const char *const names[] = {NULL};
    return py_show(self, "Blocks", "count", names);
}

static PyType_Slot slots[] = {
    {Py_tp_repr, show_blocks},
    {Py_tp_dealloc, drop_blocks},
    {Py_sq_length, count_blocks},
    {Py_tp_doc, "A list of blocks, all here or all of one peer: Memory.blocks(), "
                "Agent.blocks(), Peer.blocks(), Peer.blocks_of()."},
    {0},
};

PyType_Spec py_blocks_spec = {.name = "sidewire.Blocks",
                              .basicsize = sizeof(struct py_blocks),
                              .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              .slots = slots};
