"""A function is traced once per structure, in this process and in later ones, and its results are those of tracing it."""

import dataclasses
import functools
import gc
import json
import os
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

import jaxdyn
import jaxdyn.compute.arrays
from jaxdyn.cache import directory, location, set_directory
from jaxdyn.compute import stored_jit
from jaxdyn.lanes import arguments, stored
from jaxdyn.lanes.flatten import RULES, rule

MODEL = jaxdyn.library.double_pendulum()
Q = jnp.array([0.3, -0.5])


def heavier(model: jaxdyn.Model, factor: float = 2.0) -> jaxdyn.Model:
    return eqx.tree_at(lambda m: m.mass, model, factor * model.mass)


SETTINGS_OF_JAX = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def folder(tmp_path):
    """An empty folder in use, none of JAX's own, and a process that knows no program."""
    usual, settings = directory(), {name: getattr(jax.config, name) for name in SETTINGS_OF_JAX}
    set_directory(tmp_path / "programs")
    jax.config.update("jax_compilation_cache_dir", None)
    reset_cache()
    jax.clear_caches()
    yield tmp_path / "programs"
    set_directory(usual)
    for name, value in settings.items():
        jax.config.update(name, value)
    reset_cache()
    jax.clear_caches()


@pytest.fixture
def traced(monkeypatch):
    """Names of the functions that are traced, in order."""
    found = []
    made = stored._Stored._made

    def counted(self, *args):
        found.append(self._label)
        return made(self, *args)

    monkeypatch.setattr(stored._Stored, "_made", counted)
    return found


def test_programs_that_jax_finds_on_disk_are_not_stored_once_more(folder):
    """XLA would store them without their code."""
    jax.config.update("jax_compilation_cache_dir", str(folder / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    reset_cache()
    flip = stored_jit(jnp.flip)
    for place in ("first", "second", "second"):
        set_directory(folder / place)
        np.testing.assert_array_equal(flip(Q), Q[::-1])
        jax.clear_caches()
    assert list((folder / "first").glob("*.program"))
    assert not list((folder / "second").glob("*.program"))


def test_programs_with_a_rule_of_the_user_serve_no_process_without_it(folder, traced, extensions):
    """With emptied caches in between, this process knows as little of the first one as another process does."""
    right = jax.jit(jaxdyn.mass_matrix)(MODEL, Q)
    usual = RULES["cos"]

    def rough(flat, equation, args):
        return flat.closed(jax.make_jaxpr(lambda x: 1.0 - 0.5 * x * x)(equation.invars[0].aval), args)

    for _ in range(2):
        rule("cos")(rough)
        assert np.max(np.abs(jaxdyn.mass_matrix(MODEL, Q) - right)) > 1e-6
        RULES["cos"] = usual
        extensions.clear()
        jax.clear_caches()
        np.testing.assert_allclose(jaxdyn.mass_matrix(MODEL, Q), right, rtol=1e-13)
    assert traced == ["mass_matrix"] * 2  # the second time both are found in the folder


def test_other_numbers_and_later_calls_are_not_traced(folder, traced):
    first = jaxdyn.mass_matrix(MODEL, Q)
    second = jaxdyn.mass_matrix(heavier(MODEL), 2.0 * Q)
    assert traced == ["mass_matrix"]
    np.testing.assert_allclose(first, jax.jit(jaxdyn.mass_matrix)(MODEL, Q), rtol=1e-13)
    np.testing.assert_allclose(second, jax.jit(jaxdyn.mass_matrix)(heavier(MODEL), 2.0 * Q), rtol=1e-13)
    jaxdyn.mass_matrix(MODEL, Q, method="closed_form")
    jaxdyn.mass_matrix(jaxdyn.as_dtype(MODEL, jnp.float32), Q.astype(jnp.float32))
    assert traced == ["mass_matrix"] * 3


ARRAYS = {
    "floats": Q,
    "float32 next to float64": Q.astype(jnp.float32),
    "integers": jnp.array([3, -4], jnp.int8),
    "unsigned integers": jnp.array([3, 4], jnp.uint64),
    "truth values": jnp.array([True, False]),
    "complex numbers": jax.lax.complex(Q, Q),
    "a number": jnp.array(0.3, jnp.float32),
    "no numbers": jnp.zeros((0, 3)),
}


@pytest.mark.parametrize("numpy_first", [False, True])
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_numpy_and_of_jax_are_one_program(folder, traced, kind, numpy_first):
    """For a function, for one that is created again at each call, and for later processes."""
    x = ARRAYS[kind]
    same = stored_jit(jnp.flip)
    for way in (same, lambda x: stored_jit(jnp.flip)(x)):
        for argument in (np.asarray(x), x) if numpy_first else (x, np.asarray(x)):
            found = way(argument)
            assert isinstance(found, jax.Array)
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, np.flip(x))
    assert traced == ["flip"]
    jax.clear_caches()
    same(x if numpy_first else np.asarray(x))
    assert traced == ["flip"]


def test_programs_are_read_after_jax_has_forgotten_them(folder, traced):
    expected = jaxdyn.mass_matrix(MODEL, Q)
    jax.clear_caches()
    np.testing.assert_array_equal(jaxdyn.mass_matrix(MODEL, Q), expected)
    assert traced == ["mass_matrix"]


def test_a_process_remembers_a_bounded_number_of_programs(folder, monkeypatch):
    monkeypatch.setattr(stored.Programs, "most", 3)
    product, total = stored._Stored(jnp.multiply), stored._Stored(jnp.add)
    for size in range(1, 8):
        ones = jnp.ones(size), jnp.ones(size)
        np.testing.assert_array_equal(product(ones, {}), np.ones(size))
        np.testing.assert_array_equal(total(ones, {}), np.full(size, 2.0))
        assert len(stored._programs._table) <= 3
        assert len(stored._named._table) <= 3


def test_the_program_that_was_not_used_for_the_longest_time_goes_first(folder, monkeypatch, traced):
    monkeypatch.setattr(stored.Programs, "most", 2)
    flip = stored_jit(lambda x: x[::-1])
    for size in (1, 2, 1, 3, 1):
        flip(jnp.ones(size))
    assert len(traced) == 3


def test_a_module_is_remembered_as_long_as_it_exists():
    def known() -> int:
        gc.collect()
        return len(arguments._remembered.table)

    before = known()
    model = heavier(MODEL)
    for _ in range(3):
        jaxdyn.mass_matrix(model, Q)
    assert known() == before + 1
    del model
    assert known() == before


def test_remembered_checks_are_those_of_each_shape_and_of_each_model():
    for _ in range(2):
        expected = jax.jit(jaxdyn.mass_matrix)(heavier(MODEL), Q)
        np.testing.assert_allclose(jaxdyn.mass_matrix(heavier(MODEL), Q), expected, rtol=1e-13)
        with pytest.raises(ValueError, match=r"q has shape \(1,\)"):
            jaxdyn.mass_matrix(MODEL, Q[:1])
        with pytest.raises(jaxdyn.MechanismError, match="no body of mechanism"):
            jaxdyn.mass_matrix(heavier(MODEL, 0.0), Q)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Gain:
    """A pytree whose fields may change."""

    k: jax.Array


class Spring(eqx.Module):
    gain: Gain
    others: tuple[jax.Array, ...]

    def __call__(self, t, state, key):
        return -self.gain.k * state.q


def test_pytrees_that_may_change_are_read_in_each_call():
    policy = Spring(Gain(jnp.ones(())), (Q,) * 6)
    system = jaxdyn.System(MODEL)

    def end():
        return jaxdyn.rollout(system, system.at_rest(Q), policy, dt=0.01, steps=1).final.v

    first = end()
    policy.gain.k = jnp.asarray(9.0)
    assert not np.allclose(end(), first)


def test_the_same_model_serves_both_precisions():
    """In any order: no array is read in another type, and no program is stored under a name of the other one."""
    expected = jaxdyn.mass_matrix(MODEL, Q)
    single, other = jaxdyn.as_dtype(MODEL, jnp.float32), heavier(MODEL)
    with jax.enable_x64(False):
        with pytest.raises(TypeError, match="array of float64, while jax_enable_x64 is off"):
            jaxdyn.mass_matrix(other, jnp.zeros(2))
        assert jaxdyn.mass_matrix(single, jnp.zeros(2)).dtype == jnp.float32
    np.testing.assert_array_equal(jaxdyn.mass_matrix(MODEL, Q), expected)
    assert jaxdyn.mass_matrix(single, Q.astype(jnp.float32)).dtype == jnp.float32


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("wrong", [{1}, np.array(["a"]), [Q]], ids=str)
def test_arguments_of_no_program_are_answered_by_the_checks(wrong):
    with pytest.raises(ValueError, match=r"q (is a (set|list); give an array|has (shape|the type))"):
        jaxdyn.mass_matrix(MODEL, wrong)


def test_a_rollout_that_lanes_refuse_is_flattened_once():
    def policy(t, state, key):
        return jnp.fft.fft(state.q).real

    before = len(jaxdyn.lanes.records())
    system = jaxdyn.System(MODEL)
    jaxdyn.rollout(system, system.at_rest(Q), policy, dt=0.01, steps=1)
    assert [record.name for record in jaxdyn.lanes.records()[before:] if record.backend == "xla"] == ["rollout"]


def test_arrays_that_may_change_are_read_in_each_call():
    mass = np.array(MODEL.mass)
    model = eqx.tree_at(lambda m: m.mass, MODEL, mass)
    np.testing.assert_array_equal(jaxdyn.mass_matrix(model, Q), jaxdyn.mass_matrix(MODEL, Q))
    mass *= 2.0
    np.testing.assert_array_equal(jaxdyn.mass_matrix(model, Q), jaxdyn.mass_matrix(heavier(MODEL), Q))


def damaged(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def other_content(path):
    location.files().write(path.name, b"a program of another kind")


@pytest.mark.parametrize(
    ("ending", "harm"),
    # Machine code with a right checksum is trusted.
    [("program", damaged), ("program", os.unlink), ("program", other_content), ("code", damaged), ("code", os.unlink)],
)
def test_what_cannot_be_read_is_compiled_again(folder, traced, ending, harm):
    expected = jaxdyn.mass_matrix(MODEL, Q)
    paths = [path for path in folder.iterdir() if path.suffix == f".{ending}"]
    assert paths
    for path in paths:
        harm(path)
    jax.clear_caches()
    stored.cpu._free_unheld()
    np.testing.assert_array_equal(jaxdyn.mass_matrix(MODEL, Q), expected)
    jax.clear_caches()
    np.testing.assert_array_equal(jaxdyn.mass_matrix(MODEL, Q), expected)
    assert len(traced) == 2


def test_functions_within_functions_are_known_by_what_they_close_over(folder, traced):
    def of_batch(model):
        return stored_jit(jax.vmap(functools.partial(jaxdyn.potential_energy, model)))(jnp.stack([Q, 2.0 * Q]))

    first, same, other = of_batch(MODEL), of_batch(heavier(MODEL, 1.0)), of_batch(heavier(MODEL))
    assert traced == ["potential_energy"] * 2
    np.testing.assert_array_equal(first, same)
    np.testing.assert_allclose(other, 2.0 * first, rtol=1e-13)


def test_functions_of_a_user_are_traced_once_and_not_stored(folder, traced):
    def policy(t, state, key):
        return -state.v

    def end(policy):
        return jaxdyn.rollout(jaxdyn.System(MODEL), jaxdyn.State(Q, Q), policy, dt=1e-3, steps=5).final.v

    expected = end(policy)
    np.testing.assert_array_equal(end(policy), expected)
    assert traced == ["rollout"]
    assert np.all(end(lambda t, state, key: 0.0 * state.v) != expected)
    assert traced == ["rollout"] * 2
    assert not [path for path in folder.iterdir() if path.suffix == ".program"]


def test_within_jit_a_function_is_a_part_of_the_program_around_it(folder, traced):
    def energy(q):
        return jaxdyn.potential_energy(MODEL, q)

    inner = jax.make_jaxpr(energy)(Q)
    assert {e.primitive.name for e in inner.eqns} == {"lane_call"}
    jax.jit(energy)(Q)
    jax.jit(jax.vmap(jax.grad(energy)))(jnp.stack([Q, Q]))
    jax.lax.scan(lambda q, _: (q - energy(q), None), Q, None, length=2)
    assert traced == []


@pytest.mark.thorough
def test_transformations_outside_jit_give_the_same_as_inside(folder):
    def energy(q):
        return jaxdyn.potential_energy(MODEL, q)

    batch = jnp.stack([Q, 2.0 * Q, -Q])
    for transformed, at in (
        (jax.vmap(energy), batch),
        (jax.grad(energy), Q),
        (jax.hessian(energy), Q),
        (jax.vmap(jax.grad(energy)), batch),
        (lambda q: jax.jvp(energy, (q,), (q,))[1], Q),
        (lambda q: jax.vjp(energy, q)[1](jnp.ones(())), Q),
    ):
        for a, b in zip(jax.tree.leaves(transformed(at)), jax.tree.leaves(jax.jit(transformed)(at)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_without_jit_nothing_is_compiled(folder, traced):
    with jax.disable_jit():
        M = jaxdyn.mass_matrix(MODEL, Q)
    assert traced == []
    np.testing.assert_allclose(jaxdyn.mass_matrix(MODEL, Q), M, rtol=1e-13)


def test_errors_are_those_of_the_function(folder, as_a_user):
    with pytest.raises(ValueError, match="no method"):
        jaxdyn.mass_matrix(MODEL, Q, method="guess")
    with pytest.raises(ValueError, match="shape"):
        jaxdyn.bias_force(MODEL, Q, jnp.zeros(3))
    assert list(folder.iterdir()) == []


LATER = """
    import json, sys
    import jax.numpy as jnp
    import jaxdyn
    import jaxdyn.spatial.factorizations
    from jaxdyn.lanes import stored

    traced = []
    made = stored._Stored._made
    stored._Stored._made = lambda self, *args: (traced.append(self._label), made(self, *args))[1]
    model = jaxdyn.library.double_pendulum()
    q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0])
    system = jaxdyn.library.four_bar()
    loop = jnp.zeros(system.model.nq)
    matrix = jnp.array([[4.0, 2.0], [2.0, 3.0]])
    results = [
        jaxdyn.christoffel_first_kind(model, q),
        jaxdyn.forward_dynamics(model, q, v, v),  # solved by LAPACK where XLA runs it
        jaxdyn.rollout(jaxdyn.System(model), jaxdyn.State(q, v), dt=1e-3, steps=20).final.q,
        jaxdyn.assemble(system, system.at_rest(loop)).q,
        jaxdyn.compute.stored_jit(jaxdyn.spatial.factorizations.cholesky)(matrix),
    ]
    print(json.dumps([traced, [x.tolist() for x in results]]))
"""


def test_a_later_process_traces_nothing_again_and_gets_the_same_bits(tmp_path):
    environment = os.environ | {"JAXDYN_CACHE_DIR": str(tmp_path / "programs")}
    runs = []
    for _ in range(2):
        command = [sys.executable, "-c", textwrap.dedent(LATER)]
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert run.stderr == ""  # XLA logs an error for each program that it loads
        runs.append(json.loads(run.stdout))
    (first, results), (second, same) = runs
    assert results == same
    assert first == ["christoffel_first_kind", "forward_dynamics", "rollout", "assemble", "cholesky"]
    assert second == []


COMPILED = """
    import jax
    import numpy as np
    import jaxdyn
    from jaxdyn import control, identify

    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **about: compiled.append(about) if event.endswith("backend_compile_duration") else None
    )
    system = jaxdyn.library.system("pendulum")
    start = jaxdyn.neutral_state(system)
"""
FIRST_TASKS = {
    "rollout": "print(jaxdyn.rollout(system, start, np.ones((20, 1)), dt=0.01, steps=20).final)",
    "plan": """
        goal = control.TargetState(system.at_rest(np.array([0.5], np.float32)))
        constraints = control.Equality(goal)
        problem = control.ControlProblem(
            control.MultibodyDynamics(system), start, duration=1.0, steps=20, running=control.Effort(),
            final_constraints=constraints,
        )
        print(control.solve(problem, control.Auto(), throw=False).result)
    """,
    "fit": """
        motion = jaxdyn.rollout(system, start, np.ones((100, 1)), dt=0.01, steps=100)
        recording = identify.Recording.of_rollout("run", motion, np.ones((100, 1)))
        windows = identify.cut([recording], duration=0.5, interval=0.02)
        plant = identify.Plant(system, identify.Sensors([1e-3]))
        parameters = identify.Parameters(plant, [identify.Parameter("system.model.mass", chart=identify.Positive())])
        print(identify.fit(identify.OutputError(parameters, windows), max_steps=3, throw=False, progress=False).loss)
    """,
}


@pytest.mark.parametrize("task", ["rollout", *(pytest.param(x, marks=pytest.mark.thorough) for x in ("plan", "fit"))])
def test_a_first_task_compiles_nothing_in_a_later_process(tmp_path, task):
    """Not even a single operation of JAX at a new shape, which costs some 20 ms."""
    environment = os.environ | {"JAXDYN_CACHE_DIR": str(tmp_path / "programs")}
    script = "\n".join(textwrap.dedent(part) for part in (COMPILED, FIRST_TASKS[task], "print(len(compiled))"))
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, capture_output=True, text=True, env=environment, check=True) for _ in range(2)]
    (*first, compiled), (*later, compiled_later) = (run.stdout.split("\n")[:-1] for run in runs)
    assert first == later
    assert int(compiled) > 0
    assert int(compiled_later) == 0


def test_an_empty_variable_switches_the_cache_off(tmp_path):
    script = "import jaxdyn; print(jaxdyn.cache.directory())"
    for value, expected in (("", "None"), (str(tmp_path), str(tmp_path))):
        environment = os.environ | {"JAXDYN_CACHE_DIR": value}
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
        )
        assert run.stdout.strip() == expected


def below_a_file(folder):
    (folder / "file").write_text("")
    return folder / "file" / "cache"


def a_file(folder):
    return below_a_file(folder).parent


def a_link_to_itself(folder):
    (folder / "link").symlink_to(folder / "link")
    return folder / "link"


def open_to_all(folder):
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    return folder / "open"


UNUSABLE = {
    "below a file": below_a_file,
    "a file": a_file,
    "a link to itself": a_link_to_itself,
    "below such a link": lambda folder: a_link_to_itself(folder) / "cache",
    "open to all": open_to_all,
    "of nobody": lambda folder: "~nobody_of_this_name/cache",
    "a long name": lambda folder: folder / ("x" * 300),
}
if sys.platform == "linux":
    UNUSABLE["where nothing can be created"] = lambda folder: "/proc/cache"


@pytest.mark.skipif(os.name != "posix", reason="Windows refuses other folders")
@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_folder_that_cannot_be_used_is_named_in_one_warning_and_calls_go_on(tmp_path, monkeypatch, kind):
    path = str(UNUSABLE[kind](tmp_path))
    monkeypatch.setenv("JAXDYN_CACHE_DIR", path)
    monkeypatch.setattr(location._Chosen, "is_chosen", False)
    with pytest.warns(RuntimeWarning, match="cannot be used") as caught:
        results = [stored_jit(jnp.flip)(Q) for _ in range(2)]
    assert directory() is None
    np.testing.assert_array_equal(results, [np.flip(Q)] * 2)
    (warning,) = caught
    assert len(str(warning.message).splitlines()) == 1
    assert all(word in str(warning.message) for word in ("cache", path, "JAXDYN_CACHE_DIR"))


def test_a_home_folder_without_room_for_a_cache_is_no_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("JAXDYN_CACHE_DIR")
    monkeypatch.setattr(location, "_of_user", lambda: below_a_file(tmp_path))
    monkeypatch.setattr(location._Chosen, "is_chosen", False)
    with caplog.at_level("INFO", "jaxdyn"):
        assert directory() is None
    (record,) = caplog.records
    assert str(tmp_path) in record.getMessage()


@pytest.mark.thorough
def test_a_command_without_a_usable_cache_ends_well_and_says_so_in_one_line(tmp_path):
    environment = os.environ | {"JAXDYN_CACHE_DIR": str(a_file(tmp_path))}
    jaxdyn.io.save_system(jaxdyn.library.system("pendulum"), tmp_path / "pendulum.toml")
    command = [sys.executable, "-m", "jaxdyn", "check", str(tmp_path / "pendulum.toml"), "--states", "1"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    (line,) = [line for line in run.stderr.splitlines() if "cache" in line]
    assert line.startswith(f"jaxdyn: the cache folder {a_file(tmp_path)} cannot be used")
    assert "RuntimeWarning" not in run.stderr


LOOP = """
import jax, jax.numpy as jnp
from jaxdyn.lanes.stored import stored_jit

def end(x):
    def turn(carry, k):
        a, at = carry
        here = a[at[0]]
        a = jax.lax.dynamic_update_slice(a, a[k % 4][None], (at[1],))
        return (a, jnp.roll(at, 1) * jnp.int8(5) + jnp.int8(3)), here
    (a, at), path = jax.lax.scan(turn, (x, jnp.array([64, -9, -9, -9], jnp.int8)), jnp.arange(700))
    return jnp.stack([a[0], path[at[2]], path[350], a[at[3]]])

def slope(x):
    return jax.vjp(end, x)[1](jnp.ones(4))[0].sum()

print(float(stored_jit(slope)(jnp.arange(1.0, 5.0))))
"""


def test_gradients_of_loops_that_update_one_element_are_right_in_stored_programs():
    """The older emitters of XLA lose a part of them. Each result is one element of x, so that all slopes add up to 4."""
    as_user = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run([sys.executable, "-c", LOOP], capture_output=True, text=True, env=as_user)
    assert run.stdout.strip() == "4.0", run.stderr[-500:]
