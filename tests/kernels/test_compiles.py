"""Kernels compile for other GPUs than the one at hand, or for none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERY = """
import sys, torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

arch, cpu = int(sys.argv[1]), torch.device("cpu")

class Absent:
    get_current_target = staticmethod(lambda: GPUTarget("cuda", arch, 32))
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device=0: 0)
    get_active_torch_device = staticmethod(lambda: cpu)

class Compiled:  # in place of a kernel: a launch compiles it and runs nothing
    found = []

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *args, **options: self.found.append(
            self.kernel.warmup(*args, grid=grid, **options)
        )

driver.set_active(Absent())  # before kernels load
from kernels import attention_launch, covariance, fused_elementwise, packing
from kernels import packed_attention_launch, window_attention
from tests.kernels.cases import Case, make
from kernels.plan import Config, Joined
from kernels.planes import Channels
from kernels.elementwise_reference import PLAIN
from kernels.samples import sample_elementwise, sample_window

for module in (
    packed_attention_launch, attention_launch, packing, covariance, window_attention,
    fused_elementwise,
):
    for name, value in list(vars(module).items()):
        if name.endswith("_kernel"):
            setattr(module, name, Compiled(value))
    module.device_facts = lambda device: (arch, 100)
for work in PLAIN:
    given = sample_elementwise(work, cpu, torch.bfloat16)
    getattr(fused_elementwise, work)(*given)
q, visual, text = make(Case(torch.bfloat16, N=300, M=32, k=32, pack="planes"), "cpu")
packed_attention_launch.attend_packed(q, visual, text, 0.1)
q, visual, text = make(Case(torch.bfloat16, N=300, M=32, k=32), "cpu")
for config in (Config(block_m=16), Config(block_m=16, joined=Joined())):
    attention_launch.attend_triton(q, visual, text, 0.1, config=config)
states, steps = torch.zeros(1, 2, 130, 128, dtype=torch.bfloat16), torch.ones(1, 2, 16)
counts = torch.tensor([[[16, 0, 0, 0]] * 2], dtype=torch.int32)
where = False, torch.tensor([[0, 512]]), 1024
packing.pack_states(states, states[:, :, 0], torch.zeros(1, 2, 128, 16), counts, steps, *where)
channels = Channels(states[:, :, 0], torch.zeros(1, 2, 128, 16), steps, counts)
packing.steps_of(states, channels, torch.ones(1, 130), torch.full((1,), 130, dtype=torch.int32))
covariance.covariance(states, None, torch.ones(1, 130), torch.bfloat16)
window_attention.window_attention(sample_window(cpu, torch.bfloat16))
assert all(each.metadata.shared <= 99 << 10 for each in Compiled.found[-2:])  # sm_120 has no more
print(*sorted(each.metadata.name for each in Compiled.found))
"""


NAMES = """
covariance_kernel digits_kernel gate_kernel join_kernel joined_kernel merge_kernel merge_kernel
merge_kernel norm_kernel pack_kernel rotate_kernel rows_kernel split_kernel steps_kernel
tokens_kernel
"""


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90, 120])
def test_kernels_compile_without_a_gpu(arch: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", EVERY, str(arch)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == NAMES.split()
