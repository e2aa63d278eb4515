"""Groups with strides, as Megatron makes them: by the older backend of NCCL, by splits, and one past torch."""

import ctypes
import os
import sys

import torch
import torch.distributed as dist

if "--older" in sys.argv:
    os.environ["TORCH_DIST_USE_NCCL2"] = "0"
dist.init_process_group("nccl", device_id=torch.device("cuda", 0) if "--splits" in sys.argv else None)
torch.cuda.set_device(0)
world = dist.get_world_size()
tensor, *_ = [dist.new_group([2 * i, 2 * i + 1], group_desc="TENSOR_MODEL_PARALLEL_GROUP") for i in range(world // 2)]
data, *_ = [dist.new_group(list(range(k, world, 2)), group_desc="DATA_PARALLEL_GROUP") for k in range(2)]
unnamed, *_ = [dist.new_group(list(range(k, world, 4))) for k in range(4)]
layer = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(layer.parameters())

comm, nccl = ctypes.c_void_p(), ctypes.CDLL(None)
if "--own" in sys.argv:
    unique = (ctypes.c_char * 128)()
    nccl.ncclGetUniqueId(unique)

    class Id(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 128)]

    nccl.ncclCommInitRank(ctypes.byref(comm), world // 2, Id.from_buffer(unique), 0)

for _ in range(5):
    y = layer(torch.randn(64, 256, device="cuda"))
    dist.all_reduce(y.detach(), group=tensor)
    y.sum().backward()
    dist.all_reduce(layer.weight.grad, group=data)
    dist.all_reduce(layer.bias.grad, group=unnamed)
    if comm:
        at = ctypes.c_void_p(layer.weight.grad.data_ptr())
        nccl.ncclAllReduce(at, at, ctypes.c_size_t(16), 7, 0, comm, None)
    optimizer.step()
    optimizer.zero_grad()
