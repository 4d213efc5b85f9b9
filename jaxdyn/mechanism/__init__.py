"""Mechanisms: joints, topology, model parameters, the configuration space, and sweeps over the tree."""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.mechanism import configuration as configuration
    from jaxdyn.mechanism.builder import MechanismBuilder as MechanismBuilder
    from jaxdyn.mechanism.joint import Joint as Joint
    from jaxdyn.mechanism.joints import Cylindrical as Cylindrical
    from jaxdyn.mechanism.joints import Fixed as Fixed
    from jaxdyn.mechanism.joints import Free as Free
    from jaxdyn.mechanism.joints import Planar as Planar
    from jaxdyn.mechanism.joints import Prismatic as Prismatic
    from jaxdyn.mechanism.joints import Revolute as Revolute
    from jaxdyn.mechanism.joints import Rheonomic as Rheonomic
    from jaxdyn.mechanism.joints import Screw as Screw
    from jaxdyn.mechanism.joints import Spherical as Spherical
    from jaxdyn.mechanism.joints import Universal as Universal
    from jaxdyn.mechanism.messages import MechanismError as MechanismError
    from jaxdyn.mechanism.model import Limits as Limits
    from jaxdyn.mechanism.model import Model as Model
    from jaxdyn.mechanism.model import as_dtype as as_dtype
    from jaxdyn.mechanism.prescribed import ConstantRate as ConstantRate
    from jaxdyn.mechanism.prescribed import PrescribedMotion as PrescribedMotion
    from jaxdyn.mechanism.prescribed import Sinusoid as Sinusoid
    from jaxdyn.mechanism.prescribed import Spline as Spline
    from jaxdyn.mechanism.transformations import decompose_joints as decompose_joints
    from jaxdyn.mechanism.transformations import lock_joints as lock_joints
    from jaxdyn.mechanism.transformations import release_joints as release_joints
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
