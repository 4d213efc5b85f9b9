"""Compliant contact with friction, theory.md section (t): of points, spheres, rims and ellipsoids with the ground, and of spheres
with each other.

Contacts are forces of a `System`. They have continuous derivatives, never pull, and dissipate energy. The default integrator
evaluates them at the end of its step, so that steps of 2 to 5 ms are stable on stiff ground (`BodyForce.over_step`).

Other shapes are sets of these: see `contact.shapes`.
"""

from jaxdyn.dynamics.contact.base import Contact as Contact
from jaxdyn.dynamics.contact.base import ContactPoints as ContactPoints
from jaxdyn.dynamics.contact.ground import GroundContact as GroundContact
from jaxdyn.dynamics.contact.ground import shape_axes as shape_axes
from jaxdyn.dynamics.contact.spheres import SphereContact as SphereContact
