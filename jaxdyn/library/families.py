"""A chain of any size, and a mechanism whose geometry is computed."""

import jax.numpy as jnp
import numpy as np

from jaxdyn.constraints.kinds import LoopJoint
from jaxdyn.dynamics.system import System
from jaxdyn.mechanism.builder import MechanismBuilder
from jaxdyn.mechanism.joints import Free, Prismatic, Spherical, Universal
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.transform import RigidTransform


def _rod_inertia(mass: float, length: float, radius: float) -> tuple[float, float, float]:
    """Principal moments of a uniform cylinder along z about its center of mass, kg m^2."""
    across = mass * (3.0 * radius**2 + length**2) / 12.0
    return across, across, 0.5 * mass * radius**2


def spherical_pendulum_chain(n: int, *, length: float = 1.0, mass: float = 1.0) -> Model:
    """Chain of n uniform cylinders on spherical joints with a frame "tip"; nq = 4 n, nv = 3 n, hanging at neutral coordinates.

    Args:
        n: Number of cylinders.
        length: Length of one cylinder, m; its radius is a tenth of this.
        mass: Mass of one cylinder, kg.

    Source: illustrative.

    Raises:
        MechanismError: n is less than 1.
    """
    if n < 1:
        raise MechanismError(f"a chain of {n} pendulums does not exist; give n >= 1")
    builder = MechanismBuilder(f"chain of {n} spherical pendulums")
    for i in range(n):
        builder.add_body(
            f"rod{i + 1}",
            parent=f"rod{i}" if i else "ground",
            position=(0.0, 0.0, -length if i else 0.0),
            joint=Spherical(),
            mass=mass,
            com=(0.0, 0.0, -0.5 * length),
            inertia=_rod_inertia(mass, length, 0.1 * length),
        )
    builder.add_frame("tip", body=f"rod{n}", position=(0.0, 0.0, -length))
    return builder.build()


def stewart_platform(
    *, base_radius: float = 0.5, platform_radius: float = 0.3, height: float = 0.6, spread: float = 0.2
) -> System:
    """Platform on six legs of variable length.

    Each leg is a universal joint at the base, a cylinder with a sliding rod, and a spherical joint at the platform, which closes
    the loop. nq = 25 and nv = 24 with six degrees of freedom; the loops are closed in the neutral configuration, with a level
    platform.

    The coordinates are those of the platform, then two angles and a stroke for each leg. The platform is a disc of 10 kg; the
    cylinders of 2 kg and rods of 1 kg are uniform, with two thirds of the length of a leg.

    Args:
        base_radius, platform_radius: Radii of the circles of joints, m.
        height: Height of the platform above the base, m.
        spread: Angle between each of the two joints of a pair and the middle of the pair, rad; pairs alternate between base and
            platform.

    Source: illustrative; the mechanism is that of Stewart, Proceedings of the Institution of Mechanical Engineers 180, 1965, in the
    form of Gough.
    """
    middles = np.arange(6) // 2 * (2.0 * np.pi / 3.0)
    sides = np.array([-1.0, 1.0] * 3)
    at_base = middles + sides * spread
    at_platform = middles + sides * (np.pi / 3.0 - spread)

    def circle(radius: float, angles: np.ndarray) -> np.ndarray:
        return np.stack([radius * np.cos(angles), radius * np.sin(angles), 0.0 * angles], axis=1)

    feet, heads = circle(base_radius, at_base), circle(platform_radius, at_platform)
    builder = MechanismBuilder("stewart_platform")
    disc = _rod_inertia(10.0, 0.03, platform_radius)
    builder.add_body("platform", joint=Free(), position=(0.0, 0.0, height), mass=10.0, inertia=disc)
    loops = []
    no_turn = jnp.array([1.0, 0.0, 0.0, 0.0])
    for i, (foot, head) in enumerate(zip(feet, heads, strict=True)):
        along = head - foot + np.array([0.0, 0.0, height])
        length = float(np.linalg.norm(along))
        x, y, z = along / length
        turn = np.array([1.0 + z, -y, x, 0.0])  # shortest rotation from the vertical to the leg
        part = 2.0 / 3.0 * length
        builder.add_body(
            f"cylinder{i + 1}",
            joint=Universal((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)),
            position=foot,
            orientation=turn / np.linalg.norm(turn),
            mass=2.0,
            com=(0.0, 0.0, 0.5 * part),
            inertia=_rod_inertia(2.0, part, 0.02),
            joint_name=f"foot{i + 1}",
        )
        builder.add_body(
            f"rod{i + 1}",
            parent=f"cylinder{i + 1}",
            joint=Prismatic((0.0, 0.0, 1.0)),
            position=(0.0, 0.0, length),
            mass=1.0,
            com=(0.0, 0.0, -0.5 * part),
            inertia=_rod_inertia(1.0, part, 0.012),
            joint_name=f"leg{i + 1}",
        )
        marker = RigidTransform(no_turn, jnp.asarray(head))
        loops.append(
            LoopJoint(f"head{i + 1}", "spherical", 0, marker, 2 * i + 2, RigidTransform(no_turn, jnp.zeros(3)))
        )
    return System(builder.build(), constraints=tuple(loops))
