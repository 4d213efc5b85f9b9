"""Forces other than gravity, theory.md section (h).

There are two families of forces. A `BodyForce` acts on bodies: it returns a 6-vector (moment about the reference point P; force) on
ground axes for each body, which `inverse.project` converts to generalized forces. A `GeneralizedForce` returns generalized forces
directly; it is a `JointForce` if it has parameters for each joint. A force may have a potential energy, may be non-conservative, or
both.

Points are given on body axes, relative to the body origin O'. The body index -1 denotes the ground.
"""

from jaxdyn.dynamics.forces.base import BodyForce as BodyForce
from jaxdyn.dynamics.forces.base import Force as Force
from jaxdyn.dynamics.forces.base import GeneralizedForce as GeneralizedForce
from jaxdyn.dynamics.forces.base import JointForce as JointForce
from jaxdyn.dynamics.forces.base import OverStep as OverStep
from jaxdyn.dynamics.forces.base import Resistance as Resistance
from jaxdyn.dynamics.forces.base import Scalar as Scalar
from jaxdyn.dynamics.forces.base import Slip as Slip
from jaxdyn.dynamics.forces.base import Vector3 as Vector3
from jaxdyn.dynamics.forces.base import on_body as on_body
from jaxdyn.dynamics.forces.bodies import AppliedForce as AppliedForce
from jaxdyn.dynamics.forces.bodies import BoxDrag as BoxDrag
from jaxdyn.dynamics.forces.bodies import EllipsoidDrag as EllipsoidDrag
from jaxdyn.dynamics.forces.bodies import GravityCompensation as GravityCompensation
from jaxdyn.dynamics.forces.joints import JointServo as JointServo
from jaxdyn.dynamics.forces.joints import JointSpring as JointSpring
from jaxdyn.dynamics.forces.pairs import Damper as Damper
from jaxdyn.dynamics.forces.pairs import Spring as Spring
