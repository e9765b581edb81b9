/* SPDX-License-Identifier: BSD-2-Clause */
/* What the management library says of the device: driver, links, MIG's profiles, PCIe, NUMA. Only
 * reads. */
#include <stdio.h>
#include <string.h>

#include "gpu/common/answer.h"
#include "gpu/common/nvml.h"

enum { LINKS = 18, PROFILES = 16, CPU_WORDS = 4, DEVICES_MAX = 16 };

static void answer_value(const char *what, int (*ask)(void *, unsigned *))
{
    unsigned value = 0;
    const int code = ask(nvml.first, &value);
    answer_begin(what);
    answer_signed("nvml", code);
    if (!code)
        answer_number("value", value);
    answer_end();
}

static void answer_versions(void)
{
    char driver[96] = "", library[96] = "";
    unsigned count = 0;
    nvml.driver_version(driver, sizeof(driver));
    nvml.version(library, sizeof(library));
    nvml.count(&count);
    answer_begin("versions");
    answer_text("driver", driver);
    answer_text("nvml", library);
    answer_number("devices", count);
    answer_end();
}

static void answer_memory(void)
{
    struct nvml_memory memory = {0}, bar = {0};
    answer_begin("memory");
    answer_signed("nvml", nvml.memory(nvml.first, &memory));
    answer_number("total", memory.total);
    answer_number("free", memory.free);
    answer_signed("bar_nvml", nvml.bar(nvml.first, &bar));
    answer_number("bar_total", bar.total);
    answer_number("bar_used", bar.used);
    nvml_answer_memory("used", 0);
    answer_end();
}

static void answer_links(void)
{
    for (unsigned link = 0; link < LINKS; link++) {
        unsigned active = 0, version = 0;
        const int code = nvml.link_state(nvml.first, link, &active);
        answer_begin("nvlink");
        answer_number("link", link);
        answer_signed("nvml", code);
        if (!code) {
            answer_number("active", active);
            answer_signed("version_nvml", nvml.link_version(nvml.first, link, &version));
            answer_number("version", version);
        }
        answer_end();
        if (code)
            return; /* the further ones answer the same */
    }
}

static void answer_mig(void)
{
    unsigned current = 0, pending = 0;
    answer_begin("mig");
    answer_signed("nvml", nvml.mig_mode(nvml.first, &current, &pending));
    answer_number("current", current);
    answer_number("pending", pending);
    answer_end();
    for (unsigned i = 0; i < PROFILES; i++) {
        struct nvml_profile profile;
        memset(&profile, 0, sizeof(profile));
        const int code = nvml.profile(nvml.first, i, &profile);
        answer_begin("mig_profile");
        answer_number("number", i);
        answer_signed("nvml", code);
        if (!code) {
            answer_number("id", profile.id);
            answer_number("slices", profile.slices);
            answer_number("instances", profile.instances);
            answer_number("multiprocessors", profile.multiprocessors);
            answer_number("copy_engines", profile.copy_engines);
            answer_number("memory_mib", profile.memory_mib);
        }
        answer_end();
    }
}

static void answer_cpus(void)
{
    unsigned long set[CPU_WORDS] = {0};
    answer_begin("cpu_affinity");
    answer_signed("nvml", nvml.cpus(nvml.first, CPU_WORDS, set));
    for (int i = 0; i < CPU_WORDS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "word_%d", i);
        answer_number(key, set[i]);
    }
    answer_end();
}

static void answer_neighbours(void)
{
    unsigned count = 0;
    if (nvml.count(&count))
        return;
    for (unsigned i = 1; i < count && i < DEVICES_MAX; i++) {
        void *other = NULL;
        unsigned level = 0;
        if (nvml.device(i, &other))
            continue;
        answer_begin("common_ancestor");
        answer_number("device", i);
        answer_signed("nvml", nvml.ancestor(nvml.first, other, &level));
        answer_number("level", level);
        answer_end();
    }
}

int main(void)
{
    if (!nvml_open())
        answer_skip("the management library (libnvidia-ml.so.1) does not answer");
    answer_versions();
    answer_memory();
    answer_value("pcie_generation", nvml.pcie_generation);
    answer_value("pcie_generation_max", nvml.pcie_generation_max);
    answer_value("pcie_width", nvml.pcie_width);
    answer_value("pcie_width_max", nvml.pcie_width_max);
    answer_value("compute_mode", nvml.compute_mode);
    answer_value("persistence", nvml.persistence);
    answer_value("numa_node", nvml.numa_node);
    answer_links();
    answer_mig();
    answer_cpus();
    answer_neighbours();
    nvml.shutdown();
    return 0;
}
