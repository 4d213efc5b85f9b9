"""Alternative textbook formulations of the equations of motion; their results agree with `jaxdyn.dynamics`.

gibbs_appell  acceleration energy, whose gradient with respect to the accelerations is the equation of motion
kane          active and inertia forces, projected on partial velocities
lagrange      derivatives of the kinetic energy
hamilton      coordinates and generalized momenta
exponentials  screws and products of exponentials
attitude      one rigid body about its center of mass, in s-parameters and in quaternions
"""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.formulations import attitude as attitude
    from jaxdyn.formulations.exponentials import screw_accelerations as screw_accelerations
    from jaxdyn.formulations.exponentials import screw_displacements as screw_displacements
    from jaxdyn.formulations.exponentials import screw_exponential as screw_exponential
    from jaxdyn.formulations.exponentials import screw_poses as screw_poses
    from jaxdyn.formulations.exponentials import screw_velocities as screw_velocities
    from jaxdyn.formulations.exponentials import screws as screws
    from jaxdyn.formulations.gibbs_appell import acceleration_energy as acceleration_energy
    from jaxdyn.formulations.gibbs_appell import acceleration_energy_from_kinetic as acceleration_energy_from_kinetic
    from jaxdyn.formulations.gibbs_appell import acceleration_energy_of_velocity as acceleration_energy_of_velocity
    from jaxdyn.formulations.gibbs_appell import acceleration_energy_terms as acceleration_energy_terms
    from jaxdyn.formulations.gibbs_appell import gibbs_appell_accelerations as gibbs_appell_accelerations
    from jaxdyn.formulations.gibbs_appell import gibbs_appell_forces as gibbs_appell_forces
    from jaxdyn.formulations.hamilton import canonical_rates as canonical_rates
    from jaxdyn.formulations.hamilton import hamiltonian as hamiltonian
    from jaxdyn.formulations.kane import kane_forces as kane_forces
    from jaxdyn.formulations.lagrange import lagrange_forces as lagrange_forces
    from jaxdyn.formulations.lagrange import lagrange_terms as lagrange_terms
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
