"""Rollouts from states that violate constraints name the constraint, its error and the remedy: once, and only outside of jit."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import MechanismBuilder, Prismatic, Projected, Revolute, SemiImplicitEuler, State, System, Variational
from jaxdyn.constraints import Coupling, Distance, KnifeEdge, rolling
from jaxdyn.dynamics import contact_sphere
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.simulate import ConstraintWarning, DivergenceWarning, RolloutError

pytestmark = pytest.mark.usefixtures("as_a_user")


@pytest.fixture(scope="module")
def four_bar() -> tuple[System, jax.Array]:
    system = jaxdyn.library.four_bar()
    return system, jaxdyn.assemble(system, system.at_rest(jnp.array([0.4, 0.1, 0.2])), held=(0,)).q


def opened(q, by):
    return q + jnp.array([0.0, by, 0.0])


def short(system, state, **options):
    return jaxdyn.rollout(system, state, dt=1e-3, steps=2, **options)


class Custom(Constraint):
    """A constraint whose author gives no units."""

    name: str = eqx.field(static=True, default="custom")

    def residual(self, model, q, poses):
        return q[:1] - q[1:]


def sliders() -> System:
    builder = MechanismBuilder("sliders")
    for name, joint in (("wheel", Revolute((0, 0, 1))), ("slide", Prismatic((1, 0, 0)))):
        builder.add_body(name, joint=joint, mass=1.0, inertia=(1.0, 1.0, 1.0))
    return System(builder.build())


def ball() -> System:
    builder = MechanismBuilder("ball", gravity=(0.0, 0.0, 0.0))
    builder.add_body("ball", joint=jaxdyn.Free(), mass=1.0, inertia=(0.1, 0.1, 0.1))
    return System(builder.build())


def violating() -> dict[str, tuple[System, list[float], list[float], str, str]]:
    """Systems of all kinds of constraints with coordinates and velocities, and the error and remedy in the message."""
    machine, free = sliders(), ball()
    at_ground = [0.0, 0.0, 0.1, 1.0, 0.0, 0.0, 0.0]
    to_closed, to_velocity = "jaxdyn.assemble(system, state).q", "jaxdyn.project_velocity(system, state)"

    def with_(system, *constraints):
        return system.changed(constraints=constraints)

    rollers = rolling(free.model, "wheel", contact_sphere("ball", radius=0.1))
    rod = Distance("rod", 1, jnp.zeros(3), -1, jnp.array([1.0, 0.0, 0.0]), 1.0)
    mimic, gear = Coupling("mimic", 0, 1, jnp.array([0.0, 2.0])), Coupling("rack", 1, 0, jnp.array([0.1, 2.0]))
    blade = KnifeEdge("blade", 0, jnp.zeros(3), jnp.array([1.0, 0.0, 0.0]))
    return {
        "mimic": (with_(machine, mimic), [0.21, 0.0], [0.0, 0.0], "'mimic' is violated by 0.21 rad", to_closed),
        "rack": (with_(machine, gear), [0.0, 0.0], [0.0, 0.0], "'rack' is violated by 0.1 m", to_closed),
        "rod": (with_(machine, rod), [0.0, -0.1], [0.0, 0.0], "'rod' is violated by 0.105 m", to_closed),
        "custom": (with_(machine, Custom()), [0.2, 0.0], [0.0, 0.0], "'custom' is violated by 0.2 m or rad", to_closed),
        "contact": (with_(free, *rollers), [0.0, 0.0, 0.3, *at_ground[3:]], [0.0] * 6, "'wheel_contact'", to_closed),
        "rolling": (
            with_(free, *rollers),
            at_ground,
            [0.0] * 3 + [0.5, 0, 0],
            "'wheel' is violated by 0.5 m/s",
            to_velocity,
        ),
        "blade": (
            with_(free, blade),
            at_ground,
            [0.0] * 3 + [0.2, 1, 0],
            "'blade' is violated by 0.2 m/s",
            to_velocity,
        ),
        "velocity": (with_(machine, mimic), [0.0, 0.0], [1.0, 0.0], "'mimic' is violated by 1 rad/s", to_velocity),
    }


@pytest.mark.parametrize("name", violating())
def test_every_kind_of_constraint_is_named_with_its_error_and_the_remedy(name):
    system, q, v, error, remedy = violating()[name]
    state = State(jnp.array(q), jnp.array(v))
    with pytest.warns(ConstraintWarning) as caught:
        short(system, state)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    text = str(caught[0].message)
    assert error in text
    assert remedy in text
    # The remedy works: no warning remains.
    if "assemble" in remedy:
        state = State(jaxdyn.assemble(system, state).q, state.v)
    short(system, State(state.q, jaxdyn.project_velocity(system, state)))


@pytest.mark.parametrize(
    "integrator", [Projected(SemiImplicitEuler()), Variational()], ids=["projected", "variational"]
)
def test_a_first_step_that_fails_names_the_open_loop_as_its_cause(four_bar, integrator):
    system, q = four_bar
    with pytest.raises(RolloutError, match=r"'rocker_pin' is violated by 0.148 m; jaxdyn.assemble") as caught:
        short(system, system.at_rest(opened(q, 0.5)), integrator=integrator)
    assert "implicit step" not in str(caught.value)
    with pytest.warns(DivergenceWarning, match="rocker_pin") as found:
        short(system, system.at_rest(opened(q, 0.5)), integrator=integrator, throw=False)
    assert len(found) == 1


def test_a_batch_names_its_worst_sample_and_jit_none(four_bar, recwarn):
    system, q = four_bar
    openings = jnp.array([0.0, 0.01, 0.1, 0.0])

    def end(by):
        return short(system, system.at_rest(opened(q, by))).final.v

    found = jax.vmap(end)(openings)
    assert [w.category for w in recwarn.list] == [ConstraintWarning]
    text = str(recwarn.pop().message)
    assert "'rocker_pin' is violated by 0.03 m in sample 2, the worst of 2;" in text
    program = jax.jit(jax.vmap(end))
    np.testing.assert_allclose(program(openings), found, rtol=1e-9)
    assert not recwarn.list
    assert "reported" not in program.lower(openings).as_text()


@pytest.mark.thorough
def test_derivatives_are_those_of_a_rollout_that_is_not_checked(four_bar):
    system, q = four_bar

    def speed(by):
        return jnp.sum(short(system, system.at_rest(opened(q, by))).final.v)

    with pytest.warns(ConstraintWarning):
        slope = jax.grad(speed)(0.01)
    np.testing.assert_allclose(slope, jax.jit(jax.grad(speed))(0.01), rtol=1e-12)


@pytest.mark.thorough
def test_adaptive_steps_name_the_open_loop_too(four_bar):
    pytest.importorskip("diffrax")
    system, q = four_bar
    with pytest.warns(ConstraintWarning, match="rocker_pin.*0.03 m"):
        jaxdyn.simulate.rollout_adaptive(system, system.at_rest(opened(q, 0.1)), times=jnp.linspace(0.0, 0.01, 3))


@pytest.mark.thorough
def test_with_adaptive_steps_an_open_constraint_closes_as_much_in_each_record_of_any_length():
    """The solution of e'' = -2 w e' - w^2 e, e(0) = 1, de/dt(0) = 0, for w times the interval of the records (N9)."""
    pytest.importorskip("diffrax")
    system = dataclasses.replace(sliders(), constraints=(Coupling("rack", 1, 0, (0.0, 1.0)),))
    start = system.at_rest(jnp.array([0.0, 1e-4]))
    times = jnp.outer(jnp.array([0.1, 0.3]), jnp.arange(4.0))
    options = {"rtol": 1e-10, "atol": 1e-14}
    run = jax.jit(
        jax.vmap(lambda times: jaxdyn.simulate.rollout_adaptive(system, start, times=times, **options).saved.q)
    )
    decay = 0.5 * np.arange(4)
    for q in run(times):
        np.testing.assert_allclose((q[:, 1] - q[:, 0]) / 1e-4, (1.0 + decay) * np.exp(-decay), rtol=1e-6)


def test_a_rollout_continues_from_the_end_of_another_one_without_a_warning(four_bar):
    """Steps of first order open the loop a little, and more with longer steps."""
    system, q = four_bar
    v = jaxdyn.project_velocity(system, State(q, jnp.array([6.0, 0.0, 0.0])))
    for dt in (1e-3, 1e-2):
        middle = jaxdyn.rollout(system, State(q, v), dt=dt, steps=20).final
        assert float(jnp.abs(jaxdyn.constraints.constraint_errors(system, middle).residual).max()) > 1e-7
        jaxdyn.rollout(system, middle, dt=dt, steps=20)
