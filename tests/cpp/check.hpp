// SPDX-License-Identifier: BSD-2-Clause
// cmocka for C++. It comes last: it has macros with common names.
#ifndef TESTS_CPP_CHECK_HPP
#define TESTS_CPP_CHECK_HPP

#include <system_error>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

// The error that `action` throws; none if it does not.
template <class Action> std::error_code code_of(Action action, std::string *text = nullptr)
{
    try {
        action();
    } catch (const std::system_error &error) {
        if (text)
            *text = error.what();
        return error.code();
    }
    return {};
}

#endif
