/* SPDX-License-Identifier: BSD-2-Clause */
/* Compares the declarations of driver.h with CUDA's own header. Nothing of it runs. */
#include <cuda.h>
#include <stddef.h>

#include "gpu/common/driver.h"

#define SAME_SIZE(ours, theirs) \
    _Static_assert(sizeof(struct ours) == sizeof(theirs), "the size of " #ours)
#define SAME_PLACE(ours, field, theirs, its) \
    _Static_assert(offsetof(struct ours, field) == offsetof(theirs, its), #ours "." #field)
#define SAME_NUMBER(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME_SIZE(gpu_location, CUmemLocation);
SAME_SIZE(gpu_allocation, CUmemAllocationProp);
SAME_PLACE(gpu_allocation, handles, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(gpu_allocation, location, CUmemAllocationProp, location);
SAME_PLACE(gpu_allocation, compression, CUmemAllocationProp, allocFlags.compressionType);
SAME_PLACE(gpu_allocation, rdma_capable, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_PLACE(gpu_allocation, usage, CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(gpu_access, CUmemAccessDesc);
SAME_PLACE(gpu_access, flags, CUmemAccessDesc, flags);
SAME_SIZE(gpu_pool_properties, CUmemPoolProps);
SAME_PLACE(gpu_pool_properties, handles, CUmemPoolProps, handleTypes);
SAME_PLACE(gpu_pool_properties, location, CUmemPoolProps, location);
SAME_PLACE(gpu_pool_properties, len_max, CUmemPoolProps, maxSize);
SAME_SIZE(gpu_handle, CUipcMemHandle);
SAME_SIZE(gpu_handle, CUmemPoolPtrExportData);
_Static_assert(sizeof(gpu_pointer) == sizeof(CUdeviceptr), "the size of a pointer");
SAME_NUMBER(GPU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME_NUMBER(GPU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(GPU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME_NUMBER(GPU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME_NUMBER(GPU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME_NUMBER(GPU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME_NUMBER(GPU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME_NUMBER(GPU_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_NUMBER(GPU_ON_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_NUMBER(GPU_HANDLE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_NUMBER(GPU_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME_NUMBER(GPU_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME_NUMBER(GPU_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_NUMBER(GPU_RANGE_DMABUF, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME_NUMBER(GPU_MANAGED_GLOBAL, CU_MEM_ATTACH_GLOBAL);
SAME_NUMBER(GPU_IPC_LAZY_PEER, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME_NUMBER(GPU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME_NUMBER(GPU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME_NUMBER(GPU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_NUMBER(GPU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(GPU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_NUMBER(GPU_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME_NUMBER(GPU_POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME_NUMBER(GPU_POOL_USED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
