"""Exported C functions, called by a C program in two threads, agree with the functions in Python; their files need no library."""

import dataclasses
import functools
import itertools
import platform
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
import numpy as np
import pytest

import jaxdyn
from jaxdyn import dynamics, library
from jaxdyn.compute import per_sample
from jaxdyn.io import export_c

BATCH = 64
PANDA, LINKAGE = library.panda(), library.system("four_bar")
SINGLE = jaxdyn.as_dtype(PANDA, jnp.float32)
TABLE = np.random.default_rng(1).normal(size=(10, 3))
LOSS = jnp.linspace(-1.0, 1.0, 7)


def block() -> jaxdyn.System:
    """A pendulum whose tip hits a floor."""
    model = library.double_pendulum()
    tip = jnp.array([[0.0, 0.0, -1.0]])
    floor = dynamics.GroundContact(
        (1,), tip, jnp.zeros(1), dynamics.ContactMaterial.of(model), dynamics.HalfSpace((0.0, 0.0, 1.0), -1.8)
    )
    return jaxdyn.System(model, forces=(floor,))


BLOCK = block()


def step(state):
    return jaxdyn.rollout(BLOCK, state, dt=1e-3, steps=5, save_every=5).final


def gradient(q, v, tau):
    return jax.grad(lambda *x: jnp.dot(LOSS, jaxdyn.forward_dynamics(PANDA, *x)), argnums=(0, 1, 2))(q, v, tau)


def of_everything(new, unused, pair):
    """All types of arrays, names that are words of C++ or equal in C, an unused argument, and angles that are very large."""
    x, (n, on) = pair["double"], pair["n"]
    far = jnp.concatenate([jnp.sin(x * 1e13), jnp.tan(x * 1e13)])
    total = jnp.matmul(new, new.T) + jnp.where(on, x, jnp.fmod(x, 0.3))[:, None]
    return (
        {"a b": total, "a_b": n // 3, "far": far},
        on ^ (x > 0),
        jnp.zeros((0, 2)),
        jnp.exp(x)[0],
        jnp.asarray(TABLE)[jnp.abs(n)],
    )


@dataclasses.dataclass
class Case:
    """A function, its specs, and samples of its arguments with a leading axis."""

    function: Callable
    samples: Any

    @property
    def specs(self):
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self.samples)


def cases() -> dict[str, Case]:
    rng = np.random.default_rng(0)
    panda = tuple(rng.normal(size=(3, BATCH, 7)))
    hinges = jaxdyn.State(*jnp.asarray(rng.normal(0, 0.2, (2, BATCH, 2))))
    given = rng.normal(size=(BATCH, 4, 40)), rng.normal(size=(BATCH, 5)), {
        "double": rng.normal(size=(BATCH, 4)), "n": (rng.integers(-9, 9, (BATCH, 2), np.int8), rng.random((BATCH, 4)) < 0.5)
    }  # fmt: skip
    start = jax.vmap(lambda q, v: jaxdyn.State(q, v))(*rng.normal(0, 0.3, (2, BATCH, LINKAGE.model.nv)))
    return {
        "forward": Case(lambda q, v, tau: jaxdyn.forward_dynamics(PANDA, q, v, tau), panda),
        "forward_single": Case(lambda q, v, tau: jaxdyn.forward_dynamics(SINGLE, q, v, tau), tuple(np.float32(panda))),
        "gradient": Case(gradient, panda),
        "linkage": Case(lambda state: dynamics.acceleration(LINKAGE, state), (start,)),
        "contact": Case(step, (hinges,)),
        "everything": Case(of_everything, given),
    }


CASES = cases()
FLAGS = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-O2"]
# ELF machine of each target, its C compiler, and the program that runs its code on another processor.
MACHINES = {"x86-64": 62, "aarch64": 183}
COMPILERS = {"x86-64": ["x86_64-linux-gnu-gcc"], "aarch64": ["aarch64-linux-gnu-gcc"]}
RUNNERS = {"x86-64": "qemu-x86_64", "aarch64": "qemu-aarch64"}
MAIN = """
#include <pthread.h>
#include <stdio.h>
%(includes)s

static double data[%(doubles)d];

static void *work(void *argument) {
    _Alignas(64) char workspace[%(workspace)s];
    char *at = (char *)data;
    for (int repetition = 0; repetition < 5; ++repetition) {
        for (long k = *(int *)argument; k < %(batch)d; k += 2) {
            %(calls)s
        }
    }
    return NULL;
}

int main(void) {
    int first[2] = {0, 1};
    pthread_t other;
    if (fread(data, 1, sizeof data, stdin) != sizeof data || pthread_create(&other, NULL, work, &first[1])) return 1;
    work(&first[0]);
    pthread_join(other, NULL);
    return fwrite(data, 1, sizeof data, stdout) != sizeof data;
}
"""


@functools.cache
def expected() -> dict[str, list[np.ndarray]]:
    """Results of the compiled Python functions, one sample after the other."""
    found = {}
    for name, case in CASES.items():
        one = per_sample(case.function)
        every = jax.jit(functools.partial(jax.lax.map, lambda x, one=one: one(*x)))
        found[name] = [np.asarray(x) for x in jax.tree.leaves(every(case.samples))]
    return found


def results_in_c(folder: Path, compiler: list[str], runner: list[str]) -> dict[str, list[np.ndarray]]:
    """Results of a C program, which reads and writes all arrays, one after the other."""
    arrays, starts, calls, length = {}, {}, [], 0
    for name, case in CASES.items():
        given = [np.asarray(x) for x in jax.tree.leaves(case.samples)]
        arrays[name] = [*given, *(np.zeros_like(x) for x in expected()[name])]
        *starts[name], length = itertools.accumulate((-(-x.nbytes // 8) * 8 for x in arrays[name]), initial=length)
        pairs = zip(starts[name], arrays[name], strict=True)
        pointers = [f"(void *)(at + {start} + k * {x.nbytes // BATCH})" for start, x in pairs]
        calls.append(f"{name}({', '.join(pointers)}, workspace);")
    text = MAIN % {
        "includes": "\n".join(f'#include "{name}.h"' for name in CASES),
        "doubles": length // 8,
        "workspace": " + ".join(f"{name.upper()}_WORKSPACE_BYTES" for name in CASES),
        "batch": BATCH,
        "calls": "\n            ".join(calls),
    }
    (folder / "main.c").write_text(text)
    files = ["main.c", *(f"{name}.o" for name in CASES)]
    subprocess.run([*compiler, "-std=c11", *FLAGS, "-o", "main", *files, "-pthread"], cwd=folder, check=True)
    memory = bytearray(length)
    for name in CASES:
        for start, x in zip(starts[name], arrays[name], strict=True):
            memory[start : start + x.nbytes] = x.tobytes()
    done = subprocess.run([*runner, folder / "main"], input=memory, capture_output=True, check=True)
    return {
        name: [
            np.frombuffer(done.stdout, x.dtype, x.size, start).reshape(x.shape)
            for start, x in list(zip(starts[name], arrays[name], strict=True))[-len(expected()[name]) :]
        ]
        for name in CASES
    }


@pytest.fixture(scope="module", params=MACHINES)
def exported(request, tmp_path_factory):
    """Target, and folder with the files of all cases."""
    folder = tmp_path_factory.mktemp(request.param)
    for name, case in CASES.items():
        export_c(case.function, case.specs, folder / name, target=request.param)
    return request.param, folder


def sections_of(code: bytes) -> dict[str, bytes]:
    """Contents of the sections of a 64-bit ELF file; zeros for those that are not in the file."""
    (start,), (count, of_names) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<HH", code, 60)
    found = [struct.unpack_from("<IIQQQQ", code, start + 64 * k) for k in range(count)]
    names = code[found[of_names][4] :]
    return {
        names[name : names.index(b"\0", name)].decode(): bytes(size) if kind == 8 else code[first : first + size]
        for name, kind, _, _, first, size in found
    }


def test_object_files_need_no_library_and_have_no_data_that_can_be_written(exported):
    target, folder = exported
    for name in CASES:
        code = (folder / f"{name}.o").read_bytes()
        assert struct.unpack_from("<H", code, 18) == (MACHINES[target],)
        sections = sections_of(code)
        _, *symbols = struct.iter_unpack("<IBBHQQ", sections[".symtab"])
        assert len([s for s in symbols if s[1] >> 4 == 1]) == 1  # only the function is global
        assert [s for s in symbols if s[3] == 0] == []  # none is undefined
        assert not [s for s in sections if s.startswith((".data", ".bss", ".tdata", ".tbss")) and sections[s]]
        assert ".note.GNU-stack" in sections  # otherwise linkers make the stack executable


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C compiler")
@pytest.mark.parametrize("compiler", [["gcc", "-std=c99", "-xc"], ["g++", "-std=c++11", "-xc++"]], ids=["C", "C++"])
def test_headers_compile_without_warnings(exported, compiler):
    _, folder = exported
    headers = [f"-include{folder / name}.h" for name in CASES]
    subprocess.run([*compiler, *FLAGS, "-fsyntax-only", *headers, "/dev/null"], check=True)


def test_a_c_program_with_two_threads_agrees_with_python(exported):
    target, folder = exported
    is_host = target.replace("-", "_") == platform.machine()
    if is_host and target == "x86-64" and not llvm.get_host_cpu_features().get("fma"):
        pytest.skip("the processor lacks instructions of x86-64-v3")
    compiler, runner = (["gcc"], []) if is_host else ([*COMPILERS[target], "-static"], [RUNNERS[target]])
    if missing := [tool for tool in (compiler[0], *runner) if shutil.which(tool) is None]:
        pytest.skip(f"there is no {missing[0]}")
    got = results_in_c(folder, compiler, runner)
    for name, results in expected().items():
        for k, (x, y) in enumerate(zip(got[name], results, strict=True)):
            where = f"{name}, result {k}"
            if not is_host and y.dtype.kind == "f" and y.size:  # products and sums are fused in other places
                rounding = np.finfo(y.dtype).eps * (1e6 if name == "contact" else 1e3)  # contacts are stiff
                np.testing.assert_allclose(x, y, 0, rounding * np.abs(y).max(), err_msg=where)
            elif (name, k) == ("everything", 2):  # in Python, libm reduces these angles
                np.testing.assert_array_max_ulp(x, y, 3)
            else:
                np.testing.assert_array_equal(x, y, where)


VECTOR = jax.ShapeDtypeStruct((3,), jnp.float32)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("function", "specs", "name", "options", "message"),
    [
        (jnp.linalg.eigvalsh, (jnp.eye(3),), "f", {}, "'eigh' has no scalar form"),
        (jnp.sin, (VECTOR,), "arm", {"target": "arm64"}, "no target 'arm64'.*use one of x86-64, aarch64, native"),
        (jnp.sin, (VECTOR,), "arm.o", {}, "'arm.o' cannot be the name of a C function"),
        (jnp.sin, (VECTOR,), "double", {}, "'double' cannot be the name of a C function"),
        (jnp.sin, (VECTOR,), "sinf", {}, "'sinf' cannot be the name of a C function"),
        (jnp.sin, (VECTOR,), "f/g", {}, "f/g: cannot be written"),
        (lambda x, y: x, (VECTOR,), "f", {}, "missing a required argument: 'y'"),
        (lambda x, dt: x * dt, (VECTOR, 0.1), "f", {}, "dt is 0.1, which C could not change"),
        (lambda x: x, ((VECTOR, jax.random.key(0)),), "f", {}, "x_1 is a random key; .*jax.random.key_data"),
        (lambda x: None, (VECTOR,), "f", {}, "returns no array"),
    ],
)
def test_what_cannot_be_exported_is_named_with_a_remedy(function, specs, name, options, message, tmp_path):
    (tmp_path / "f").write_text("a file, not a folder")
    with pytest.raises((jaxdyn.Error, TypeError), match=message):
        export_c(function, specs, tmp_path / name, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_double_precision_needs_the_setting_of_jax_and_jit_is_refused(tmp_path):
    with jax.enable_x64(False), pytest.raises(TypeError, match=r"x is float64, which needs jax\.config\.update"):
        export_c(lambda x: x, (np.zeros(3),), tmp_path / "f")
    with pytest.raises(jaxdyn.Error, match="call it outside of jit"):
        jax.jit(lambda x: export_c(jnp.sin, (x,), tmp_path / "f"))(1.0)
