/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host that asks one member of a group to reset its controller at another (TP8028). In lines:
 *
 *   written     a write of OLD is on its way by the controller at A
 *   go          (read) now ask B
 *   quiet       B says that no command of that controller is under way; or: refused
 *   go PORT     (read) write NEW there
 *   done
 *
 * usage: reset_host ADDR PORT-OF-A PORT-OF-B NQN
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nvme/types.h>

#include "nvme/wire/quiesce.h"
#include "sidewire/nvme.h"

enum { BLOCK = 4096, LBA = 5, OLD = 0x11, NEW = 0x22, LOOK_MS = 20, LIMIT_S = 60 };

struct way {
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
};

static const char *address, *nqn;

static void fail(const char *what, const char *why)
{
    printf("failed: %s: %s\n", what, why);
    exit(1);
}

static void open_way(struct way *way, const char *port)
{
    struct sw_nvme_options options;
    struct sw_nvme_error error;
    sw_nvme_options_init(&options);
    options.traddr = address;
    options.trsvcid = port;
    options.subsysnqn = nqn;
    options.ctrl_loss_tmo_s = 0;
    options.background = true;
    if (sw_nvme_connect(&options, &error, &way->controller) ||
        sw_nvme_queue_open(way->controller, 0, &error, &way->queue))
        fail("connect", error.text);
    if (sw_nvme_mem_alloc(way->controller, BLOCK, &way->mem))
        fail("memory", "none");
}

static void begin_write(struct way *way, int byte)
{
    memset(sw_nvme_mem_data(way->mem), byte, BLOCK);
    const struct sw_nvme_io io = {.nsid = 1,
                                  .blocks = 1,
                                  .lba = LBA,
                                  .data = sw_nvme_mem_data(way->mem),
                                  .bytes = BLOCK,
                                  .mem = way->mem};
    const enum sw_nvme_status status = sw_nvme_write(way->queue, &io);
    if (status)
        fail("write", sw_nvme_status_text(status));
    (void)sw_nvme_queue_poll(way->queue);
}

static void await_order(char *port, size_t size)
{
    char line[64] = "", word[16] = "";
    if (!fgets(line, sizeof(line), stdin) || sscanf(line, "%15s %15s", word, port) < 1 ||
        strcmp(word, "go") != 0)
        exit(1);
    port[size - 1] = 0;
}

/* How the log page has it. */
static int state_of(struct way *way, uint64_t cirn)
{
    uint8_t page[1024];
    struct nvf_ccr_log header;
    struct sw_nvme_result result;
    const struct sw_nvme_admin admin = {.opcode = nvme_admin_get_log_page,
                                        .cdw10 = NVF_LOG_CROSS_CTRL_RESET | (sizeof(page) / 4 - 1)
                                                                                << 16,
                                        .data = page,
                                        .bytes = sizeof(page)};
    if (sw_nvme_admin(way->controller, &admin, &result))
        fail("log page", sw_nvme_status_text(result.status));
    memcpy(&header, page, sizeof(header));
    for (uint32_t i = 0; i < le16toh(header.entries_count); i++) {
        struct nvf_ccr_entry entry;
        memcpy(&entry, page + sizeof(header) + i * sizeof(entry), sizeof(entry));
        if (le64toh(entry.cirn) == cirn)
            return entry.ccrs;
    }
    return NVF_CCR_FAILED;
}

static bool reset_by(struct way *way, const uint8_t *id)
{
    struct sw_nvme_result result;
    uint64_t cirn;
    memcpy(&cirn, id + NVF_ID_CIRN, sizeof(cirn));
    cirn = le64toh(cirn);
    const uint16_t cntlid = le16toh(((const struct nvme_id_ctrl *)id)->cntlid);
    const struct sw_nvme_admin admin = {.opcode = NVF_ADMIN_CROSS_CTRL_RESET,
                                        .cdw10 = nvf_ccr_cdw10(cntlid, id[NVF_ID_CIU]),
                                        .cdw12 = (uint32_t)cirn,
                                        .cdw13 = (uint32_t)(cirn >> 32)};
    if (sw_nvme_admin(way->controller, &admin, &result))
        return false;
    if (result.value & NVF_CCR_IMMEDIATE)
        return true;
    for (int i = 0; i < LIMIT_S * 1000 / LOOK_MS; i++) {
        const int state = state_of(way, cirn);
        if (state != NVF_CCR_IN_PROGRESS)
            return state == NVF_CCR_SUCCESS;
        usleep(LOOK_MS * 1000);
    }
    return false;
}

static void write_anew(const char *port)
{
    struct way way;
    struct sw_nvme_result result;
    open_way(&way, port);
    begin_write(&way, NEW);
    if (sw_nvme_queue_wait(way.queue, sw_nvme_deadline_ms(LIMIT_S * 1000)) ||
        sw_nvme_queue_take(way.queue, &result, 1) != 1 || result.status)
        fail("newer write", sw_nvme_status_text(result.status));
}

int main(int argc, char **argv)
{
    static uint8_t id[4096];
    struct way a, b;
    struct sw_nvme_result result;
    char port[16] = "";
    if (argc != 5)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    address = argv[1];
    nqn = argv[4];
    open_way(&a, argv[2]);
    open_way(&b, argv[3]);
    if (sw_nvme_identify(a.controller, NVME_IDENTIFY_CNS_CTRL, 0, id, &result))
        fail("identify", sw_nvme_status_text(result.status));
    begin_write(&a, OLD);
    printf("written\n");
    await_order(port, sizeof(port));
    printf(reset_by(&b, id) ? "quiet\n" : "refused\n");
    await_order(port, sizeof(port));
    write_anew(port);
    printf("done\n");
    _exit(0); /* its other controllers may be gone, or held */
}
