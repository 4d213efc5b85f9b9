"""Linkages in a plane and in space move as their closed forms: slider-crank, RSSR with a coupler or a rod, Bennett's linkage.

They stand beside one another in one mechanism, which JAX compiles once. It is assembled from a rough start and gets a velocity by
projection; `closed_forms` says how everything then moves.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_forms import (
    about_x,
    about_z,
    add_body,
    angle_about_z,
    marker,
    motion_by_virtual_work,
    motion_of_bodies,
    pose,
)
from random_trees import random_unit

import jaxdyn
from jaxdyn import Distance, LoopJoint, MechanismBuilder, Prismatic, Revolute, Spherical, State, System
from jaxdyn.constraints import Constraint
from jaxdyn.spatial.transform import RigidTransform

# Shapes are checked by the tests of the functions themselves; here the checks would take a third of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")


class Linkage(NamedTuple):
    """The closed form of one linkage.

    Attributes:
        poses: X(s, mode) of its bodies, (nb, 3, 4); `mode` is +1 or -1, the way of assembly.
        coordinates: q(s, mode).
        read: s of X.
        middle: numbers s about which it is tried.
    """

    constraint: Constraint
    poses: Callable[[Any, Any], Any]
    coordinates: Callable[[Any, Any], Any]
    read: Callable[[Any], Any]
    middle: tuple[float, ...]

    @property
    def mobility(self) -> int:
        """Degrees of freedom: the coupler on balls spins idly."""
        return len(self.middle)


def slider_crank(builder: MechanismBuilder, first: int) -> Linkage:
    """Crank and rod about z, slider along x at the height `offset`; in mode -1 the slider is on the other side."""
    crank, rod, offset = 0.4, 1.1, 0.15
    add_body(builder, "crank", Revolute((0, 0, 1)))
    add_body(builder, "rod", Revolute((0, 0, 1)), parent="crank", position=(crank, 0, 0))
    add_body(builder, "slider", Prismatic((1, 0, 0)), position=(0, offset, 0))
    pin = LoopJoint("wristpin", "revolute", first + 1, marker(rod), first + 2, marker())

    def solved(s, mode):
        """Direction of the rod and place of the slider."""
        rise = offset - crank * jnp.sin(s[0])
        reach = mode * jnp.sqrt(rod**2 - rise**2)
        return jnp.arctan2(rise, reach), crank * jnp.cos(s[0]) + reach

    def poses(s, mode):
        (angle, x), turn = solved(s, mode), about_z(s[0])
        slider = pose(jnp.eye(3), jnp.stack([x, 0.0 * x + offset, 0.0 * x]))
        return jnp.stack([pose(turn, jnp.zeros(3)), pose(about_z(angle), crank * turn[:, 0]), slider])

    def coordinates(s, mode):
        angle, x = solved(s, mode)
        return jnp.stack([s[0], angle - s[0], x])

    return Linkage(pin, poses, coordinates, lambda X: angle_about_z(X[0])[None], (0.7,))


def rssr(builder: MechanismBuilder, first: int, *, with_rod: bool) -> Linkage:
    """Crank and rocker about skew axes, between them a coupler on balls, which may spin, or a rod without mass."""
    rng = np.random.default_rng(4)
    crank, rocker, length, height = 0.3, 0.5, 1.0, 0.2
    pivot, orientation = np.array([0.7, 0.5, -0.3]), random_unit(rng, 4)
    prefix = "rod " if with_rod else "ball "
    add_body(builder, prefix + "crank", Revolute((0, 0, 1)))
    if not with_rod:
        add_body(builder, prefix + "coupler", Spherical(), parent=prefix + "crank", position=(crank, 0, height))
    add_body(builder, prefix + "rocker", Revolute((0, 0, 1)), position=pivot, orientation=orientation)
    frame = RigidTransform(jnp.asarray(orientation), jnp.asarray(pivot)).rotation
    closing = (
        Distance("rod", first, (crank, 0, height), first + 1, (rocker, 0, 0), length)
        if with_rod
        else LoopJoint("ball", "spherical", first + 1, marker(length), first + 2, marker(rocker))
    )

    def solved(s, mode):
        """Place of the crank's ball, angle of the rocker by A sin + B cos = C, and direction of the coupler."""
        ball = about_z(s[0]) @ jnp.array([crank, 0.0, height])
        B, A, _ = u = frame.T @ (ball - pivot)
        C = (u @ u + rocker**2 - length**2) / (2.0 * rocker)
        angle = jnp.arctan2(A, B) + mode * jnp.arccos(C / jnp.hypot(A, B))
        return ball, angle, (pivot + rocker * frame @ about_z(angle)[:, 0] - ball) / length

    def along(direction):
        """The shortest rotation from x to the direction."""
        k = jnp.cross(jnp.array([1.0, 0.0, 0.0]), direction)
        S = jnp.stack([jnp.cross(k, e) for e in jnp.eye(3)], axis=1)
        return jnp.eye(3) + S + S @ S / (1.0 + direction[0])

    def poses(s, mode):
        ball, angle, direction = solved(s, mode)
        coupler = [] if with_rod else [pose(along(direction) @ about_x(s[1]), ball)]
        return jnp.stack([pose(about_z(s[0]), jnp.zeros(3)), *coupler, pose(frame @ about_z(angle), pivot)])

    def coordinates(s, mode):
        _, angle, direction = solved(s, mode)
        d = about_z(-s[0]) @ direction
        coupler = [] if with_rod else [1.0 + d[0], 0.0 * d[0], -d[2], d[1]]  # not normalized, without spin
        return jnp.stack([s[0], *coupler, angle])

    def read(X):
        if with_rod:
            return angle_about_z(X[0])[None]
        spin = along(X[1, :, 0]).T @ X[1, :, :3]
        return jnp.stack([angle_about_z(X[0]), jnp.arctan2(spin[2, 1], spin[1, 1])])

    return Linkage(closing, poses, coordinates, read, (0.4,) if with_rod else (0.4, 0.3))


def bennett(builder: MechanismBuilder, first: int) -> Linkage:
    """Four revolute joints in space whose opposite links are equal, with sin(twist) / length the same in all: it moves, although
    five equations close a loop of three coordinates."""
    a, alpha, beta = 0.8, 0.5, 1.3
    b = a * np.sin(beta) / np.sin(alpha)
    ratio = np.sin((beta + alpha) / 2) / np.sin((beta - alpha) / 2)

    def link(length, twist):
        """From one axis z to the next: `length` along x and `twist` about it."""
        turn = jnp.array([np.cos(twist / 2), np.sin(twist / 2), 0.0, 0.0])
        return RigidTransform(turn, jnp.array([length, 0.0, 0.0]))

    links = [link(0.0, 0.0), link(a, alpha), link(b, beta)]
    for i, (at, name) in enumerate(zip(links, ("first", "second", "third"), strict=True)):
        parent = ("ground", "first", "second")[i]
        add_body(builder, name, Revolute((0, 0, 1)), parent=parent, position=at.translation, orientation=at.quaternion)
    # The fourth axis; behind it, the last link leads back to the ground.
    pin = LoopJoint("hinge", "revolute", first + 2, link(a, alpha), -1, link(b, beta).inverse())

    def coordinates(s, mode):
        return jnp.stack([s[0], 2.0 * jnp.arctan(ratio / jnp.tan(s[0] / 2)), -s[0]])

    def poses(s, mode):
        turn, origin, found = jnp.eye(3), jnp.zeros(3), []
        for angle, at in zip(coordinates(s, mode), links, strict=True):
            turn, origin = turn @ at.rotation @ about_z(angle), origin + turn @ at.translation
            found.append(pose(turn, origin))
        return jnp.stack(found)

    return Linkage(pin, poses, coordinates, lambda X: angle_about_z(X[0])[None], (1.2,))


@pytest.mark.thorough
def test_linkages_move_as_their_closed_forms_in_every_mode_of_assembly():
    builder, parts, bodies, ends = MechanismBuilder("linkages", (2.0, -3.0, -9.0)), {}, {}, {}
    kinds = {
        "slider-crank": slider_crank,
        "RSSR with balls": lambda *to: rssr(*to, with_rod=False),
        "RSSR with a rod": lambda *to: rssr(*to, with_rod=True),
        "Bennett": bennett,
    }
    count, coordinates = 0, 0
    for name, make in kinds.items():
        part = parts[name] = make(builder, count)
        size = jax.eval_shape(part.poses, jnp.array(part.middle), jnp.array(1.0)).shape[0]
        bodies[name], count, coordinates = slice(count, count + size), count + size, coordinates + part.mobility
        ends[name] = slice(coordinates - part.mobility, coordinates)
    system = System(builder.build(), constraints=tuple(part.constraint for part in parts.values()), stabilization=0.0)

    def poses(s, mode):
        return jnp.concatenate([part.poses(s[ends[name]], mode) for name, part in parts.items()])

    def read(X):
        return jnp.concatenate([part.read(X[bodies[name]]) for name, part in parts.items()])

    def rough(noise, more, mode):
        middles = [jnp.array(part.middle) + 0.1 * noise[ends[name]] for name, part in parts.items()]
        starts = [part.coordinates(s, mode) for part, s in zip(parts.values(), middles, strict=True)]
        return jnp.concatenate(starts) + 0.03 * more

    @jax.jit
    def compared(noise, more, v, mode):
        found = jaxdyn.assemble(system, system.at_rest(rough(noise, more, mode)))
        v = jaxdyn.project_velocity(system, State(found.q, v))
        ours = motion_of_bodies(system.model, found.q, v, jaxdyn.acceleration(system, State(found.q, v)))
        s, s_rate = jax.jvp(read, ours[:1], ours[1:2])
        return found, ours, motion_by_virtual_work(system.model, lambda s: poses(s, mode), s, s_rate)

    rng = np.random.default_rng(2)
    for mode in (1.0, 1.0, 1.0, -1.0, -1.0, -1.0):
        draws = (jnp.asarray(rng.normal(size=n)) for n in (coordinates, system.model.nq, system.model.nv))
        found, ours, expected = compared(*draws, jnp.array(mode))
        assert bool(found.closed)
        assert int(found.mobility) == sum(part.mobility for part in parts.values())
        for name in parts:
            for actual, desired in zip(ours, expected, strict=True):
                actual, desired = actual[bodies[name]], desired[bodies[name]]
                error = np.abs(actual - desired).max() / np.abs(desired).max()
                assert error < 1e-9, (name, mode)
