/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "module.h"

static struct py_agent *all_open; /* under the interpreter's lock */

static struct py_agent *python_agent_of(PyObject *self)
{
    return (struct py_agent *)self;
}

/* ---- opening and closing ---- */

/* A number as it is, a description by its hash. */
static bool read_layout(PyObject *object, uint64_t *layout)
{
    Py_buffer view;
    *layout = 0;
    if (!object || object == Py_None)
        return true;
    if (PyLong_Check(object)) {
        *layout = PyLong_AsUnsignedLongLong(object);
        return !PyErr_Occurred();
    }
    PyObject *bytes = PyUnicode_Check(object) ? PyUnicode_AsUTF8String(object) : Py_NewRef(object);
    const bool is_fine = bytes && !PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE);
    if (is_fine) {
        *layout = sw_xfer_layout(view.buf, (size_t)view.len);
        PyBuffer_Release(&view);
    }
    Py_XDECREF(bytes);
    return is_fine;
}

/* The texts stay those of the tuple, which the caller drops once the agent is open: a list may
 * change while the interpreter's lock is free. */
static bool read_rails(PyObject *rails, struct sw_xfer_agent_options *options, PyObject **tuple)
{
    *tuple = NULL;
    if (!rails || rails == Py_None)
        return true;
    if (!PyList_Check(rails) && !PyTuple_Check(rails)) {
        PyErr_SetString(PyExc_TypeError, "rails is a list or a tuple of addresses");
        return false;
    }
    *tuple = PySequence_Tuple(rails);
    const Py_ssize_t count = *tuple ? PyTuple_Size(*tuple) : -1;
    if (count < 0)
        return false;
    if (count > SW_XFER_ADDRESSES_MAX - 1) {
        PyErr_SetString(PyExc_ValueError, "there are too many rails");
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        options->rails[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(*tuple, i), NULL);
        if (!options->rails[i])
            return false;
    }
    return true;
}

/* A value that is no time is left to its default. */
static uint32_t milliseconds_of(double seconds, uint32_t otherwise)
{
    if (!(seconds > 0))
        return otherwise;
    return seconds < UINT32_MAX / 1000 ? (uint32_t)(seconds * 1e3) : UINT32_MAX;
}

static bool open_handle(struct py_agent *agent, const struct sw_xfer_agent_options *options)
{
    struct sw_xfer_error error;
    struct sw_xfer_agent *handle = NULL;
    PyThreadState *thread = PyEval_SaveThread();
    const enum sw_xfer_status status = sw_xfer_agent_open(options, &error, &handle);
    PyEval_RestoreThread(thread);
    if (status) {
        py_raise(status, error.text);
        return false;
    }
    agent->handle = handle;
    agent->next = all_open;
    all_open = agent;
    return true;
}

static PyObject *new_agent(PyTypeObject *type, PyObject *args, PyObject *words)
{
    static char *names[] = {"address",
                            "port",
                            "layout",
                            "visitors",
                            "notices",
                            "depth",
                            "window",
                            "connect_timeout",
                            "stall_timeout",
                            "drain_timeout",
                            "spin_us",
                            "rails",
                            NULL};
    struct sw_xfer_agent_options options;
    PyObject *port = NULL, *layout = NULL, *rails = NULL, *rails_tuple = NULL;
    double connect_s = 0, stall_s = 0, drain_s = 0;
    sw_xfer_agent_options_init(&options);
    if (!PyArg_ParseTupleAndKeywords(args, words, "|zOO$IIIIdddIO:Agent", names, &options.address,
                                     &port, &layout, &options.visitors_max, &options.notices_max,
                                     &options.queue_depth, &options.window_bytes, &connect_s,
                                     &stall_s, &drain_s, &options.spin_us, &rails) ||
        !read_layout(layout, &options.layout) || !read_rails(rails, &options, &rails_tuple)) {
        Py_XDECREF(rails_tuple);
        return NULL;
    }
    options.connect_timeout_ms = milliseconds_of(connect_s, options.connect_timeout_ms);
    options.stall_timeout_ms = milliseconds_of(stall_s, options.stall_timeout_ms);
    options.drain_timeout_ms = milliseconds_of(drain_s, options.drain_timeout_ms);
    PyObject *text = port && port != Py_None ? PyObject_Str(port) : NULL;
    PyObject *bytes = text ? PyUnicode_AsASCIIString(text) : NULL;
    Py_XDECREF(text);
    options.port = bytes ? PyBytes_AsString(bytes) : NULL;
    struct py_agent *agent = PyErr_Occurred() ? NULL : py_new(type);
    if (agent) {
        pthread_mutex_init(&agent->lock, NULL);
        agent->generation = py_generation();
        agent->spin_us = options.spin_us;
        agent->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
        agent->leases = PySet_New(NULL);
        if (!agent->leases || !open_handle(agent, &options))
            Py_CLEAR(agent);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(rails_tuple);
    return (PyObject *)agent;
}

static void close_agent(struct py_agent *agent)
{
    struct py_stay stay;
    for (struct py_agent **at = &all_open; *at; at = &(*at)->next)
        if (*at == agent) {
            *at = agent->next;
            break;
        }
    if (py_enter_quietly(&stay, agent)) {
        struct sw_xfer_agent *handle = agent->handle;
        agent->handle = NULL;
        sw_xfer_agent_close(handle);
        py_leave(&stay);
        py_kick(agent);
    }
    if (py_is_forked(agent))
        agent->handle = NULL; /* the parent's */
    if (agent->leases)
        PySet_Clear(agent->leases);
}

static PyObject *agent_close(PyObject *self, PyObject *none)
{
    (void)none;
    close_agent(python_agent_of(self));
    Py_RETURN_NONE;
}

PyObject *py_agents_close(PyObject *module, PyObject *none)
{
    (void)module;
    (void)none;
    py_end();
    py_pipes_close();
    while (all_open) {
        struct py_agent *agent = (struct py_agent *)Py_NewRef((PyObject *)all_open);
        close_agent(agent);
        Py_DECREF((PyObject *)agent);
    }
    Py_RETURN_NONE;
}

static void drop_agent(PyObject *self)
{
    struct py_agent *agent = python_agent_of(self);
    if (agent->handle)
        close_agent(agent);
    if (agent->kick_fd > 0)
        close(agent->kick_fd);
    Py_XDECREF(agent->leases);
    Py_XDECREF(agent->watcher);
    py_free(self);
}

static PyObject *agent_enter(PyObject *self, PyObject *none)
{
    (void)none;
    return Py_NewRef(self);
}

static PyObject *agent_exit(PyObject *self, PyObject *args)
{
    (void)args;
    return agent_close(self, NULL);
}

/* ---- going on ---- */

static PyObject *agent_poll(PyObject *self, PyObject *none)
{
    (void)none;
    struct py_stay stay;
    if (!py_enter(&stay, python_agent_of(self)))
        return NULL;
    sw_xfer_poll(stay.agent->handle);
    py_leave(&stay);
    Py_RETURN_NONE;
}

static PyObject *agent_arm(PyObject *self, PyObject *none)
{
    (void)none;
    struct py_stay stay;
    if (!py_enter(&stay, python_agent_of(self)))
        return NULL;
    const bool is_armed = sw_xfer_arm(stay.agent->handle);
    py_leave(&stay);
    return PyBool_FromLong(is_armed);
}

static PyObject *agent_fileno(PyObject *self, PyObject *none)
{
    (void)none;
    struct py_stay stay;
    if (!py_enter(&stay, python_agent_of(self)))
        return NULL;
    const int fd = sw_xfer_fd(stay.agent->handle);
    py_leave(&stay);
    return PyLong_FromLong(fd);
}

static bool never_ready(void *arg)
{
    (void)arg;
    return false;
}

static PyObject *agent_run(PyObject *self, PyObject *args, PyObject *words)
{
    uint64_t deadline_ns;
    if (!py_seconds(args, words, "seconds", &deadline_ns) ||
        py_wait(python_agent_of(self), never_ready, NULL, deadline_ns) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- cards, memory, peers ---- */

static enum sw_xfer_status agent_write_card(struct py_agent *agent, struct py_lease *const *leases,
                                            uint32_t count, char **bytes, size_t *length)
{
    struct sw_xfer_lease *handles[SW_XFER_REGIONS_MAX];
    struct py_stay stay;
    enum sw_xfer_status status = SW_XFER_OK;
    *bytes = NULL;
    if (!py_enter_quietly(&stay, agent))
        return SW_XFER_INVALID;
    for (uint32_t i = 0; i < count; i++) {
        handles[i] = leases[i]->handle;
        if (!handles[i])
            status = SW_XFER_INVALID;
    }
    if (!status)
        status = sw_xfer_card_make(agent->handle, handles, count, NULL, 0, length);
    if (!status && !(*bytes = malloc(*length)))
        status = SW_XFER_NO_MEMORY;
    if (!status)
        status = sw_xfer_card_make(agent->handle, handles, count, *bytes, *length, length);
    py_leave(&stay);
    return status;
}

static PyObject *agent_card(PyObject *self, PyObject *args)
{
    struct py_lease *leases[SW_XFER_REGIONS_MAX];
    const Py_ssize_t count = PyTuple_Size(args);
    char *bytes;
    size_t length;
    if (count > SW_XFER_REGIONS_MAX)
        return py_raise(SW_XFER_INVALID, "a card has up to 256 leases");
    for (Py_ssize_t i = 0; i < count; i++) {
        leases[i] = (struct py_lease *)PyTuple_GetItem(args, i);
        if (!PyObject_TypeCheck((PyObject *)leases[i], py_lease_type)) {
            PyErr_SetString(PyExc_TypeError, "a card is made of leases");
            return NULL;
        }
        if (leases[i]->memory->agent != python_agent_of(self))
            return py_raise(SW_XFER_INVALID, "a lease is of another agent");
    }
    const enum sw_xfer_status status =
        agent_write_card(python_agent_of(self), leases, (uint32_t)count, &bytes, &length);
    PyObject *made = status ? py_raise(status, "no card: the agent has no address or is closed, or "
                                               "a lease has ended")
                            : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
    free(bytes);
    PyObject *card = made ? py_call("sidewire.card", "Card", made) : NULL;
    Py_XDECREF(made);
    return card;
}

static PyObject *agent_memory(PyObject *self, PyObject *object)
{
    return py_memory_new(python_agent_of(self), object);
}

static PyObject *agent_blocks(PyObject *self, PyObject *args, PyObject *words)
{
    return py_blocks_of_memories(python_agent_of(self), args, words);
}

static PyObject *agent_file(PyObject *self, PyObject *args, PyObject *words)
{
    return py_memory_file(python_agent_of(self), args, words);
}

static PyObject *agent_dmabuf(PyObject *self, PyObject *args, PyObject *words)
{
    return py_memory_dmabuf(python_agent_of(self), args, words);
}

static PyObject *agent_connect(PyObject *self, PyObject *args, PyObject *words)
{
    return py_peer_new(python_agent_of(self), args, words);
}

/* ---- notices ---- */

static PyTypeObject *notice_type;

bool py_notice_make_type(PyObject *module)
{
    static PyStructSequence_Field fields[] = {{"data", "the bytes"},
                                              {"visitor", "the number of the visitor that sent it"},
                                              {"instance", "of the sender's agent"},
                                              {0}};
    static PyStructSequence_Desc notice = {"sidewire.Notice", "What a peer sent.", fields, 3};
    notice_type = PyStructSequence_NewType(&notice);
    return notice_type && !PyModule_AddObjectRef(module, "Notice", (PyObject *)notice_type);
}

struct wanted {
    struct py_agent *agent;
    Py_buffer match; /* of these bytes */
    uint64_t visitor;
    struct sw_xfer_notice notice;
};

static bool has_notice(void *arg)
{
    struct wanted *wanted = arg;
    struct sw_xfer_agent *agent = wanted->agent->handle;
    return !(wanted->match.obj ? sw_xfer_notice_match(agent, wanted->visitor, wanted->match.buf,
                                                      (uint32_t)wanted->match.len, &wanted->notice)
                               : sw_xfer_notice_take(agent, &wanted->notice));
}

static PyObject *tell_notice(const struct sw_xfer_notice *notice)
{
    PyObject *told = PyStructSequence_New(notice_type);
    if (!told)
        return NULL;
    PyStructSequence_SetItem(told, 0,
                             PyBytes_FromStringAndSize((const char *)notice->data, notice->bytes));
    PyStructSequence_SetItem(told, 1, PyLong_FromUnsignedLongLong(notice->visitor));
    PyStructSequence_SetItem(
        told, 2,
        PyBytes_FromStringAndSize((const char *)notice->instance, sizeof(notice->instance)));
    if (PyErr_Occurred())
        Py_CLEAR(told);
    return told;
}

static PyObject *agent_notice(PyObject *self, PyObject *args, PyObject *words)
{
    static char *names[] = {"timeout", "match", "visitor", NULL};
    struct wanted wanted = {.agent = python_agent_of(self)};
    PyObject *seconds = NULL;
    unsigned long long visitor = 0;
    uint64_t deadline_ns = 0;
    int got = -1;
    if (!PyArg_ParseTupleAndKeywords(args, words, "|O$y*K:notice", names, &seconds, &wanted.match,
                                     &visitor))
        return NULL;
    wanted.visitor = visitor;
    if (visitor && !wanted.match.obj)
        py_raise(SW_XFER_INVALID, "a visitor is looked for together with the bytes of a notice");
    else if (py_deadline(seconds, &deadline_ns))
        got = py_wait(wanted.agent, has_notice, &wanted, deadline_ns);
    if (wanted.match.obj)
        PyBuffer_Release(&wanted.match);
    if (got > 0)
        return tell_notice(&wanted.notice);
    return got < 0 ? NULL : py_raise(SW_XFER_TIMEOUT, "no such notice has come");
}

static PyObject *agent_try_notice(PyObject *self, PyObject *none)
{
    (void)none;
    struct py_stay stay;
    struct sw_xfer_notice notice;
    if (!py_enter(&stay, python_agent_of(self)))
        return NULL;
    const enum sw_xfer_status status = sw_xfer_notice_take(stay.agent->handle, &notice);
    py_leave(&stay);
    if (status == SW_XFER_AGAIN)
        Py_RETURN_NONE;
    return status ? py_raise(status, sw_xfer_status_text(status)) : tell_notice(&notice);
}

static PyObject *agent_next_notice(PyObject *self, PyObject *none)
{
    (void)none;
    return py_call("sidewire.aio", "next_notice", self);
}

/* ---- what it is ---- */

static PyObject *get_instance(PyObject *self, void *none)
{
    (void)none;
    struct py_stay stay;
    uint8_t instance[SW_XFER_INSTANCE_BYTES];
    if (!py_enter(&stay, python_agent_of(self)))
        return NULL;
    sw_xfer_agent_instance(stay.agent->handle, instance);
    py_leave(&stay);
    return PyBytes_FromStringAndSize((const char *)instance, sizeof(instance));
}

static PyObject *get_visitors(PyObject *self, void *none)
{
    (void)none;
    struct py_stay stay;
    if (!py_enter(&stay, python_agent_of(self)))
        return NULL;
    const uint32_t count = sw_xfer_visitors(stay.agent->handle);
    py_leave(&stay);
    return PyLong_FromUnsignedLong(count);
}

/* A bool for each address, in their order. */
static PyObject *get_listening(PyObject *self, void *none)
{
    (void)none;
    struct py_stay stay;
    bool listens[SW_XFER_ADDRESSES_MAX];
    if (!py_enter(&stay, python_agent_of(self)))
        return NULL;
    const uint32_t count = sw_xfer_addresses(stay.agent->handle);
    for (uint32_t i = 0; i < count; i++)
        listens[i] = sw_xfer_listens(stay.agent->handle, i, NULL);
    py_leave(&stay);
    PyObject *tuple = PyTuple_New(count);
    for (uint32_t i = 0; tuple && i < count; i++)
        if (PyTuple_SetItem(tuple, i, PyBool_FromLong(listens[i])))
            Py_CLEAR(tuple);
    return tuple;
}

static PyObject *get_closed(PyObject *self, void *none)
{
    (void)none;
    return PyBool_FromLong(!python_agent_of(self)->handle);
}

static PyObject *get_watcher(PyObject *self, void *none)
{
    (void)none;
    PyObject *watcher = python_agent_of(self)->watcher;
    return Py_NewRef(watcher ? watcher : Py_None);
}

static int set_watcher(PyObject *self, PyObject *value, void *none)
{
    (void)none;
    PyObject *before = python_agent_of(self)->watcher;
    python_agent_of(self)->watcher = Py_XNewRef(value);
    Py_XDECREF(before);
    return 0;
}

static PyGetSetDef members[] = {
    {"instance", get_instance, NULL, "16 random bytes: another agent has others.", NULL},
    {"visitors", get_visitors, NULL, "How many peers are connected to it.", NULL},
    {"listening", get_listening, NULL,
     "Whether it listens at each of its addresses: not while one is away.", NULL},
    {"closed", get_closed, NULL, "Whether it was closed.", NULL},
    {"_watcher", get_watcher, set_watcher, NULL, NULL},
    {0},
};

#define WORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"close", agent_close, METH_NOARGS, "Ends all connections and all that belongs to it."},
    {"poll", agent_poll, METH_NOARGS, "Handles what has come; never sleeps."},
    {"arm", agent_arm, METH_NOARGS, "Whether fileno() becomes readable when something comes."},
    {"fileno", agent_fileno, METH_NOARGS, "A descriptor for epoll."},
    {"run", WORDS(agent_run), METH_VARARGS | METH_KEYWORDS,
     "run(seconds=None): serves peers for so long."},
    {"card", agent_card, METH_VARARGS, "card(*leases): what a peer must know."},
    {"memory", agent_memory, METH_O, "memory(array): its memory, not copied."},
    {"blocks", WORDS(agent_blocks), METH_VARARGS | METH_KEYWORDS,
     "blocks(memories, extents): extents are (part, offset, bytes, stride, count), and a part is a "
     "place in `memories`."},
    {"file", WORDS(agent_file), METH_VARARGS | METH_KEYWORDS,
     "file(file, offset=0, bytes=0, writable=False): a file, mapped."},
    {"dmabuf", WORDS(agent_dmabuf), METH_VARARGS | METH_KEYWORDS,
     "dmabuf(file, bytes, offset=0): a DMA buffer of a device's driver, not mapped."},
    {"connect", WORDS(agent_connect), METH_VARARGS | METH_KEYWORDS,
     "connect(card, timeout=None, wait=True): a peer."},
    {"notice", WORDS(agent_notice), METH_VARARGS | METH_KEYWORDS,
     "notice(timeout=None, *, match=None, visitor=0): waits for one."},
    {"try_notice", agent_try_notice, METH_NOARGS, "A notice, or None if there is none yet."},
    {"next_notice", agent_next_notice, METH_NOARGS, "An awaitable of a notice."},
    {"__enter__", agent_enter, METH_NOARGS, NULL},
    {"__exit__", agent_exit, METH_VARARGS, NULL},
    {0},
};

static PyObject *show_agent(PyObject *self)
{
    static const char *const names[] = {"closed", "visitors", "listening", NULL};
    return py_show(self, "Agent", NULL, names);
}

static PyType_Slot slots[] = {
    {Py_tp_repr, show_agent},
    {Py_tp_new, new_agent},
    {Py_tp_dealloc, drop_agent},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_tp_doc, "Agent(address=None, port=None, layout=None, ...): what this process takes part "
                "with."},
    {0},
};

PyType_Spec py_agent_spec = {.name = "sidewire.Agent",
                             .basicsize = sizeof(struct py_agent),
                             .flags = Py_TPFLAGS_DEFAULT,
                             .slots = slots};
