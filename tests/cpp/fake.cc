// SPDX-License-Identifier: BSD-2-Clause
#include <cstring>

#include "fake_state.hpp"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

fake::state fake::now;

using namespace fake;

namespace
{

struct verbs_device_pair {
    ibv_device device;
    ibv_device *list[2];
};

} // namespace

void fake::begin(int failing_step)
{
    now = {};
    now.failing_step = failing_step;
}

int fake::steps()
{
    return now.steps;
}

std::string fake::failed_verb()
{
    return now.failed_verb;
}

std::vector<std::string> fake::live()
{
    std::vector<std::string> found;

    if (now.own && !ibv_close_device(now.own))
        now.own = nullptr;

    for (const auto &[address, one] : now.live)
        found.push_back(one.verb);
    return found;
}

std::vector<std::string> fake::faults()
{
    return now.faults;
}

void fake::complete(ibv_wc_status status)
{
    now.completions.push_back(status);
}

namespace fake
{

void be_quiet(bool is_quiet)
{
    now.is_quiet = is_quiet;
}
ibv_context *own_device()
{
    be_quiet(true);
    if (!now.own)
        now.own = ibv_open_device(nullptr);
    be_quiet(false);
    return now.own;
}
void is_born(const char *verb, const void *made, std::vector<const void *> parents)
{
    born(verb, made, std::move(parents));
}
int dies(const char *verb, const void *dead)
{
    auto found = now.live.find(dead);

    if (found == now.live.end() || found->second.children) {
        now.faults.push_back(std::string(verb) + " of what is gone or in use");
        return EBUSY;
    }
    for (const void *parent : found->second.parents)
        if (parent)
            now.live[parent].children--;
    now.live.erase(found);
    return 0;
}

} // namespace fake

extern "C" {

ibv_device **ibv_get_device_list(int *count)
{
    auto *pair = create<verbs_device_pair>("ibv_get_device_list", {});

    if (!pair)
        return nullptr;
    std::strcpy(pair->device.name, "fake");
    pair->list[0] = &pair->device;
    if (count)
        *count = 1;
    return pair->list;
}

void ibv_free_device_list(ibv_device **list)
{
    destroy("ibv_free_device_list",
            reinterpret_cast<verbs_device_pair *>(reinterpret_cast<char *>(list) -
                                                  offsetof(verbs_device_pair, list)));
}

const char *ibv_get_device_name(ibv_device *device)
{
    return device->name;
}

ibv_context *ibv_open_device(ibv_device *)
{
    if (fails("ibv_open_device"))
        return nullptr;

    auto *made = new verbs_context();
    made->sz = sizeof(*made);
    made->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    fake::fill_context(*made);
    return born("ibv_open_device", &made->context, {});
}

int ibv_close_device(ibv_context *context)
{
    int code = fake::dies("ibv_close_device", context);

    if (!code)
        delete reinterpret_cast<verbs_context *>(reinterpret_cast<char *>(context) -
                                                 offsetof(verbs_context, context));
    return code;
}

int ibv_query_device(ibv_context *, ibv_device_attr *attr)
{
    *attr = {};
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
    return step("ibv_query_device");
}

// For providers that are older than ours.
int ibv_query_port(ibv_context *, uint8_t, _compat_ibv_port_attr *)
{
    return EOPNOTSUPP;
}

int ibv_query_gid(ibv_context *, uint8_t, int index, ibv_gid *gid)
{
    *gid = {};
    gid->raw[15] = static_cast<uint8_t>(index);
    return step("ibv_query_gid");
}

// One of RoCE v1, an empty place, one of IPv4.
int _ibv_query_gid_ex(ibv_context *, uint32_t, uint32_t index, ibv_gid_entry *entry, uint32_t,
                      std::size_t)
{
    if (index == 1)
        return ENODATA;
    *entry = {};
    entry->gid_type = index ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
    return 0;
}

ibv_pd *ibv_alloc_pd(ibv_context *context)
{
    return pd_of(context, "ibv_alloc_pd");
}

int ibv_dealloc_pd(ibv_pd *pd)
{
    return destroy("ibv_dealloc_pd", pd);
}

ibv_mr *ibv_reg_mr(ibv_pd *pd, void *address, size_t length, int)
{
    return mr_of("ibv_reg_mr", pd, address, length);
}

ibv_mr *ibv_reg_mr_iova(ibv_pd *pd, void *address, size_t length, uint64_t, int)
{
    return mr_of("ibv_reg_mr_iova", pd, address, length);
}

// The macros call this one where the flags are no constant.
ibv_mr *ibv_reg_mr_iova2(ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned int)
{
    return mr_of(iova == reinterpret_cast<uintptr_t>(address) ? "ibv_reg_mr" : "ibv_reg_mr_iova",
                 pd, address, length);
}

ibv_mr *ibv_reg_dmabuf_mr(ibv_pd *pd, uint64_t, size_t length, uint64_t, int, int)
{
    return mr_of("ibv_reg_dmabuf_mr", pd, nullptr, length);
}

int ibv_dereg_mr(ibv_mr *mr)
{
    return destroy("ibv_dereg_mr", mr);
}

ibv_context *ibv_import_device(int)
{
    if (fails("ibv_import_device"))
        return nullptr;
    fake::be_quiet(true);
    ibv_context *made = ibv_open_device(nullptr);
    fake::be_quiet(false);
    return made;
}

ibv_pd *ibv_import_pd(ibv_context *context, uint32_t)
{
    return pd_of(context, "ibv_import_pd");
}

void ibv_unimport_pd(ibv_pd *pd)
{
    destroy("ibv_unimport_pd", pd);
}

ibv_mr *ibv_import_mr(ibv_pd *pd, uint32_t)
{
    return mr_of("ibv_import_mr", pd, nullptr, 0);
}

void ibv_unimport_mr(ibv_mr *mr)
{
    destroy("ibv_unimport_mr", mr);
}

ibv_dm *ibv_import_dm(ibv_context *context, uint32_t)
{
    return of_context<ibv_dm>(context, "ibv_import_dm", context);
}

void ibv_unimport_dm(ibv_dm *dm)
{
    destroy("ibv_unimport_dm", dm);
}

ibv_comp_channel *ibv_create_comp_channel(ibv_context *context)
{
    auto *made = create<ibv_comp_channel>("ibv_create_comp_channel", {context});

    if (made)
        made->fd = -1;
    return made;
}

int ibv_destroy_comp_channel(ibv_comp_channel *channel)
{
    return destroy("ibv_destroy_comp_channel", channel);
}

ibv_cq *ibv_create_cq(ibv_context *context, int, void *, ibv_comp_channel *channel, int)
{
    auto *made = create<ibv_cq>("ibv_create_cq", {context, channel});

    if (made)
        made->context = context;
    return made;
}

int ibv_destroy_cq(ibv_cq *cq)
{
    auto found = now.live.find(cq);

    if (found != now.live.end() && found->second.verb == "ibv_create_cq_ex")
        return destroy("ibv_destroy_cq", reinterpret_cast<ibv_cq_ex *>(cq));
    return destroy("ibv_destroy_cq", cq);
}

int ibv_resize_cq(ibv_cq *, int)
{
    return step("ibv_resize_cq");
}

int ibv_get_cq_event(ibv_comp_channel *, ibv_cq **, void **)
{
    return -1;
}

void ibv_ack_cq_events(ibv_cq *, unsigned int)
{
}

int ibv_get_async_event(ibv_context *, ibv_async_event *event)
{
    *event = {};
    return step("ibv_get_async_event");
}

void ibv_ack_async_event(ibv_async_event *)
{
}

ibv_srq *ibv_create_srq(ibv_pd *pd, ibv_srq_init_attr *)
{
    auto *made = create<ibv_srq>("ibv_create_srq", {pd});

    if (made)
        made->context = pd->context;
    return made;
}

int ibv_destroy_srq(ibv_srq *srq)
{
    return destroy("ibv_destroy_srq", srq);
}

int ibv_modify_srq(ibv_srq *, ibv_srq_attr *, int)
{
    return step("ibv_modify_srq");
}

int ibv_query_srq(ibv_srq *, ibv_srq_attr *)
{
    return step("ibv_query_srq");
}

ibv_qp *ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *attr)
{
    auto *made = create<ibv_qp>("ibv_create_qp", {pd, attr->send_cq, attr->recv_cq, attr->srq});

    if (made) {
        made->context = pd->context;
        made->pd = pd;
        made->qp_type = attr->qp_type;
    }
    return made;
}

int ibv_destroy_qp(ibv_qp *qp)
{
    return destroy("ibv_destroy_qp", qp);
}

int ibv_modify_qp(ibv_qp *, ibv_qp_attr *, int)
{
    return step("ibv_modify_qp");
}

int ibv_query_qp(ibv_qp *, ibv_qp_attr *, int, ibv_qp_init_attr *)
{
    return step("ibv_query_qp");
}

ibv_qp_ex *ibv_qp_to_qp_ex(ibv_qp *)
{
    errno = EINVAL;
    return nullptr;
}

ibv_ah *ibv_create_ah(ibv_pd *pd, ibv_ah_attr *)
{
    return create<ibv_ah>("ibv_create_ah", {pd});
}

int ibv_destroy_ah(ibv_ah *ah)
{
    return destroy("ibv_destroy_ah", ah);
}

const char *ibv_wc_status_str(ibv_wc_status)
{
    return "a status";
}

} // extern "C"
