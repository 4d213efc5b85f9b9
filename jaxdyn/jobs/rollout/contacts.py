"""Contacts in the report of `jaxdyn rollout`: deepest penetration, share of the time in contact, and normal forces."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxdyn.compute.arrays import einsum
from jaxdyn.dynamics.contact import GroundContact, SphereContact
from jaxdyn.dynamics.contact.points import contact_forces, contact_names
from jaxdyn.dynamics.system import State, System
from jaxdyn.mechanism.components import numbered

ARRAYS = ("contact_depth", "contact_share", "contact_force")  # the arrays of a run with contacts
_MOST_STATIC_DEPTHS = 10.0  # a deeper penetration is reported with a remedy


def contact_record(
    system: System, state: State, t: Float[Array, ""], passed: Float[Array, "steps contacts"] | None
) -> dict[str, Array]:
    """Contact values of one record.

    Args:
        system: System with contacts.
        state: Recorded state.
        t: Time of the record, s.
        passed: Depths since the previous record, m; None for the first record.
    """
    points = contact_forces(system, state, t)
    passed = jnp.stack([points.depth] * 2) if passed is None else passed
    return {
        "contact_depth": jnp.max(passed, axis=0),
        "contact_share": jnp.mean((passed[1:] > 0.0).astype(passed.dtype), axis=0),
        "contact_force": einsum("ci,ci->c", points.force, points.normal),
    }


def contact_summary(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Deepest penetration of each sample (m) with its contact and its time (s), and shares of the time in contact."""
    depth = arrays["contact_depth"]
    flat = depth.reshape(len(depth), -1)
    record, contact = np.unravel_index(flat.argmax(axis=1), depth.shape[1:])
    return {
        "deepest": flat.max(axis=1).astype(np.float64),
        "deepest_contact": contact,
        "deepest_time": arrays["time"][record],
        "contact_share": arrays["contact_share"][:, 1:].mean(axis=1).astype(np.float64),
    }


def contact_metrics(
    system: System, samples: dict[str, np.ndarray], done: Bool[np.ndarray, "samples"]
) -> dict[str, Any]:
    """Metrics of the contacts of the completed samples; the deepest penetration with its contact, time and sample."""
    if not done.any():
        return {}
    sample = int(np.where(done, samples["deepest"], -np.inf).argmax())
    contact = int(samples["deepest_contact"][sample])
    names = contact_names(system)
    shares = samples["contact_share"][done].mean(axis=0)
    return {
        "contact_deepest_m": max(float(samples["deepest"][sample]), 0.0),
        "contact_deepest_name": names[contact],
        "contact_deepest_time_s": float(samples["deepest_time"][sample]),
        "contact_deepest_sample": sample,
        "contact_static_depth_m": static_depth(system, contact),
        "contact_time_share": {label: float(share) for label, share in zip(labels(system), shares, strict=True)},
    }


def contact_lines(metrics: dict[str, Any]) -> list[str]:
    """The lines of the report about contacts; the second one is a warning."""
    if "contact_deepest_m" not in metrics:
        return []
    deepest, name, time = (metrics[f"contact_deepest_{key}"] for key in ("m", "name", "time_s"))
    shares = metrics["contact_time_share"]
    if deepest == 0.0:
        return ["contacts: no contact in any sample"]
    mean = 100 * sum(shares.values()) / len(shares)
    found = [
        f"contacts: deepest penetration {deepest:.2g} m, contact {name!r} of sample {metrics['contact_deepest_sample']} "
        f"at t = {time:.3g} s or shortly before; a contact touches {mean:.0f} % of the time on average"
    ]
    static = metrics["contact_static_depth_m"]
    if static > 0.0 and deepest > _MOST_STATIC_DEPTHS * static:
        remedy = "start above the ground" if time == 0.0 else "use a stiffer material or shorter steps"
        found.append(
            f"warning: contact {name!r} penetrates {deepest / static:.0f} times as deep as under the weight of the mechanism "
            f"({static:.2g} m); {remedy}"
        )
    return found


def labels(system: System) -> list[str]:
    """Names of the contacts, with an index where several contacts have the same name."""
    names = contact_names(system)
    return [name if k is None else f"{name}[{k}]" for name, k in zip(names, numbered(names), strict=True)]


def static_depth(system: System, contact: int) -> float:
    """Depth (m) of a contact under the weight of the whole mechanism; zero without gravity. Source: theory.md (T2)."""
    model = system.model
    weight = float(np.sum(np.asarray(model.mass)) * np.linalg.norm(np.asarray(model.gravity)))
    forces = [force for force in system.forces if isinstance(force, GroundContact | SphereContact)]
    material = [force.material for force in forces for _ in force.names(model)][contact]
    stiffness, onset = float(material.stiffness), float(material.onset)
    return weight / max(stiffness, np.finfo(float).tiny) + 0.5 * onset if weight else 0.0
