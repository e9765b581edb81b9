/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/adopt/adopt_config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static struct sw_adopt_config config;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

bool sw_adopt_parse_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno)
        return false;
    unsigned int shift = 0;
    if (*end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (!unit || end[1])
            return false;
        shift = 10 * (unsigned int)(unit - units + 1);
    }
    if (number > UINT64_MAX >> shift)
        return false;
    *bytes = (uint64_t)number << shift;
    return true;
}

/* True if the file of /sys/kernel/mm/transparent_hugepage has `choice` selected, as in "a [b] c".
 */
static bool thp_selected(const char *path, const char *choice)
{
    char text[128];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    return strstr(text, choice) != NULL;
}

static void config_read(void)
{
    const char *wanted = getenv("SIDEWIRE_ADOPT");
    config.enabled = !wanted || strcmp(wanted, "never") != 0;
    if (wanted && config.enabled && *wanted && strcmp(wanted, "auto") != 0)
        sw_warn("SIDEWIRE_ADOPT=%s is neither auto nor never: taken as auto", wanted);

    config.max_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
    const char *max = getenv("SIDEWIRE_ADOPT_MAX");
    if (max && *max && !sw_adopt_parse_size(max, &config.max_bytes))
        sw_warn("SIDEWIRE_ADOPT_MAX=%s is not a number of bytes (as 64M): ignored", max);

    config.large_pages =
        !thp_selected("/sys/kernel/mm/transparent_hugepage/enabled", "[never]") &&
        !thp_selected("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "[deny]");
}

const struct sw_adopt_config *sw_adopt_config(void)
{
    pthread_once(&config_once, config_read);
    return &config;
}
