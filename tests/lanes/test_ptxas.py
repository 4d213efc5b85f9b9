"""What ptxas, the compiler within every driver of NVIDIA, makes of kernels: registers, spills and instructions."""

import functools
import re
import subprocess
import sys
from importlib import util
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
from peers.mechanisms import mechanism

import jaxdyn
from jaxdyn.lanes import gpu
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.ptx_code import launch_for

# Shapes are checked by the tests of the functions themselves; here the checks would take most of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

ARCHITECTURES = ("sm_80", "sm_90", "sm_120")
BATCH, MULTIPROCESSORS = 65536, 132


def tools() -> Path | None:
    """Folder of ptxas and cuobjdump, as the wheels of NVIDIA install them."""
    found = util.find_spec("nvidia")
    folders = [Path(place) / "cu13" / "bin" for place in found.submodule_search_locations or []] if found else []
    return next((f for f in folders if (f / "ptxas").exists() and (f / "cuobjdump").exists()), None)


def dynamics(model):
    def function(q, v, tau):
        return jaxdyn.forward_dynamics(model, q, v, tau)

    return function, 3 * [(model.nv,)]


def products(model):
    """Forward dynamics with its derivatives times a vector."""
    function, shapes = dynamics(model)

    def with_pull(q, v, tau, w):
        value, pull = jax.vjp(function, q, v, tau)
        return value, pull(w)

    return with_pull, [*shapes, (model.nv,)]


def rollout(model):
    def end(q, v, *torques):
        start = jaxdyn.State(q, v)
        moved = jaxdyn.rollout(jaxdyn.System(model), start, *torques, dt=1e-3, steps=100, save_every=100)
        return moved.final.q, moved.final.v

    return end, 2 * [(model.nv,)]


def gradient(model):
    end, shapes = rollout(model)
    return jax.value_and_grad(lambda *x: jnp.sum(end(*x)[0] ** 2), (0, 1, 2)), [*shapes, (100, model.nv)]


def panda(dtype: str) -> jaxdyn.Model:
    return jaxdyn.as_dtype(jaxdyn.library.panda(), jnp.dtype(dtype))


PROGRAMS = {
    "forward dynamics, float32": lambda: (dynamics(panda("float32")), "float32"),
    "rollout, float32": lambda: (rollout(panda("float32")), "float32"),
    "forward dynamics, float64": lambda: (dynamics(panda("float64")), "float64"),
    "products, float32": lambda: (products(panda("float32")), "float32"),
    "gradient of a rollout, float32": lambda: (gradient(panda("float32")), "float32"),
    "chain of 16, float32": lambda: (dynamics(mechanism("chain 16", "float32")), "float32"),
    "tree of 27, float32": lambda: (dynamics(mechanism("tree 27", "float32")), "float32"),
}
# For the kernels of each program: registers of a thread, bytes that it stores for want of registers, instructions without those of
# functions for large angles, and those of the longest loop over time. Each bound is a few percent above the largest number that
# ptxas 13.5 gives for the three processors, and a tenth for spills, which vary most. The first two must not spill: the whole design
# of the kernel is to keep what is alive in registers.
BUDGETS = {
    "forward dynamics, float32": (170, 0, 2450, 0),
    "rollout, float32": (210, 0, 2500, 2450),
    "forward dynamics, float64": (255, 260, 3750, 0),
    # The derivative of a vector product is the sum of two products, whose operands live longer than those of single components: 688
    # bytes are spilled instead of 524, in 4700 instructions instead of 4745.
    "products, float32": (255, 760, 4800, 0),
    "gradient of a rollout, float32": (255, 580, 6850, 4150),
    "chain of 16, float32": (255, 2110, 8850, 0),
    # The largest of each of two kernels; the loop is that over samples. The cache of a multiprocessor holds 8000 instructions.
    "tree of 27, float32": (255, 215, 6700, 5500),
}
# The long one takes ptxas 5 s for each processor.
CASES = [(name, a) for name in PROGRAMS for a in ARCHITECTURES if "of 16" not in name or a == "sm_90"]


@functools.cache
def kernels_of(name: str) -> list[str]:
    """Code of the kernels of a program."""
    (function, shapes), dtype = PROGRAMS[name]()
    avals = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in shapes]
    program = program_of(traced(lambda *x: jax.tree.leaves(function(*x)), avals))
    layouts = ["rows"] * len(program.inputs), ["rows"] * len(program.outputs)
    kernels = gpu.Kernels(program, *layouts, BATCH, launch_for(BATCH, MULTIPROCESSORS))
    return [kernel.ptx for kernel in kernels.launched]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "architecture"), CASES)
def test_budgets_of_processors(name, architecture, tmp_path):
    folder = tools()
    if folder is None:
        pytest.skip("there are no ptxas and cuobjdump; install nvidia-cuda-nvcc and nvidia-cuda-cuobjdump")
    found = [costs(folder, architecture, code, tmp_path) for code in kernels_of(name)]
    assert len(found) == (2 if name == "tree of 27, float32" else 1)
    largest = tuple(map(max, zip(*found, strict=True)))
    assert all(x <= most for x, most in zip(largest, BUDGETS[name], strict=True)), (found, BUDGETS[name])


def costs(folder: Path, architecture: str, ptx: str, directory: Path) -> tuple[int, int, int, int]:
    """Registers, spilled bytes, instructions, and instructions of the longest loop of a kernel."""
    code, binary = directory / "kernel.ptx", directory / "kernel.cubin"
    code.write_text(ptx)
    command = [folder / "ptxas", f"-arch={architecture}", "-v", code, "-o", binary]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    registers = int(re.findall(r"Used (\d+) registers", done.stderr)[0])
    spilled = int(re.findall(r"Function properties for lanes\n.*?(\d+) bytes spill stores", done.stderr)[0])
    text = subprocess.check_output([folder / "cuobjdump", "-sass", binary], text=True)
    instructions, in_loop = counted(text)
    return registers, spilled, instructions, in_loop


def counted(text: str) -> tuple[int, int]:
    """Instructions of the kernel, and of its longest loop within a sample, if there is one."""
    listed = re.findall(r"^\s+/\*([0-9a-f]{4,5})\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9_]+)\S*\s*(.*?);", text, re.MULTILINE)
    places = [(int(address, 16), name, rest) for address, name, rest in listed if name != "NOP"]
    # After its return come the jump to the next sample, and functions that it calls.
    last = max(k for k, (_, name, _) in enumerate(places) if name == "EXIT")
    own = places[: last + 1]
    jumps = [(int(rest.split("0x")[-1], 16), at) for at, name, rest in own if name == "BRA"]
    loops = [sum(to <= at <= end for at, _, _ in own) for to, end in jumps if to < end]
    return len(own), max(loops, default=0)
