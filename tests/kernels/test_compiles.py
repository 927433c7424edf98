"""The kernels for planes compile for other GPUs than the one at hand, or for none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

arch = int(sys.argv[1])


class Absent:
    \"\"\"A driver that knows its target, and nothing else.\"\"\"

    get_current_target = staticmethod(lambda: GPUTarget("cuda", arch, 32))
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device=0: 0)
    get_active_torch_device = staticmethod(lambda: torch.device("cpu"))


driver.set_active(Absent())
from kernels import launch_planes, packing
from kernels.cases import Case, make

found = []


class Compiled:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *args, **options: found.append(
            self.kernel.warmup(*args, grid=grid, **options)
        )


for module, name in (
    (launch_planes, "digits_kernel"), (launch_planes, "merge_kernel"), (packing, "pack_kernel")
):
    setattr(module, name, Compiled(getattr(module, name)))
    module.device_facts = lambda device: (arch, 100)
q, visual, text = make(Case(torch.bfloat16, N=300, k=32, pack="planes"), "cpu")
launch_planes.attend_planes(q, visual, text, 0.1)
states, steps = torch.zeros(1, 2, 130, 128, dtype=torch.bfloat16), torch.ones(1, 2, 16)
counts = torch.tensor([[[16, 0, 0, 0]] * 2], dtype=torch.int32)
packing.pack_states(states, states[:, :, 0], torch.zeros(1, 2, 128, 16), counts, steps)
print(*sorted(each.metadata.name for each in found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90, 120])
def test_planes_compile_without_a_gpu(arch: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(arch)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert found.stdout.split() == ["digits_kernel", "merge_kernel", "pack_kernel"], found.stderr
