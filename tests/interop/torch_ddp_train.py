"""An ordinary PyTorch training script: env://, gloo, DistributedDataParallel, DistributedSampler. Knows nothing of ddprun."""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert rank == int(os.environ["RANK"]) and world == int(os.environ["WORLD_SIZE"])
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(512, 16, generator=generator)
    targets = inputs @ torch.randn(16, 4, generator=generator)
    data = TensorDataset(inputs, targets)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=64 // world, sampler=sampler)
    torch.manual_seed(rank)  # different on purpose: DDP must bring every rank to rank 0's weights
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    first = last = None
    for epoch in range(5):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        last = (total[0] / total[1]).item()
        first = first if first is not None else last
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = [torch.zeros_like(weights) for _ in range(world)]
    dist.all_gather(everyone, weights)
    assert all(torch.equal(weights, other) for other in everyone), "ranks hold different weights"
    assert last < first / 4, (first, last)
    dist.barrier()
    print(f"torch rank {rank} of {world}: loss {first:.4f} -> {last:.4f}", flush=True)


if __name__ == "__main__":
    main()
