/* SPDX-License-Identifier: BSD-2-Clause */
/* How objects are shown: <sidewire.Memory bytes=4096 kind='host' readonly=False>. */
#include "module.h"

/* One more " name=value". An attribute that cannot be told now, as of a closed agent, is left out;
 * NULL where there is no memory. Takes `text`. */
static PyObject *repr_append(PyObject *text, const char *name, PyObject *value)
{
    PyObject *longer = text;
    if (!value) {
        PyErr_Clear();
        return text;
    }
    longer = PyUnicode_FromFormat("%U %s=%R", text, name, value);
    Py_DECREF(text);
    Py_DECREF(value);
    return longer;
}

PyObject *py_show(PyObject *self, const char *type, const char *length, const char *const *names)
{
    PyObject *text = PyUnicode_FromFormat("<sidewire.%s", type);
    if (text && length) {
        const Py_ssize_t count = PyObject_Size(self);
        text = repr_append(text, length, count < 0 ? NULL : PyLong_FromSsize_t(count));
    }
    for (; text && *names; names++)
        text = repr_append(text, *names, PyObject_GetAttrString(self, *names));
    if (!text)
        return NULL;
    PyObject *whole = PyUnicode_FromFormat("%U>", text);
    Py_DECREF(text);
    return whole;
}
