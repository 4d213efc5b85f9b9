"""Motions of solved plans happen: their controls, simulated with other and much shorter steps, reach the goal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import JointDrives, JointFriction, JointSpring, Revolute, RungeKutta4, System, control
from jaxdyn.dynamics import GroundContact, contact_sphere

DURATION = 1.0
TARGET, WEIGHTS = np.array([1.0, 0.0]), np.array([1.0, 0.1])


def elastic(stiffness: float, viscous: float = 0.0, coulomb: float = 0.0) -> System:
    """A motor (0.02 kg m^2) turns a link (1 kg, 0.3 m) through a spring; there is friction at the motor."""
    builder = jaxdyn.MechanismBuilder("elastic joint")
    builder.add_body("motor", joint=Revolute((0, 1, 0)), inertia=(0.01, 0.02, 0.01), mass=0.1)
    builder.add_body(
        "link", parent="motor", joint=Revolute((0, 1, 0)), mass=1.0, com=(0, 0, -0.3), inertia=(0.03, 0.03, 0.001)
    )
    friction = JointFriction([viscous, 0.0], [coulomb, 0.0], [1e-2, 1.0])
    return System(
        builder.build(), (JointSpring([0.0, stiffness], [0.0, 0.0]), friction), drives=JointDrives((0,), [1.0])
    )


def rigid(viscous: float, coulomb: float = 0.0, scale: float = 1e-2) -> System:
    """The link alone, with friction."""
    builder = jaxdyn.MechanismBuilder("link")
    builder.add_body("link", joint=Revolute((0, 1, 0)), mass=1.0, com=(0, 0, -0.3), inertia=(0.03, 0.03, 0.001))
    return System(builder.build(), (JointFriction([viscous], [coulomb], [scale]),), drives=JointDrives((0,), [1.0]))


def on_ground(**material: float) -> System:
    """A sphere of 1 kg, which a drive pushes along the ground; it also moves up and down."""
    builder = jaxdyn.MechanismBuilder("sphere")
    builder.add_body("carrier", joint=jaxdyn.Prismatic((1, 0, 0)), mass=0.1)
    builder.add_body("ball", parent="carrier", joint=jaxdyn.Prismatic((0, 0, 1)), mass=1.0)
    model = builder.build()
    contact = GroundContact.of(model, contact_sphere("ball", radius=0.05), **material)
    return System(model, (contact,), drives=JointDrives((0,), [1.0]))


def goal(system: System, q, v):
    """Position and velocity of the link, or of the sphere along the ground."""
    alone = system.model.topology.joint_names[0] != "motor"
    return jnp.stack([q[0], v[0]]) if alone else jnp.stack([jnp.sum(q), jnp.sum(v)])


def problem_of(system: System, start, bound: float, integrator=None, *, steps: int = 100, constrained: bool = False):
    """The goal is 1 rad or 1 m, at rest."""
    bound = float(bound)

    def end(dynamics, t, x, u):
        return goal(system, x.q, x.v) - TARGET

    def cost(dynamics, t, x, u):
        return 1e3 * jnp.sum(WEIGHTS * end(dynamics, t, x, u) ** 2)

    ending = {"final_constraints": control.Equality(end)} if constrained else {"final": cost}
    return control.ControlProblem(
        control.MultibodyDynamics(system, integrator),
        system.at_rest(jnp.asarray(start)),
        duration=DURATION,
        steps=steps,
        running=control.Effort(2e-2 * 100.0 / bound**2),
        lower=-bound,
        upper=bound,
        **ending,
    )


def true_miss(problem, plan, substeps: int) -> float:
    """The distance from the goal at the end of the simulation, relative to its largest value along the simulation."""
    system = problem.dynamics.system
    moved = jaxdyn.rollout(
        system,
        problem.initial,
        plan.controls,
        dt=DURATION / problem.steps,
        steps=problem.steps,
        integrator=RungeKutta4(),
        substeps=substeps,
    ).saved
    off = jax.vmap(lambda q, v: goal(system, q, v))(moved.q, moved.v) - TARGET
    distance = np.sqrt(np.asarray(jnp.sum(WEIGHTS * off**2, axis=1)))
    return float(distance[-1] / np.max(distance))


MACHINES = {  # the system, the coordinates of its initial state, the bound of its drive, substeps of the simulation
    **{f"spring {k:g}": (elastic(k), [0.0, 0.0], 10.0, 200) for k in (1e2, 1e3, 1e4, 1e5, 1e6)},
    **{f"viscous {d:g}": (rigid(d), [0.0], 10.0 + 4.0 * d, 500) for d in (0.0, 1.0, 10.0, 100.0, 1000.0)},
    **{
        f"spring {k:g}, viscous {d:g}": (elastic(k, d), [0.0, 0.0], 10.0 + 4.0 * d, 2000)
        for k, d in ((1e3, 10.0), (1e4, 100.0), (1e6, 1000.0))
    },
    **{
        f"Coulomb {c:g} at {s:g}": (rigid(0.0, c, s), [0.0], 10.0 + 3 * c, 1000)
        for c, s in ((1, 1e-2), (5, 1e-3), (20, 1e-3))
    },
    "spring 1e4, Coulomb 5": (elastic(1e4, 0.0, 5.0), [0.0, 0.0], 30.0, 2000),
    "sphere on the ground": (on_ground(), [0.0, 0.05], 20.0, 200),
    "sphere on stiff ground": (on_ground(stiffness=1e6), [0.0, 0.05], 20.0, 1000),
    "sphere that falls": (on_ground(), [0.0, 0.1], 20.0, 200),
}


@pytest.mark.parametrize("name", MACHINES)
def test_solved_plans_happen(name):
    pass
