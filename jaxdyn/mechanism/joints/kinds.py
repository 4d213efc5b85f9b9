"""Joints by the names of their kinds in files."""

from jaxdyn.errors import check_name
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints.fixed import Fixed
from jaxdyn.mechanism.joints.prismatic import Prismatic
from jaxdyn.mechanism.joints.revolute import Revolute


def joint_of_kind(kind: str, axis=None) -> Joint:
    """Joint of the kind named in a file: "revolute", "prismatic" (both need a unit `axis`) or "fixed".

    Raises:
        UnknownName: There is no such kind.
        ValueError: An axis is missing or not applicable.
    """
    axial: dict[str, type[Revolute | Prismatic]] = {"revolute": Revolute, "prismatic": Prismatic}
    if kind == "fixed":
        if axis is not None:
            raise ValueError("a fixed joint has no axis; remove it")
        return Fixed()
    check_name("kind of joint", kind, [*axial, "fixed"])
    if axis is None:
        raise ValueError(f"a {kind} joint needs an axis; give a unit vector such as (0, 0, 1)")
    return axial[kind](axis)
