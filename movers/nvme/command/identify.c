/* SPDX-License-Identifier: BSD-2-Clause */
/* `id-ctrl` and `id-ns`: the fields as nvme-cli prints them, from tables. */
#include "nvme/command/host_commands.h"

#include <endian.h>
#include <stddef.h>
#include <string.h>

#include <nvme/types.h>

enum style { HEX, DECIMAL, TEXT, BIG, IEEE, GUID };

struct field {
    const char *name;
    uint16_t offset;
    uint16_t bytes;
    uint8_t style;
};

#define CTRL(name, style)                                                                     \
    {                                                                                         \
#name, offsetof(struct nvme_id_ctrl, name), sizeof(((struct nvme_id_ctrl *)0)->name), \
            style                                                                             \
    }
#define NS(name, style)                                                                         \
    {                                                                                           \
#name, offsetof(struct nvme_id_ns, name), sizeof(((struct nvme_id_ns *)0)->name), style \
    }

static const struct field ctrl_fields[] = {
    CTRL(vid, HEX),           CTRL(ssvid, HEX),         CTRL(sn, TEXT),
    CTRL(mn, TEXT),           CTRL(fr, TEXT),           CTRL(rab, DECIMAL),
    CTRL(ieee, IEEE),         CTRL(cmic, HEX),          CTRL(mdts, DECIMAL),
    CTRL(cntlid, HEX),        CTRL(ver, HEX),           CTRL(rtd3r, HEX),
    CTRL(rtd3e, HEX),         CTRL(oaes, HEX),          CTRL(ctratt, HEX),
    CTRL(rrls, HEX),          CTRL(cntrltype, DECIMAL), CTRL(fguid, GUID),
    CTRL(crdt1, DECIMAL),     CTRL(crdt2, DECIMAL),     CTRL(crdt3, DECIMAL),
    CTRL(nvmsr, DECIMAL),     CTRL(vwci, DECIMAL),      CTRL(mec, DECIMAL),
    CTRL(oacs, HEX),          CTRL(acl, DECIMAL),       CTRL(aerl, DECIMAL),
    CTRL(frmw, HEX),          CTRL(lpa, HEX),           CTRL(elpe, DECIMAL),
    CTRL(npss, DECIMAL),      CTRL(avscc, HEX),         CTRL(apsta, HEX),
    CTRL(wctemp, DECIMAL),    CTRL(cctemp, DECIMAL),    CTRL(mtfa, DECIMAL),
    CTRL(hmpre, DECIMAL),     CTRL(hmmin, DECIMAL),     CTRL(tnvmcap, BIG),
    CTRL(unvmcap, BIG),       CTRL(rpmbs, HEX),         CTRL(edstt, DECIMAL),
    CTRL(dsto, DECIMAL),      CTRL(fwug, DECIMAL),      CTRL(kas, DECIMAL),
    CTRL(hctma, HEX),         CTRL(mntmt, DECIMAL),     CTRL(mxtmt, DECIMAL),
    CTRL(sanicap, HEX),       CTRL(hmminds, DECIMAL),   CTRL(hmmaxd, DECIMAL),
    CTRL(nsetidmax, DECIMAL), CTRL(endgidmax, DECIMAL), CTRL(anatt, DECIMAL),
    CTRL(anacap, DECIMAL),    CTRL(anagrpmax, DECIMAL), CTRL(nanagrpid, DECIMAL),
    CTRL(pels, DECIMAL),      CTRL(domainid, DECIMAL),  CTRL(megcap, BIG),
    CTRL(sqes, HEX),          CTRL(cqes, HEX),          CTRL(maxcmd, DECIMAL),
    CTRL(nn, DECIMAL),        CTRL(oncs, HEX),          CTRL(fuses, HEX),
    CTRL(fna, HEX),           CTRL(vwc, HEX),           CTRL(awun, DECIMAL),
    CTRL(awupf, DECIMAL),     CTRL(icsvscc, DECIMAL),   CTRL(nwpc, DECIMAL),
    CTRL(acwu, DECIMAL),      CTRL(ocfs, HEX),          CTRL(sgls, HEX),
    CTRL(mnan, DECIMAL),      CTRL(maxdna, BIG),        CTRL(maxcna, DECIMAL),
    CTRL(subnqn, TEXT),       CTRL(ioccsz, DECIMAL),    CTRL(iorcsz, DECIMAL),
    CTRL(icdoff, DECIMAL),    CTRL(fcatt, HEX),         CTRL(msdbd, DECIMAL),
    CTRL(ofcs, DECIMAL),      CTRL(dctype, DECIMAL),
};

static const struct field ns_fields[] = {
    NS(nsze, HEX),         NS(ncap, HEX),       NS(nuse, HEX),         NS(nsfeat, HEX),
    NS(nlbaf, DECIMAL),    NS(flbas, HEX),      NS(mc, HEX),           NS(dpc, HEX),
    NS(dps, HEX),          NS(nmic, HEX),       NS(rescap, HEX),       NS(fpi, HEX),
    NS(dlfeat, DECIMAL),   NS(nawun, DECIMAL),  NS(nawupf, DECIMAL),   NS(nacwu, DECIMAL),
    NS(nabsn, DECIMAL),    NS(nabo, DECIMAL),   NS(nabspf, DECIMAL),   NS(noiob, DECIMAL),
    NS(nvmcap, BIG),       NS(npwg, DECIMAL),   NS(npwa, DECIMAL),     NS(npdg, DECIMAL),
    NS(npda, DECIMAL),     NS(nows, DECIMAL),   NS(mssrl, DECIMAL),    NS(mcl, DECIMAL),
    NS(msrc, DECIMAL),     NS(nulbaf, DECIMAL), NS(anagrpid, DECIMAL), NS(nsattr, DECIMAL),
    NS(nvmsetid, DECIMAL), NS(endgid, DECIMAL), NS(nguid, GUID),       NS(eui64, GUID),
};

static uint64_t identify_value_at(const uint8_t *data, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes && i < 8; i++)
        value |= (uint64_t)data[i] << 8 * i;
    return value;
}

/* 16 bytes in decimal, as nvme-cli prints capacities. */
static void print_big(const uint8_t *data, char *out, size_t out_bytes)
{
    unsigned __int128 value = 0;
    char digits[48];
    unsigned at = sizeof(digits) - 1;
    memcpy(&value, data, sizeof(value));
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + (unsigned)(value % 10));
        value /= 10;
    } while (value);
    snprintf(out, out_bytes, "%s", digits + at);
}

static void format_field(const struct field *field, const uint8_t *data, char *out,
                         size_t out_bytes)
{
    const uint8_t *at = data + field->offset;
    switch ((enum style)field->style) {
    case HEX:
        snprintf(out, out_bytes, "%#llx", (unsigned long long)identify_value_at(at, field->bytes));
        return;
    case DECIMAL:
        snprintf(out, out_bytes, "%llu", (unsigned long long)identify_value_at(at, field->bytes));
        return;
    case TEXT:
        return nv_clean_string(
            (const char *)at,
            field->offset == offsetof(struct nvme_id_ctrl, subnqn) ? NVME_NQN_LENGTH : field->bytes,
            out, out_bytes);
    case BIG:
        return print_big(at, out, out_bytes);
    case IEEE:
        snprintf(out, out_bytes, "%02x%02x%02x", at[2], at[1], at[0]);
        return;
    case GUID:
        for (unsigned i = 0; i < field->bytes && 2 * i + 3 < out_bytes; i++)
            snprintf(out + 2 * i, 3, "%02x", at[i]);
        return;
    }
}

static json_t *fields_json(const struct field *fields, unsigned count, const uint8_t *data)
{
    json_t *json = json_object();
    for (unsigned i = 0; i < count; i++) {
        char text[300];
        const struct field *f = &fields[i];
        const bool is_number = f->style == HEX || f->style == DECIMAL;
        format_field(f, data, text, sizeof(text));
        json_object_set_new(
            json, f->name,
            is_number ? json_integer((json_int_t)identify_value_at(data + f->offset, f->bytes))
                      : json_string(text));
    }
    return json;
}

static void print_fields(const struct field *fields, unsigned count, const uint8_t *data,
                         int name_width)
{
    for (unsigned i = 0; i < count; i++) {
        char text[300];
        format_field(&fields[i], data, text, sizeof(text));
        printf("%-*s : %s\n", name_width, fields[i].name, text);
    }
}

static int print_data(const struct nv_host *host, const struct field *fields, unsigned count,
                      const uint8_t *data, const char *title, int name_width)
{
    if (host->format == NV_JSON)
        return mover_print_json(fields_json(fields, count, data));
    if (host->format == NV_BINARY)
        return fwrite(data, 4096, 1, stdout) != 1;
    printf("%s:\n", title);
    print_fields(fields, count, data, name_width);
    return fflush(stdout) ? 1 : 0;
}

static int run_identify(struct nv_host *host, uint8_t cns, void *data)
{
    struct sw_nvme_result result;
    if (sw_nvme_identify(host->controller, cns, host->nsid, data, &result))
        return nv_fail_result("Identify", &result);
    return 0;
}

int nv_id_ctrl(int argc, char **argv)
{
    static const char about[] = "Shows Identify Controller.";
    struct nv_host host = {0};
    static struct nvme_id_ctrl id;
    nv_host_parse_alone(about, argc, argv, &host);
    if (nv_host_connect(&host))
        return 1;
    host.nsid = 0;
    int failed = run_identify(&host, NVME_IDENTIFY_CNS_CTRL, &id);
    if (!failed)
        failed = print_data(&host, ctrl_fields, sizeof(ctrl_fields) / sizeof(*ctrl_fields),
                            (const uint8_t *)&id, "NVME Identify Controller", 9);
    nv_host_close(&host);
    return failed;
}

static void print_formats(const struct nvme_id_ns *id)
{
    const unsigned current = (id->flbas & 0xf) | (id->flbas >> 1 & 0x30);
    for (unsigned i = 0; i <= id->nlbaf && i < 64; i++)
        printf("lbaf  %2u : ms:%-3d lbads:%-2d rp:%#x %s\n", i, le16toh(id->lbaf[i].ms),
               id->lbaf[i].ds, id->lbaf[i].rp & 3, i == current ? "(in use)" : "");
}

int nv_id_ns(int argc, char **argv)
{
    static const char about[] = "Shows Identify Namespace.";
    struct nv_host host = {0};
    struct sw_nvme_namespace ns;
    static struct nvme_id_ns id;
    nv_host_parse_alone(about, argc, argv, &host);
    if (nv_host_connect(&host))
        return 1;
    char title[48];
    int failed = nv_host_namespace(&host, &ns) || run_identify(&host, NVME_IDENTIFY_CNS_NS, &id);
    snprintf(title, sizeof(title), "NVME Identify Namespace %u", host.nsid);
    if (!failed)
        failed = print_data(&host, ns_fields, sizeof(ns_fields) / sizeof(*ns_fields),
                            (const uint8_t *)&id, title, 7);
    if (!failed && host.format == NV_NORMAL)
        print_formats(&id);
    nv_host_close(&host);
    return failed;
}
