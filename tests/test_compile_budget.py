"""A budget of compilation: how large the programs of the main functions are, and how often a function of the user is traced.

Sizes are counted, not timed, so they are the same on every machine. They were recorded with JAX 0.10.1; other versions write some
functions a little longer or shorter. A change that makes one much larger fails; one that makes it smaller may lower the number.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from control_problems import regulator, start_of
from first_cases import first
from jaxprs import equations
from recorded import STEP, double_pendulum_plant, simulated

import jaxdyn
from jaxdyn import State, System, control, identify, library
from jaxdyn.compute.hints import written_out
from jaxdyn.identify.levenberg_marquardt import DampedSearch
from jaxdyn.lanes import derived
from jaxdyn.lanes.derived import program_of
from jaxdyn.lanes.flatten import flatten
from jaxdyn.lanes.liveness import Liveness, count_operations

HEADROOM = 1.15


# ---------------------------------------------------------------- equations for XLA


def moving(system: System) -> tuple[System, State]:
    nq, nv = system.model.nq, system.model.nv
    return system, State(jnp.linspace(0.1, 0.7, nq), jnp.linspace(-0.3, 0.2, nv))


def arm() -> tuple[System, State]:
    return moving(System(library.panda()))


def linkage() -> tuple[System, State]:
    return moving(library.four_bar())


def end(system: System, state: State, backend: str = "xla") -> jax.Array:
    """A number of the end of a rollout."""
    return jnp.sum(jaxdyn.rollout(system, state, dt=1e-3, steps=20, save_every=20, backend=backend).final.q)


def fitting() -> tuple[identify.OutputError, DampedSearch]:
    """The masses of a double pendulum from one recording."""
    plant = double_pendulum_plant()
    windows = identify.cut([simulated(plant, 0.5, 1)], duration=0.2, interval=STEP, first=0.05, lead=0.05)
    free = [identify.Parameter("system.model.mass", chart=identify.Positive())]
    problem = identify.OutputError(identify.Parameters(plant, free), windows)
    return problem, jax.eval_shape(lambda: identify.LevenbergMarquardt().init(problem, problem.initial))


def one_fit(problem, fit):
    return identify.LevenbergMarquardt(1e-8).step(problem, fit)


def planning() -> tuple[control.ControlProblem, control.Plan]:
    """A cart-pole whose pole is swung up in 20 steps."""
    upright = State(jnp.zeros(2), jnp.zeros(2))
    problem = control.ControlProblem(
        control.MultibodyDynamics(library.system("cart_pole")),
        State(jnp.array([0.0, jnp.pi]), jnp.zeros(2)),
        duration=1.0,
        steps=20,
        running=lambda dynamics, t, x, u: u @ u,
        lower=-10.0,
        upper=10.0,
        final_constraints=control.Equality(lambda dynamics, t, x, u: dynamics.difference(upright, x)),
    )
    return problem, jax.eval_shape(lambda: control.rollout_controls(problem, jnp.zeros((20, 1))))


def one_iteration(solver):
    """Beginning, one iteration and the solution, without the loop around them."""

    def run(problem, plan):
        return solver.solution(problem, solver.step(problem, solver.init(problem, plan)))

    return run


# name -> function, what makes its arguments, and its equations: for XLA, and for a scalar program. Iterations of searches contain
# scalar programs in both cases.
EQUATIONS = {
    "forward kinematics": (lambda s, x: jaxdyn.forward_kinematics(s.model, x.q), arm, (561, 246)),
    "Christoffel symbols": (lambda s, x: jaxdyn.christoffel_first_kind(s.model, x.q), arm, (783, 318)),
    "acceleration": (jaxdyn.acceleration, arm, (995, 379)),
    "acceleration within a loop": (jaxdyn.acceleration, linkage, (4085, 1445)),
    "rollout": (end, arm, (915, 450)),
    "gradient of a rollout": (jax.grad(end, argnums=(0, 1)), arm, (3877, 1455)),
    "rollout within a loop": (end, linkage, (4828, 1741)),
    "iteration of a fit": (one_fit, fitting, (3003, 2390)),
    "iteration of ILQR": (one_iteration(control.ILQR()), planning, (2714, 2874)),
    "iteration of multiple shooting": (one_iteration(control.MultipleShooting()), planning, (6308, 6571)),
}


@pytest.mark.parametrize("name", first(7, EQUATIONS))
def test_number_of_equations(name):
    function, made, (of_xla, of_scalar_program) = EQUATIONS[name]
    assert number_of_equations(function, made()) <= HEADROOM * of_xla
    with written_out():
        assert number_of_equations(function, made()) <= HEADROOM * of_scalar_program


def number_of_equations(function, arguments) -> int:
    dynamic, static = eqx.partition(arguments, lambda x: eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct))
    jaxpr = jax.make_jaxpr(lambda dynamic: eqx.filter(function(*eqx.combine(dynamic, static)), eqx.is_array))(dynamic)
    return sum(1 for _ in equations(jaxpr.jaxpr))


# ---------------------------------------------------------------- operations of the lane compiler


def of_model(function):
    """A function of q, v and tau with the numbers of the model built in, as a user of `batched` writes it."""
    return lambda system: lambda q, v, tau: function(system.model, q, v, tau)


def step(system: System, state: State, tau) -> jax.Array:
    moved = jaxdyn.rollout(system, state, tau[None], dt=1e-3, steps=1)
    return jnp.concatenate([moved.final.q, moved.final.v])


def of_step(system):
    return lambda q, v, tau: step(system, State(q, v), tau)


FUNCTIONS = {
    "mass matrix": of_model(lambda m, q, v, tau: jaxdyn.mass_matrix(m, q)),
    "inverse dynamics": of_model(jaxdyn.inverse_dynamics),
    "forward dynamics": of_model(jaxdyn.forward_dynamics),
    "step": of_step,
    "gradient of a step": lambda system: jax.grad(lambda *x: jnp.sum(of_step(system)(*x)), argnums=(0, 1, 2)),
}
# mechanism -> function -> operations per sample.
OPERATIONS = {
    "cart_pole": {
        "mass matrix": 35,
        "inverse dynamics": 58,
        "forward dynamics": 67,
        "step": 99,
        "gradient of a step": 163,
    },
    "panda": {
        "mass matrix": 1766,
        "inverse dynamics": 2434,
        "forward dynamics": 3156,
        "step": 3267,
        "gradient of a step": 6266,
    },
    "gyroscope": {
        "mass matrix": 425,
        "inverse dynamics": 605,
        "forward dynamics": 837,
        "step": 1066,
        "gradient of a step": 2117,
    },
    "four_bar": {"step": 1532},
}


@pytest.mark.parametrize("mechanism", OPERATIONS)
def test_operations_of_lane_programs(mechanism):
    system = eqx.tree_at(lambda s: s.drives, library.system(mechanism), None, is_leaf=lambda x: x is None)
    q, v = jnp.ones(system.model.nq), jnp.ones(system.model.nv)
    sizes = {}
    for name in OPERATIONS[mechanism]:
        with written_out():
            jaxpr = jax.make_jaxpr(FUNCTIONS[name](system))(q, v, v)
        program = program_of(jaxpr)
        sizes[name] = count_operations(program, Liveness(program))
    assert {name: size for name, size in sizes.items() if size > HEADROOM * OPERATIONS[mechanism][name]} == {}


# ---------------------------------------------------------------- traces


_EVENTS: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: _EVENTS.append(event.rsplit("/", 1)[-1])
)


class Counted:
    """A function of the user that counts how often Python runs it, which is once per trace."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def __call__(self, *args):
        self.count += 1
        return self.function(*args)


def rolled(policy):
    """A rollout under a policy of the user."""
    system = library.system("cart_pole")
    run = jax.jit(lambda state: jaxdyn.rollout(system, state, policy, dt=1e-2, steps=10).final)
    return lambda x: run(State(x * jnp.ones(2), jnp.zeros(2)))


def differentiated(policy):
    """The gradient of a rollout."""
    system = library.system("cart_pole")

    def final(state):
        return jnp.sum(jaxdyn.rollout(system, state, policy, dt=1e-2, steps=10).final.q)

    run = jax.jit(jax.grad(final))
    return lambda x: run(State(x * jnp.ones(2), jnp.zeros(2)))


def many(function):
    run = jaxdyn.batched(function)
    return lambda x: run(x * jnp.ones((8, 3)))


def solved(solver):
    """One problem, from other initial states."""

    def of(cost):
        problem = eqx.tree_at(lambda p: p.running, regulator(), (cost,))
        start = start_of(regulator())
        run = eqx.filter_jit(lambda problem: control.solve(problem, solver, start, max_steps=3))
        return lambda x: run(eqx.tree_at(lambda p: p.initial, problem, x * problem.initial))

    return of


def solved_in_batch(cost):
    """One problem, whose numbers are built in, from other plans."""
    problem = eqx.tree_at(lambda p: p.running, regulator(), (cost,))
    starts = jax.vmap(lambda u: control.rollout_controls(regulator(), u))(jnp.ones((2, 30, 1)))

    def run(x):
        plans = jax.tree.map(lambda z: x * z, starts)
        return control.solve_batch(problem, control.ILQR(), plans, max_steps=3, throw=False, progress=False)

    return run


def policy(t, state, key):
    return -state.v[:1]


def cost(dynamics, t, x, u):
    return 0.5 * x @ x + 0.05 * u @ u


# name -> what calls a function of the user, that function, how often a first call may trace it.
TRACES = {
    "rollout": (rolled, policy, 4),
    "gradient of a rollout": (differentiated, policy, 4),
    "batched": (many, jnp.sin, 1),
    "ILQR": (solved(control.ILQR()), cost, 8),  # three of them for the check of the plan
    "multiple shooting": (solved(control.MultipleShooting()), cost, 8),  # one of them for the scale of the cost
    "batch of ILQR": (solved_in_batch, cost, 5),
}


def test_a_compiled_function_is_made_a_scalar_program_once(monkeypatch):
    programs = []
    monkeypatch.setattr(derived, "flatten", lambda *args: programs.append(args) or flatten(*args))
    system, state = linkage()
    jax.block_until_ready(jaxdyn.acceleration(system, state))
    assert len(programs) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("name", TRACES)
def test_number_of_traces_and_no_more_of_them_for_other_numbers(name):
    made, function, recorded = TRACES[name]
    counted = Counted(function)
    call = made(counted)
    # Twice, so that the small operations that make the arguments are compiled too.
    jax.block_until_ready(call(0.9))
    first = counted.count
    jax.block_until_ready(call(0.8))
    _EVENTS.clear()
    jax.block_until_ready(call(0.7))
    assert counted.count == first
    assert "backend_compile_duration" not in _EVENTS
    assert "jaxpr_trace_duration" not in _EVENTS
    assert 0 < first <= recorded
