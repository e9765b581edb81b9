/* SPDX-License-Identifier: BSD-2-Clause */
/* Diagnostics to stderr, filtered by SIDEWIRE_LOG=error|warn|info|debug (default warn).
 * Thread-safe, async-signal-unsafe. */
#ifndef SW_BASE_LOG_H
#define SW_BASE_LOG_H

enum sw_log_level { SW_LOG_ERROR, SW_LOG_WARN, SW_LOG_INFO, SW_LOG_DEBUG };

/* Writes one line "sidewire[PID]: text"; keeps errno. */
void sw_log(enum sw_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum sw_log_level sw_log_threshold(void);

#define sw_error(...) sw_log(SW_LOG_ERROR, __VA_ARGS__)
#define sw_warn(...) sw_log(SW_LOG_WARN, __VA_ARGS__)
#define sw_info(...) sw_log(SW_LOG_INFO, __VA_ARGS__)
#define sw_debug(...)                           \
    do {                                        \
        if (sw_log_threshold() >= SW_LOG_DEBUG) \
            sw_log(SW_LOG_DEBUG, __VA_ARGS__);  \
    } while (0)

#endif
