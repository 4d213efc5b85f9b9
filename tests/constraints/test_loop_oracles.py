"""Closed loops move as in two libraries that share no code with this one, MuJoCo and Pinocchio.

One MJCF text with four mechanisms side by side: free bodies with two arms whose hands are tied by a point and by a weld, a planar
four-bar that is closed by a point in space, so that one of its equations is redundant, and two geared joints.

MuJoCo finds the consistent states by its own errors and Jacobians. Its constraints are soft: the regularization R of each is a
share (1 - d) / d of the diagonal of A = J M^-1 J'. The acceleration is a smooth function of that share, extrapolated to zero.
"""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio
import pytest

import jaxdyn
from jaxdyn import State, System
from jaxdyn.io import MujocoOrder, PinocchioOrder
from jaxdyn.io.mjcf.reader import system_from_mujoco

# Shapes are checked by the tests of the functions themselves; here the checks would take a third of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

GEOM = '<geom type="box" size="0.1 0.15 0.2" pos="0.05 -0.1 0.1" euler="20 30 40" contype="0" conaffinity="0"/>'


def two_arms(name: str) -> str:
    """A free body, a ball joint with a hinge, and a slide with two hinges."""
    return f"""
    <body name="{name} base" pos="0.1 0.2 0.3" euler="10 20 30"><freejoint name="{name} flight"/>{GEOM}
      <body name="{name} upper" pos="0.3 0.1 0" euler="5 40 0"><joint name="{name} ball" type="ball"/>{GEOM}
        <body name="{name} left" pos="0 0.1 0.5"><joint name="{name} elbow" axis="1 2 0"/>{GEOM}</body>
      </body>
      <body name="{name} slider" pos="-0.2 0 0.1"><joint name="{name} slide" type="slide" axis="1 0 1"/>{GEOM}
        <body name="{name} middle" pos="0.2 0 0.3"><joint name="{name} shoulder" axis="0 1 1"/>{GEOM}
          <body name="{name} right" pos="0.1 -0.2 0.3" euler="0 30 0"><joint name="{name} wrist" axis="0 2 -1"/>{GEOM}</body>
        </body>
      </body>
    </body>"""


TEXT = f"""
<mujoco>
  <option gravity="0.5 -1 -9.5" tolerance="0" iterations="100" jacobian="dense"/>
  <worldbody>
    {two_arms("tied")}
    {two_arms("welded")}
    <body name="crank"><joint name="crank" axis="0 1 0"/>{GEOM}
      <body name="coupler" pos="0 0 0.3"><joint name="crank pin" axis="0 1 0"/>{GEOM}</body></body>
    <body name="rocker" pos="0.8 0 0"><joint name="rocker" axis="0 1 0"/>{GEOM}</body>
    <body name="wheel" pos="0 1 0"><joint name="wheel" axis="0 1 1"/>{GEOM}
      <body name="rack" pos="0.2 0 0"><joint name="rack" type="slide" axis="1 0 1"/>{GEOM}
        <body name="pinion" pos="0 0 0.3"><joint name="pinion" axis="1 0 0"/>{GEOM}</body></body></body>
  </worldbody>
  <equality>
    <connect name="hands" body1="tied left" body2="tied right" anchor="0.1 0.1 0.3"/>
    <weld name="glue" body1="welded right" body2="welded left" anchor="0.1 0.2 0.1"/>
    <connect name="pin" body1="coupler" body2="rocker" anchor="0.7 0 0.2"/>
    <joint name="gear" joint1="rack" joint2="wheel" polycoef="0.1 -0.3 0.2 0.1 -0.05"/>
    <joint name="friction wheels" joint1="pinion" joint2="rack" polycoef="0 3 -0.5"/>
  </equality>
</mujoco>
"""
GEARED = 3  # velocities of the mechanism that Pinocchio cannot close, the last ones


@functools.cache
def compiled():
    theirs = mujoco.MjModel.from_xml_string(TEXT)
    return theirs, system_from_mujoco(theirs)


def consistent_states(theirs, count: int):
    """Random coordinates and velocities that MuJoCo calls consistent, by Gauss-Newton steps."""
    rng, data = np.random.default_rng(0), mujoco.MjData(theirs)
    for _ in range(count):
        q = theirs.qpos0.copy()
        mujoco.mj_integratePos(theirs, q, 0.3 * rng.normal(size=theirs.nv), 1.0)
        for _ in range(30):
            data.qpos = q
            mujoco.mj_forward(theirs, data)
            inverse = np.linalg.pinv(data.efc_J.reshape(data.nefc, theirs.nv), rcond=1e-6)
            mujoco.mj_integratePos(theirs, q, -inverse @ data.efc_pos, 1.0)
        assert np.abs(data.efc_pos).max() < 1e-14
        v = rng.normal(size=theirs.nv)
        yield q, v - inverse @ data.efc_J.reshape(data.nefc, theirs.nv) @ v


def acceleration_of_mujoco(theirs, q, v):
    """In the limit of hard constraints."""
    data = mujoco.MjData(theirs)
    data.qpos, data.qvel = q, v
    shares, found = 2e-4 * 1.6 ** np.arange(8), []
    for share in shares:
        theirs.eq_solimp[:] = [1 / (1 + share), 1 / (1 + share), 1.0, 0.5, 2.0]
        mujoco.mj_forward(theirs, data)
        found.append(data.qacc.copy())
    others = [np.delete(shares, i) for i in range(len(shares))]
    weights = [np.prod(other / (other - share)) for share, other in zip(shares, others, strict=True)]  # Lagrange, at 0
    return np.array(weights) @ found


@functools.cache
def ours():
    theirs, system = compiled()
    system = System(system.model, constraints=system.constraints, stabilization=0.0)
    order = MujocoOrder(system.model, theirs)

    @jax.jit
    def moved(their_q, their_v):
        q = order.q_from(their_q)
        v = order.v_from(q, their_v)
        a = jaxdyn.acceleration(system, State(q, v))
        return q, v, a, order.a_to(q, v, a)

    return moved


def relative(actual, desired) -> float:
    return float(np.abs(actual - desired).max() / np.abs(desired).max())


def test_loops_and_couplings_move_as_in_mujoco():
    theirs, _ = compiled()
    for q, v in consistent_states(theirs, 5):
        v[-GEARED:] = 0.0  # MuJoCo leaves out how the slope of a polynomial changes
        _, _, _, actual = ours()(jnp.asarray(q), jnp.asarray(v))
        assert relative(actual, acceleration_of_mujoco(theirs, q, v)) < 1e-6


def test_couplings_in_motion_are_those_of_one_coordinate():
    """With MuJoCo's mass matrix M and bias force h, and v = N w: N'M N dw/dt = -N'(h + M dN/dt w)."""
    theirs, _ = compiled()
    rack, pinion = (np.polynomial.Polynomial(theirs.eq_data[i, :5]) for i in (3, 4))
    data, column = mujoco.MjData(theirs), np.zeros(theirs.nv)
    for q, v in consistent_states(theirs, 3):
        wheel, speed = q[-3], v[-3]
        inner, outer = rack.deriv()(wheel), pinion.deriv()(rack(wheel))
        N = np.array([1.0, inner, outer * inner])
        curvature = rack.deriv(2)(wheel)
        rate = np.array([0.0, curvature, pinion.deriv(2)(rack(wheel)) * inner**2 + outer * curvature]) * speed
        np.testing.assert_allclose(q[-2:], [rack(wheel), pinion(rack(wheel))], atol=1e-12)
        data.qpos, data.qvel = q, v
        mujoco.mj_forward(theirs, data)
        h, M = data.qfrc_bias[-GEARED:], []
        for unit in np.eye(theirs.nv)[-GEARED:]:
            mujoco.mj_mulM(theirs, data, column, unit)
            M.append(column[-GEARED:].copy())
        M = np.array(M)
        expected = N * -(N @ (h + M @ rate * speed)) / (N @ M @ N) + rate * speed
        _, _, _, actual = ours()(jnp.asarray(q), jnp.asarray(v))
        assert relative(actual[-GEARED:], expected) < 1e-9


def in_pinocchio(theirs):
    """The compiled mechanisms and their loops."""
    kinds = (  # in the order of mujoco.mjtJoint
        lambda axis: pinocchio.JointModelFreeFlyer(),
        lambda axis: pinocchio.JointModelSpherical(),
        pinocchio.JointModelPrismaticUnaligned,
        pinocchio.JointModelRevoluteUnaligned,
    )

    def placed(position, quaternion=(1.0, 0.0, 0.0, 0.0)):
        return pinocchio.SE3(pinocchio.Quaternion(np.roll(quaternion, -1)).matrix(), np.array(position))

    pin, joints = pinocchio.Model(), [0]
    pin.gravity.linear = theirs.opt.gravity
    for i in range(1, theirs.nbody):
        carrier, at = joints[theirs.body_parentid[i]], placed(theirs.body_pos[i], theirs.body_quat[i])
        joint = theirs.joint(theirs.body_jntadr[i])
        joints.append(pin.addJoint(carrier, kinds[joint.type[0]](joint.axis.copy()), at, joint.name))
        turn = placed(np.zeros(3), theirs.body_iquat[i]).rotation
        tensor = turn @ np.diag(theirs.body_inertia[i]) @ turn.T
        pin.appendBodyToJoint(
            joints[i], pinocchio.Inertia(theirs.body_mass[i], theirs.body_ipos[i], tensor), pinocchio.SE3.Identity()
        )
    loops = pinocchio.StdVec_RigidConstraintModel()
    for i in range(theirs.neq):
        first, second = joints[theirs.eq_obj1id[i]], joints[theirs.eq_obj2id[i]]
        numbers, ends = theirs.eq_data[i], None
        if theirs.eq_type[i] == mujoco.mjtEq.mjEQ_CONNECT:
            kind, ends = pinocchio.ContactType.CONTACT_3D, (placed(numbers[:3]), placed(numbers[3:6]))
        elif theirs.eq_type[i] == mujoco.mjtEq.mjEQ_WELD:
            kind, ends = pinocchio.ContactType.CONTACT_6D, (placed(numbers[3:6], numbers[6:10]), placed(numbers[:3]))
        if ends is not None:
            loops.append(pinocchio.RigidConstraintModel(kind, pin, first, ends[0], second, ends[1], pinocchio.LOCAL))
    return pin, loops


def test_loops_move_as_in_pinocchio():
    theirs, system = compiled()
    pin, loops = in_pinocchio(theirs)
    order, data = PinocchioOrder(system.model, pin), pin.createData()
    converted = jax.jit(lambda q, v, a: (order.q_to(q), order.v_to(q, v), order.a_to(q, v, a)))
    loops_data = pinocchio.StdVec_RigidConstraintData()
    loops_data.extend([loop.createData() for loop in loops])
    pinocchio.initConstraintDynamics(pin, data, loops, loops_data)
    for q, v in consistent_states(theirs, 5):
        their_q, their_v, actual = map(np.array, converted(*ours()(jnp.asarray(q), jnp.asarray(v))[:3]))
        settings = pinocchio.ProximalSettings(1e-14, 1e-8, 100)
        expected = pinocchio.constraintDynamics(
            pin, data, their_q, their_v, np.zeros(pin.nv), loops, loops_data, settings
        )
        assert max(np.abs(loop.c1Mc2.translation).max() for loop in loops_data) < 1e-13  # closed there as well
        assert relative(actual[:-GEARED], expected[:-GEARED]) < 1e-9
