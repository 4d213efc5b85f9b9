"""A tree of revolute joints in the file formats of other libraries: without contacts, friction and limits, without rounding."""

import math
from typing import Any

Description = dict[str, Any]
"""name, gravity, bodies: name, joint, parent (-1 is the ground), axis, quaternion_wxyz, translation, mass, com, inertia."""

_INERTIA = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2), "izz": (2, 2)}
_UNIT_INERTIA = {name: float(i == j) for name, (i, j) in _INERTIA.items()}


def _text(numbers) -> str:
    """Floating-point numbers as text, without loss."""
    return " ".join(repr(float(x)) for x in numbers)


def _inertia(body: dict[str, Any]) -> dict[str, float]:
    return {name: body["inertia"][i][j] for name, (i, j) in _INERTIA.items()}


def _roll_pitch_yaw(quaternion) -> tuple[float, float, float]:
    """Angles of R = Rz(yaw) Ry(pitch) Rx(roll)."""
    w, x, y, z = quaternion
    roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
    yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return roll, pitch, yaw


def _parent(robot: Description, body: dict[str, Any]) -> str:
    return "base" if body["parent"] < 0 else robot["bodies"][body["parent"]]["name"]


def mjcf_text(robot: Description, dt: float) -> str:
    """The robot for MuJoCo, MJX and Brax: motors of gear 1, semi-implicit Euler, and a geometry on the ground, which Brax needs."""
    children: dict[int, list[int]] = {}
    for i, body in enumerate(robot["bodies"]):
        children.setdefault(body["parent"], []).append(i)

    def text(i: int) -> str:
        body = robot["bodies"][i]
        moments = _inertia(body)
        full = _text(moments[name] for name in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"))
        return (
            f'<body name="{body["name"]}" pos="{_text(body["translation"])}" quat="{_text(body["quaternion_wxyz"])}">'
            f'<inertial pos="{_text(body["com"])}" mass="{body["mass"]!r}" fullinertia="{full}"/>'
            f'<joint name="{body["joint"]}" type="hinge" axis="{_text(body["axis"])}"/>'
            f"{''.join(map(text, children.get(i, ())))}</body>"
        )

    motors = "".join(f'<motor joint="{body["joint"]}"/>' for body in robot["bodies"])
    return (
        f'<mujoco model="{robot["name"]}"><compiler autolimits="false" balanceinertia="false"/>'
        f'<option gravity="{_text(robot["gravity"])}" timestep="{dt!r}" integrator="Euler">'
        '<flag contact="disable" constraint="disable" eulerdamp="disable"/></option>'
        '<custom><numeric name="matrix_inv_iterations" data="0"/></custom>'  # Brax: exact inverse of the mass matrix
        '<worldbody><geom size="0.01" contype="0" conaffinity="0"/>'
        f"{''.join(map(text, children[-1]))}</worldbody><actuator>{motors}</actuator></mujoco>"
    )


def urdf_text(robot: Description) -> str:
    """The robot for Pinocchio, frax and adam, on a link "base" that never moves, whose inertia frax asks for."""

    def link(name, com, mass, inertia):
        moments = " ".join(f'{key}="{value!r}"' for key, value in inertia.items())
        return (
            f'<link name="{name}"><inertial><origin xyz="{_text(com)}" rpy="0 0 0"/><mass value="{mass!r}"/>'
            f"<inertia {moments}/></inertial></link>"
        )

    parts = [link("base", (0, 0, 0), 1.0, _UNIT_INERTIA)]
    for body in robot["bodies"]:
        parts.append(link(body["name"], body["com"], body["mass"], _inertia(body)))
        parts.append(
            f'<joint name="{body["joint"]}" type="revolute"><parent link="{_parent(robot, body)}"/>'
            f'<child link="{body["name"]}"/><origin xyz="{_text(body["translation"])}" '
            f'rpy="{_text(_roll_pitch_yaw(body["quaternion_wxyz"]))}"/><axis xyz="{_text(body["axis"])}"/>'
            '<limit lower="-1e6" upper="1e6" effort="1e6" velocity="1e6"/></joint>'
        )
    return f'<robot name="{robot["name"]}">{"".join(parts)}</robot>'


def sdf_text(robot: Description) -> str:
    """The robot for JaxSim, which reads URDF only by a separate program, on a link "base" fixed to the world."""

    def link(name, pose, com, mass, inertia):
        moments = "".join(f"<{key}>{value!r}</{key}>" for key, value in inertia.items())
        return (
            f'<link name="{name}">{pose}<inertial><pose>{_text(com)} 0 0 0</pose><mass>{mass!r}</mass>'
            f"<inertia>{moments}</inertia></inertial></link>"
        )

    parts = [
        link("base", "", (0, 0, 0), 1.0, _UNIT_INERTIA),
        '<joint name="base_fixed" type="fixed"><parent>world</parent><child>base</child></joint>',
    ]
    for body in robot["bodies"]:
        parent, joint = _parent(robot, body), body["joint"]
        placement = _text((*body["translation"], *_roll_pitch_yaw(body["quaternion_wxyz"])))
        parts.append(
            f'<joint name="{joint}" type="revolute"><parent>{parent}</parent><child>{body["name"]}</child>'
            f'<pose relative_to="{parent}">{placement}</pose><axis><xyz>{_text(body["axis"])}</xyz>'
            "<limit><lower>-1e6</lower><upper>1e6</upper></limit></axis></joint>"
        )
        pose = f'<pose relative_to="{joint}">0 0 0 0 0 0</pose>'
        parts.append(link(body["name"], pose, body["com"], body["mass"], _inertia(body)))
    return f'<sdf version="1.7"><model name="{robot["name"]}">{"".join(parts)}</model></sdf>'
