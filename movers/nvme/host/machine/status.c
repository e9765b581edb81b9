/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts of each status, the library's and NVMe's. */
#include <nvme/types.h>

#include "sidewire/nvme.h"

const char *sw_nvme_status_text(enum sw_nvme_status status)
{
    switch (status) {
    case SW_NVME_OK:
        return "it worked";
    case SW_NVME_FAILED:
        return "the controller says that the command failed";
    case SW_NVME_AGAIN:
        return "the queue is full";
    case SW_NVME_INVALID:
        return "an argument is not valid";
    case SW_NVME_TOO_LONG:
        return "this is more data than the controller takes in one command";
    case SW_NVME_NOT_REGISTERED:
        return "the data is not in registered memory";
    case SW_NVME_NO_MEMORY:
        return "there is no memory";
    case SW_NVME_TIMEOUT:
        return "the deadline has passed";
    case SW_NVME_ADDRESS:
        return "there is no such address, or no RDMA device leads there";
    case SW_NVME_REFUSED:
        return "the connection was refused";
    case SW_NVME_UNREACHABLE:
        return "the controller cannot be reached";
    case SW_NVME_NOT_DONE:
        return "the connection was lost before the request was sent: it did not happen";
    case SW_NVME_MAYBE_DONE:
        return "the connection was lost after the request was sent: it may have happened";
    case SW_NVME_PROTOCOL:
        return "the controller broke the protocol";
    case SW_NVME_UNSUPPORTED:
        return "the controller lacks what is needed, or asks for what is not there";
    case SW_NVME_CLOSED:
        return "it was closed by this side";
    case SW_NVME_SYSTEM:
        return "the operating system or the RDMA device failed";
    case SW_NVME_AUTHENTICATION:
        return "the host or the controller could not prove who it is";
    case SW_NVME_FORKED:
        return "the handle belongs to the parent of this process";
    }
    return "a status that is not known";
}

const char *sw_nvme_path_state_text(enum sw_nvme_path_state state)
{
    switch (state) {
    case SW_NVME_PATH_AWAY:
        return "away";
    case SW_NVME_PATH_CHECKED:
        return "checked";
    case SW_NVME_PATH_USED:
        return "used";
    case SW_NVME_PATH_REFUSED:
        return "refused";
    case SW_NVME_PATH_GIVEN_UP:
        return "given-up";
    }
    return "unknown";
}

const char *sw_nvme_ana_text(enum sw_nvme_ana ana)
{
    switch (ana) {
    case SW_NVME_ANA_OPTIMIZED:
        return "optimized";
    case SW_NVME_ANA_NON_OPTIMIZED:
        return "non-optimized";
    case SW_NVME_ANA_INACCESSIBLE:
        return "inaccessible";
    case SW_NVME_ANA_PERSISTENT_LOSS:
        return "persistent-loss";
    case SW_NVME_ANA_CHANGE:
        return "change";
    }
    return "unknown";
}

struct code {
    uint16_t code;
    const char *text;
};

/* libnvme's codes are without their type. */
#define SPECIFIC(code) (NVME_SCT_CMD_SPECIFIC << 8 | (code))
#define MEDIA(code) (NVME_SCT_MEDIA << 8 | (code))
#define PATH(code) (NVME_SCT_PATH << 8 | (code))

static const struct code codes[] = {
    {NVME_SC_SUCCESS, "Successful Completion"},
    {NVME_SC_INVALID_OPCODE, "Invalid Command Opcode"},
    {NVME_SC_INVALID_FIELD, "Invalid Field in Command"},
    {NVME_SC_CMDID_CONFLICT, "Command ID Conflict"},
    {NVME_SC_DATA_XFER_ERROR, "Data Transfer Error"},
    {NVME_SC_POWER_LOSS, "Commands Aborted due to Power Loss Notification"},
    {NVME_SC_INTERNAL, "Internal Error"},
    {NVME_SC_ABORT_REQ, "Command Abort Requested"},
    {NVME_SC_ABORT_QUEUE, "Command Aborted due to SQ Deletion"},
    {NVME_SC_FUSED_FAIL, "Command Aborted due to Failed Fused Command"},
    {NVME_SC_FUSED_MISSING, "Command Aborted due to Missing Fused Command"},
    {NVME_SC_INVALID_NS, "Invalid Namespace or Format"},
    {NVME_SC_CMD_SEQ_ERROR, "Command Sequence Error"},
    {NVME_SC_SGL_INVALID_LAST, "Invalid SGL Segment Descriptor"},
    {NVME_SC_SGL_INVALID_COUNT, "Invalid Number of SGL Descriptors"},
    {NVME_SC_SGL_INVALID_DATA, "Data SGL Length Invalid"},
    {NVME_SC_SGL_INVALID_METADATA, "Metadata SGL Length Invalid"},
    {NVME_SC_SGL_INVALID_TYPE, "SGL Descriptor Type Invalid"},
    {NVME_SC_SGL_INVALID_OFFSET, "SGL Offset Invalid"},
    {NVME_SC_HOSTID_FORMAT, "Host Identifier Inconsistent Format"},
    {NVME_SC_KAT_EXPIRED, "Keep Alive Timeout Expired"},
    {NVME_SC_KAT_INVALID, "Keep Alive Timeout Invalid"},
    {NVME_SC_CMD_ABORTED_PREMEPT, "Command Aborted due to Preempt and Abort"},
    {NVME_SC_SANITIZE_FAILED, "Sanitize Failed"},
    {NVME_SC_SANITIZE_IN_PROGRESS, "Sanitize In Progress"},
    {NVME_SC_NS_WRITE_PROTECTED, "Namespace is Write Protected"},
    {NVME_SC_CMD_INTERRUPTED, "Command Interrupted"},
    {NVME_SC_TRAN_TPORT_ERROR, "Transient Transport Error"},
    {NVME_SC_LBA_RANGE, "LBA Out of Range"},
    {NVME_SC_CAP_EXCEEDED, "Capacity Exceeded"},
    {NVME_SC_NS_NOT_READY, "Namespace Not Ready"},
    {NVME_SC_RESERVATION_CONFLICT, "Reservation Conflict"},
    {NVME_SC_FORMAT_IN_PROGRESS, "Format In Progress"},
    {SPECIFIC(NVME_SC_CQ_INVALID), "Completion Queue Invalid"},
    {SPECIFIC(NVME_SC_QID_INVALID), "Invalid Queue Identifier"},
    {SPECIFIC(NVME_SC_QUEUE_SIZE), "Invalid Queue Size"},
    {SPECIFIC(NVME_SC_ABORT_LIMIT), "Abort Command Limit Exceeded"},
    {SPECIFIC(NVME_SC_ASYNC_LIMIT), "Asynchronous Event Request Limit Exceeded"},
    {SPECIFIC(NVME_SC_INVALID_LOG_PAGE), "Invalid Log Page"},
    {SPECIFIC(NVME_SC_INVALID_FORMAT), "Invalid Format"},
    {SPECIFIC(NVME_SC_FEATURE_NOT_SAVEABLE), "Feature Identifier Not Saveable"},
    {SPECIFIC(NVME_SC_FEATURE_NOT_CHANGEABLE), "Feature Not Changeable"},
    {SPECIFIC(NVME_SC_FEATURE_NOT_PER_NS), "Feature Not Namespace Specific"},
    {SPECIFIC(NVME_SC_NS_ALREADY_ATTACHED), "Namespace Already Attached"},
    {SPECIFIC(NVME_SC_NS_NOT_ATTACHED), "Namespace Not Attached"},
    {SPECIFIC(NVME_SC_CONNECT_FORMAT), "Incompatible Format"},
    {SPECIFIC(NVME_SC_CONNECT_CTRL_BUSY), "Controller Busy"},
    {SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM), "Connect Invalid Parameters"},
    {SPECIFIC(NVME_SC_CONNECT_RESTART_DISC), "Connect Restart Discovery"},
    {SPECIFIC(NVME_SC_CONNECT_INVALID_HOST), "Connect Invalid Host"},
    {SPECIFIC(NVME_SC_DISCONNECT_INVALID_QTYPE), "Invalid Queue Type"},
    {SPECIFIC(NVME_SC_DISCOVERY_RESTART), "Discover Restart"},
    {SPECIFIC(NVME_SC_AUTH_REQUIRED), "Authentication Required"},
    {MEDIA(NVME_SC_WRITE_FAULT), "Write Fault"},
    {MEDIA(NVME_SC_READ_ERROR), "Unrecovered Read Error"},
    {MEDIA(NVME_SC_GUARD_CHECK), "End-to-end Guard Check Error"},
    {MEDIA(NVME_SC_COMPARE_FAILED), "Compare Failure"},
    {MEDIA(NVME_SC_ACCESS_DENIED), "Access Denied"},
    {MEDIA(NVME_SC_UNWRITTEN_BLOCK), "Deallocated or Unwritten Logical Block"},
    {PATH(NVME_SC_ANA_INTERNAL_PATH_ERROR), "Internal Path Error"},
    {PATH(NVME_SC_ANA_PERSISTENT_LOSS), "Asymmetric Access Persistent Loss"},
    {PATH(NVME_SC_ANA_INACCESSIBLE), "Asymmetric Access Inaccessible"},
    {PATH(NVME_SC_ANA_TRANSITION), "Asymmetric Access Transition"},
    {PATH(0x60), "Controller Pathing Error"},
    {PATH(0x70), "Host Pathing Error"},
    {PATH(0x71), "Command Aborted By Host"},
    {MEDIA(0x83), "End-to-end Application Tag Check Error"},
    {MEDIA(0x84), "End-to-end Reference Tag Check Error"},
    {SPECIFIC(NVME_SC_READ_ONLY), "Attempted Write to Read Only Range"},
};

const char *sw_nvme_code_text(uint16_t nvme_status)
{
    const uint16_t code = nvme_status & 0x7ff;
    for (unsigned i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
        if (codes[i].code == code)
            return codes[i].text;
    }
    return code >> 8 == 7 ? "Vendor Specific" : "Unknown";
}
