"""Mistakes of type at the doors of models, systems and rollouts: each is refused in one line that names the remedy."""

import inspect
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_public_api import FUNCTIONS

import jaxdyn
from jaxdyn import Knots, RungeKutta4, State, library, rollout
from jaxdyn.constraints import minimal_acceleration
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.simulate import PDControl, geodesic, rollout_adaptive

pytestmark = pytest.mark.usefixtures("as_a_user")

SYSTEM = library.system("cart_pole")
START = State(jnp.array([0.1, 0.2]), jnp.zeros(2))
Q = START.q
PLACEHOLDERS = {"path": "mechanism.toml", "key": jax.random.key(0), "v": Q}


def simulated(*arguments, **options):
    return rollout(*arguments, dt=0.01, steps=4, **options)


class Constant(jaxdyn.Controller):
    def begin(self, state):
        return None

    def decide(self, t, state, memory, key):
        return jnp.ones(1), memory


def noisy(t, state, key):
    return jax.random.normal(key, (1,))


MISTAKES = {
    "a model for a system": (lambda: simulated(SYSTEM.model, START), r"passed a Model; rollout .* System\(model\)"),
    "a dict for a system": (lambda: jaxdyn.total_energy({}, START), r"passed a dict; total_energy .* System\(model"),
    "a tuple for a state": (lambda: simulated(SYSTEM, (Q, Q)), r"tuple as the state; give State\(q, v\)"),
    "an array for a state": (lambda: simulated(SYSTEM, Q), r"as the state; give State\(q, v\)"),
    "coordinates for a state": (lambda: jaxdyn.assemble(SYSTEM, Q), r"assemble .* give State\(q, v\)"),
    "a list in a state": (
        lambda: simulated(SYSTEM, State([0.1, 0.2], Q)),
        r"q is a list; give an array, jnp.asarray\(q\)",
    ),
    "a system for a model": (
        lambda: jaxdyn.mass_matrix(SYSTEM, Q),
        r"passed a System; mass_matrix .* use system.model",
    ),
    "a number for a model": (lambda: jaxdyn.bias_force(3.0, Q, Q), r"passed a float; bias_force .* MechanismBuilder"),
    "a list for coordinates": (lambda: jaxdyn.mass_matrix(SYSTEM.model, [0.0, 0.0]), r"q is a list; give an array"),
    "a class for an integrator": (
        lambda: simulated(SYSTEM, START, integrator=RungeKutta4),
        r"class RungeKutta4; give an instance, RungeKutta4\(\)",
    ),
    "a string for an integrator": (lambda: simulated(SYSTEM, START, integrator="rk4"), r"is a str; give an Integrator"),
    "a class for controls": (
        lambda: simulated(SYSTEM, START, Constant),
        r"class Constant; give an instance, Constant\(",
    ),
    "a list for controls": (
        lambda: simulated(SYSTEM, START, [[0.0]] * 4),
        r"controls is a list; give an array, jnp.asarray",
    ),
    "a policy of two arguments": (
        lambda: simulated(SYSTEM, START, lambda t, state: jnp.zeros(1)),
        r"'<lambda>' does not take the arguments t, state, key; define it with these",
    ),
    "a policy that needs a key": (
        lambda: simulated(SYSTEM, START, noisy),
        r"'noisy' uses its key; .*key=jax.random.key",
    ),
    "a policy of the wrong shape": (
        lambda: simulated(SYSTEM, START, lambda t, state, key: jnp.zeros(2)),
        r"returns shape \(2,\); return an array of shape \(1,\)",
    ),
    "a policy that returns a tuple": (
        lambda: simulated(SYSTEM, START, lambda t, state, key: (0.0,)),
        r"returns a tuple; return an array of shape \(1,\)",
    ),
    "a record of one argument": (
        lambda: simulated(SYSTEM, START, save=lambda t: t),
        r"save does not take the arguments t, state, u; define it with these",
    ),
    "a cost of two arguments": (
        lambda: simulated(SYSTEM, START, cost=lambda t, state: 0.0),
        r"cost does not take the arguments t, state, u, next_state; define it with these",
    ),
    "a number for a stop condition": (
        lambda: simulated(SYSTEM, START, stop=0.5),
        r"stop is not a function; pass a function of \(t, state\)",
    ),
    "a stop condition with several values": (
        lambda: simulated(SYSTEM, START, stop=lambda t, state: state.q > 1.0),
        r"stop returns bool of shape \(2,\); return one boolean, for example by jnp.any",
    ),
    "a stop condition that is not boolean": (
        lambda: simulated(SYSTEM, START, stop=lambda t, state: state.q[0]),
        r"stop returns float64 of shape \(\); return one boolean",
    ),
    "a fraction of a step": (lambda: rollout(SYSTEM, START, dt=0.01, steps=2.5), r"steps is 2.5; give an integer"),
    "text for a duration": (lambda: rollout(SYSTEM, START, dt="10 ms", steps=2), r"dt is a str; give a float"),
    "a class for a force": (
        lambda: jaxdyn.System(SYSTEM.model, (jaxdyn.JointSpring,)),
        r"the class JointSpring; give an instance, JointSpring\(",
    ),
    "a single force": (
        lambda: jaxdyn.System(SYSTEM.model, jaxdyn.JointSpring([1.0, 1.0], [0.0, 0.0])),
        r"forces is a JointSpring; give a tuple, \(force,\)",
    ),
    "a force for a constraint": (
        lambda: jaxdyn.System(SYSTEM.model, constraints=(jaxdyn.JointSpring([1.0, 1.0], [0.0, 0.0]),)),
        r"constraints is a JointSpring; give a Constraint",
    ),
    "a list of drives": (lambda: jaxdyn.System(SYSTEM.model, drives=[0]), r"drives is a list; give JointDrives\("),
    "a class for a system": (lambda: simulated(jaxdyn.System, START), r"the class System; rollout works on a System"),
    "a class for a state": (lambda: simulated(SYSTEM, State), r"the class State as the state; give State\(q, v\)"),
    "a list for the controls of an instant": (
        lambda: jaxdyn.acceleration(SYSTEM, START, [0.0]),
        r"control u is a list; give an array, jnp.asarray\(u\)",
    ),
    "a control too many": (
        lambda: jaxdyn.joint_reactions(SYSTEM, START, Q),
        r"control u has shape \(2,\), .* has 1 controls: give shape \(1,\)",
    ),
    "a list of times": (
        lambda: rollout_adaptive(SYSTEM, START, times=[0.0, 0.1]),
        r"times is a list; give an array, jnp.asarray\(times\)",
    ),
    "times of two axes": (
        lambda: rollout_adaptive(SYSTEM, START, times=jnp.array([[0.0, 0.1]])),
        r"times has shape \(1, 2\); give one time per record",
    ),
    "times in no order": (
        lambda: rollout_adaptive(SYSTEM, START, times=jnp.array([0.0, 0.1, 0.05])),
        r"times are not in order; sort them",
    ),
    "a fraction of a step of diffrax": (
        lambda: rollout_adaptive(SYSTEM, START, times=Q, max_steps=1.5),
        r"max_steps is 1.5; give an integer",
    ),
    "a duration of zero": (
        lambda: rollout(SYSTEM, START, dt=0.0, steps=2),
        r"dt is 0.0 s; give a finite duration other than",
    ),
    "no duration": (
        lambda: rollout(SYSTEM, START, dt=math.nan, steps=2),
        r"dt is nan s; give a finite duration other than zero",
    ),
    "a negative interval": (lambda: Knots(Q[:, None], -0.1), r"interval of Knots is -0.1 s; give a positive time"),
    "a seed for a random key": (
        lambda: jaxdyn.configuration.random(SYSTEM.model, 0),
        r"key is an int; give a random key, jax.random.key\(0\)",
    ),
    "a seed for the random key of a policy": (
        lambda: simulated(SYSTEM, START, noisy, key=0),
        r"key is an int; give a random key, jax.random.key\(0\)",
    ),
    "a class within a projection": (
        lambda: jaxdyn.Projected(RungeKutta4),
        r"integrator of Projected is the class RungeKutta4; give an instance, RungeKutta4\(\)",
    ),
    "a fraction of an iteration": (
        lambda: jaxdyn.ImplicitMidpoint(2.5),
        r"iterations of ImplicitMidpoint is 2.5; give an integer",
    ),
    "a system for the model of a policy": (
        lambda: PDControl(SYSTEM, Q, [1.0, 1.0], [1.0, 1.0]),
        r"passed a System; PDControl works on a Model: use system.model",
    ),
    "a model for the system of a stepper": (
        lambda: jaxdyn.stepper(SYSTEM.model, 0.01),
        r"stepper works on a System: use System\(model\)",
    ),
    "a class for a driven joint": (
        lambda: jaxdyn.Rheonomic(jaxdyn.Revolute, jaxdyn.ConstantRate(3.0)),
        r"joint of Rheonomic is the class Revolute; give an instance, Revolute\(",
    ),
    "a number for a prescribed motion": (
        lambda: jaxdyn.Rheonomic(jaxdyn.Revolute((0.0, 0.0, 1.0)), 3.0),
        r"motion of Rheonomic is not a function; pass a function of \(t\)",
    ),
    "a position for a target pose": (
        lambda: jaxdyn.FrameTarget("tip", jnp.zeros(3)),
        r"pose of FrameTarget is an ArrayImpl; give RigidTransform\(",
    ),
    "a name for a body of a spring": (
        lambda: jaxdyn.System(SYSTEM.model, (jaxdyn.Spring("pole", Q[:0], -1, Q[:0], 1.0),)),
        r"there is no body 'pole'; use 0 to 1, .* \(`Model.locate` finds them by name\)",
    ),
    "a name for a driven joint": (
        lambda: jaxdyn.System(SYSTEM.model, drives=jaxdyn.JointDrives(("cart",), [1.0])),
        r"there is no velocity component 'cart'; use 0 to 1, 0 for 'cart'",
    ),
    "names for coupled coordinates": (
        lambda: jaxdyn.System(SYSTEM.model, constraints=(jaxdyn.Coupling("gear", "cart", 1, [0.0, 1.0]),)),
        r"there is no coordinate 'cart'; use 0 to 1, 0 for 'cart'",
    ),
    "a name for a held component": (
        lambda: jaxdyn.assemble(library.four_bar(), State(jnp.zeros(3), jnp.zeros(3)), held="shaft"),
        r"held shaft of 'four_bar': .* 'shaft'; use 0 to 2, 0 for 'shaft'",
    ),
    "an index instead of a tuple": (
        lambda: jaxdyn.assemble(library.four_bar(), State(jnp.zeros(3), jnp.zeros(3)), held=0),
        r"held 0 of 'four_bar': 0 is an int; give a tuple, \(0,\)",
    ),
    "a name for an independent velocity": (
        lambda: minimal_acceleration(library.four_bar(), State(jnp.zeros(3), jnp.zeros(3)), "shaft"),
        r"there is no velocity component 'shaft'; use 0 to 2, 0 for 'shaft'; give different indices",
    ),
    "an unknown method": (
        lambda: jaxdyn.System(SYSTEM.model, method="chol"),
        "no method .* 'chol' .*; use one of auto, cholesky",
    ),
    "a method by position": (
        lambda: jaxdyn.System(SYSTEM.model, (), None, "cholesky"),
        r"constraints is 'cholesky'; write method='cholesky', by name",
    ),
    "text for a stabilization": (
        lambda: jaxdyn.System(SYSTEM.model, stabilization="3"),
        r"stabilization is a str; give a rate in 1/s, or None",
    ),
    "a system for a system": (lambda: jaxdyn.System(SYSTEM), r"passed a System; System .* use system.model"),
}

# The model or system that each public function takes is the first argument, whose check comes first.
EXCHANGED = {
    name: (SYSTEM if first == "model" else SYSTEM.model, parameters)
    for name, item in FUNCTIONS.items()
    if (parameters := list(inspect.signature(item).parameters.values()))
    and (first := parameters[0].name) in ("model", "system")
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_every_public_function_names_the_remedy_for_a_model_instead_of_a_system_and_the_reverse(
    name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    wrong, (_, *others) = EXCHANGED[name]
    required = {
        p.name: PLACEHOLDERS.get(p.name) for p in others if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
    }
    with pytest.raises(
        (TypeError, AttributeError),
        match=r"use system\.model|System\(model\)|system\.model(\.| leaves out)|takes a state",
    ) as refusal:
        FUNCTIONS[name](wrong, **required)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_type_is_refused_in_one_line_with_the_remedy(mistake):
    call, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def test_an_error_within_a_policy_is_that_of_the_user():
    def broken(t, state, key):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        simulated(SYSTEM, START, broken)


def test_a_mistake_is_refused_while_tracing_too():
    with pytest.raises(TypeError, match=r"use system\.model"):
        jax.jit(lambda q: jaxdyn.mass_matrix(SYSTEM, q))(Q)


def test_all_forms_of_controls_and_numpy_arrays_give_the_same_motion():
    values = np.ones((4, 1))
    forms = {
        "array": jnp.asarray(values),
        "numpy": values,
        "knots": Knots(values, 0.01, interpolation="zero_order"),
        "policy": lambda t, state, key: jnp.ones(1),
        "controller": Constant(),
    }
    ends = {name: simulated(SYSTEM, START, form).final for name, form in forms.items()}
    ends["numpy state"] = simulated(SYSTEM, State(np.asarray(START.q), np.asarray(START.v)), values).final
    assert float(jnp.max(jnp.abs(ends["array"].v))) > 1e-3
    for name, end in ends.items():
        np.testing.assert_array_equal(end.q, ends["array"].q, err_msg=name)
        np.testing.assert_array_equal(end.v, ends["array"].v, err_msg=name)


def test_numbers_of_steps_are_integers_of_python_or_numpy():
    counts = {"steps": 6, "substeps": 2, "save_every": 3}
    expected = rollout(SYSTEM, START, dt=0.01, **counts)
    for convert in (np.int64, np.int32):
        found = rollout(SYSTEM, START, dt=0.01, **{name: convert(count) for name, count in counts.items()})
        np.testing.assert_array_equal(found.saved.q, expected.saved.q)
    assert geodesic(SYSTEM.model, Q, Q, dt=0.01, steps=np.int64(2)).steps == 2


@pytest.mark.thorough
def test_times_of_records_may_go_backward_and_repeat():
    forward = rollout_adaptive(SYSTEM, START, times=jnp.array([0.0, 0.05, 0.05, 0.1]))
    np.testing.assert_array_equal(forward.saved.q[1], forward.saved.q[2])
    back = rollout_adaptive(SYSTEM, forward.final, times=jnp.array([0.1, 0.05, 0.0]))
    np.testing.assert_allclose(back.saved.q, forward.saved.q[jnp.array([3, 1, 0])], atol=1e-4)


def test_integrators_of_users_declare_their_own_bounds():
    class Corrected(RungeKutta4):
        corrections: int = eqx.field(static=True, default=0, metadata=quantity(minimum=0.0))

    assert Corrected().corrections == 0
    with pytest.raises(ValueError, match="corrections of Corrected is -1; give"):
        Corrected(corrections=-1)


def test_raw_and_typed_random_keys_are_accepted():
    draw = jax.vmap(lambda key: jaxdyn.configuration.random(SYSTEM.model, key))
    assert draw(jax.random.split(jax.random.key(0), 3)).shape == draw(jnp.zeros((3, 2), jnp.uint32)).shape == (3, 2)


def test_checks_leave_nothing_in_a_program():
    def acceleration(q, v, tau):
        return jaxdyn.forward_dynamics(SYSTEM.model, q, v, tau)

    inside = inspect.unwrap(jaxdyn.forward_dynamics)
    behind = jax.make_jaxpr(lambda q, v, tau: inside(SYSTEM.model, q, v, tau))(Q, Q, Q)
    with jaxdyn.backend("xla"):
        assert str(jax.make_jaxpr(acceleration)(Q, Q, Q)) == str(behind)
