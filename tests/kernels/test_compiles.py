"""Kernels compile for other GPUs than the one at hand, or for none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = """
import sys
import torch
from tests.kernels.absent import Compiled, compile_only, target
arch = int(sys.argv[1])
target(arch)
from kernels import attention_launch, covariance, fused_elementwise, packing
from kernels import packed_attention_launch, window_attention
from tests.kernels.cases import Case, make
from kernels.plan import Config, Joined
from kernels.planes import Channels
from kernels.elementwise_reference import PLAIN
from kernels.samples import sample_elementwise, sample_window
"""
EVERY = """
compile_only(packed_attention_launch, arch, "digits_kernel", "merge_kernel")
compile_only(attention_launch, arch, "split_kernel", "joined_kernel", "merge_kernel")
compile_only(packing, arch, "pack_kernel", "steps_kernel")
compile_only(covariance, arch, "covariance_kernel", "join_kernel")
compile_only(window_attention, arch, "rows_kernel", "tokens_kernel")
compile_only(fused_elementwise, arch, "norm_kernel", "gate_kernel", "rotate_kernel")
for work in PLAIN:
    given = sample_elementwise(work, torch.device("cpu"), torch.bfloat16)
    getattr(fused_elementwise, work)(*given)
q, visual, text = make(Case(torch.bfloat16, N=300, M=32, k=32, pack="planes"), "cpu")
packed_attention_launch.attend_planes(q, visual, text, 0.1)
q, visual, text = make(Case(torch.bfloat16, N=300, M=32, k=32), "cpu")
for config in (Config(block_m=16), Config(block_m=16, joined=Joined())):
    attention_launch.attend_triton(q, visual, text, 0.1, config=config)
states, steps = torch.zeros(1, 2, 130, 128, dtype=torch.bfloat16), torch.ones(1, 2, 16)
counts = torch.tensor([[[16, 0, 0, 0]] * 2], dtype=torch.int32)
packing.pack_states(states, states[:, :, 0], torch.zeros(1, 2, 128, 16), counts, steps)
channels = Channels(states[:, :, 0], torch.zeros(1, 2, 128, 16), steps, counts)
packing.steps_of(states, channels, torch.ones(1, 130), torch.full((1,), 130, dtype=torch.int32))
covariance.covariance(states, None, torch.ones(1, 130), torch.bfloat16)
window_attention.window_attention(sample_window(torch.device("cpu"), torch.bfloat16))
assert all(each.metadata.shared <= 99 << 10 for each in Compiled.found[-2:])  # sm_120 has no more
print(*sorted(each.metadata.name for each in Compiled.found))
"""


def compiled(script: str, *args: object) -> list[str]:
    """The output of the script in a process whose Triton compiles for an architecture."""
    found = subprocess.run(
        [sys.executable, "-c", START + script, *map(str, args)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90, 120])
def test_kernels_compile_without_a_gpu(arch: int) -> None:
    names = ["covariance_kernel", "digits_kernel", "gate_kernel"]
    names += ["join_kernel", "joined_kernel", *["merge_kernel"] * 3, "norm_kernel"]
    names += [
        "pack_kernel",
        "rotate_kernel",
        "rows_kernel",
        "split_kernel",
        "steps_kernel",
        "tokens_kernel",
    ]
    assert compiled(EVERY, arch) == names
