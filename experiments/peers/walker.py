"""A quadruped that stands on its feet, in jaxdyn and as MJCF: the mechanism of the contact benchmark."""

import jax.numpy as jnp
import numpy as np

import jaxdyn

FEET = ("fl_foot", "fr_foot", "rl_foot", "rr_foot")
STIFFNESS, DAMPING = 60.0, 2.0  # of the controllers in the legs, N m/rad and N m s/rad
FRICTION = 0.8
RADIUS = 0.02  # of a foot, m
HEIGHT = 0.335  # of the trunk above the ground, m
_HALF_FOOT = 0.015  # m, distance of the points of a foot from its center

Posture = tuple[float, ...]


def posture() -> np.ndarray:
    """Coordinates of the standing robot in the order of jaxdyn and of MuJoCo: position, quaternion, angles."""
    return np.array([0.0, 0.0, HEIGHT, 1.0, 0.0, 0.0, 0.0, *[0.0, 0.6, -1.2] * 4])


def spots(points: int) -> list[tuple[float, float, float]]:
    """Centers of the spheres of one foot, on the axes of its frame.

    Args:
        points: Number of contact points of the robot, 4 or 16.
    """
    if points == len(FEET):
        return [(0.0, 0.0, 0.0)]
    return [(x, y, 0.0) for x in (-_HALF_FOOT, _HALF_FOOT) for y in (-_HALF_FOOT, _HALF_FOOT)]


def standing(points: int, dtype: str) -> jaxdyn.System:
    """The robot with controllers that hold its posture and with contacts at its feet."""
    model = jaxdyn.library.quadruped()
    gains = np.r_[np.zeros(6), np.ones(12)]
    servo = jaxdyn.JointServo(STIFFNESS * gains, DAMPING * gains, posture())
    spheres = [
        sphere
        for foot in FEET
        for center in spots(points)
        for sphere in jaxdyn.dynamics.contact_sphere(foot, center=center, radius=RADIUS)
    ]
    contact = jaxdyn.dynamics.GroundContact.of(model, spheres, friction=FRICTION)
    return jaxdyn.as_dtype(jaxdyn.System(model, (servo, contact)), jnp.dtype(dtype))


def mjcf(points: int, dt: float) -> str:
    """The same robot for MuJoCo, MJX and Brax, with their default contacts."""
    model = jaxdyn.library.quadruped()
    topology = model.topology
    children: dict[int, list[int]] = {}
    for body, parent in enumerate(topology.parents):
        children.setdefault(parent, []).append(body)

    def text(values) -> str:
        return " ".join(f"{float(value):.9g}" for value in np.ravel(np.asarray(values)))

    def spheres(body: int) -> str:
        parts = []
        for index, name in enumerate(topology.frame_names):
            if name in FEET and topology.frame_bodies[index] == body:
                origin = np.asarray(model.frames.translation[index])
                parts += [
                    f'<geom type="sphere" size="{RADIUS}" pos="{text(origin + np.array(spot))}"/>'
                    for spot in spots(points)
                ]
        return "".join(parts)

    def body_text(body: int) -> str:
        xx, yy, zz, xy, xz, yz = np.asarray(model.inertia[body])
        kind = model.joint(body)
        joint = "<freejoint/>"
        if isinstance(kind, jaxdyn.Revolute):
            joint = f'<joint name="{topology.joint_names[body]}" axis="{text(kind.axis)}"/>'
        return (
            f'<body name="{topology.body_names[body]}" pos="{text(model.placement.translation[body])}" '
            f'quat="{text(model.placement.quaternion[body])}"><inertial pos="{text(model.com[body])}" '
            f'mass="{float(model.mass[body])}" fullinertia="{text([xx, yy, zz, xy, xz, yz])}"/>{joint}{spheres(body)}'
            f"{''.join(map(body_text, children.get(body, ())))}</body>"
        )

    driven = [name for body, name in enumerate(topology.joint_names) if isinstance(model.joint(body), jaxdyn.Revolute)]
    servos = "".join(f'<position joint="{name}" kp="{STIFFNESS}" kv="{DAMPING}"/>' for name in driven)
    # Only contacts of the feet with the ground are tested, as in jaxdyn.
    return (
        f'<mujoco model="quadruped"><compiler angle="radian" autolimits="false" balanceinertia="false"/>'
        f'<option timestep="{dt!r}" integrator="implicitfast"/>'
        f'<default><geom friction="{FRICTION}" contype="1" conaffinity="0" condim="3"/></default>'
        '<worldbody><geom type="plane" size="0 0 1" contype="0" conaffinity="1"/>'
        f"{''.join(map(body_text, children[-1]))}</worldbody><actuator>{servos}</actuator></mujoco>"
    )
