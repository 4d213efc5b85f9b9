"""Sensors of a compiled MJCF model."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxdyn.dynamics.sensors import Accelerometer, ForceTorqueSensor, Gyroscope, JointEncoders, Markers, Sensor
from jaxdyn.errors import UnknownName
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mjcf.tendons import Carriers


def sensors_of(
    mujoco: Any, compiled: Any, sites: Mapping[int, str], carriers: Carriers, ignore: Sequence[str]
) -> tuple[Sensor, ...]:
    """The sensors of a compiled model, in order.

    Args:
        mujoco: The module.
        compiled: The compiled model.
        sites: Name of the frame of each site that has a name.
        carriers: Name of the body and the origin on it for each MuJoCo body.
        ignore: Names or kinds of sensors that are left out.

    Raises:
        ConfigError: A sensor has no counterpart.
        UnknownName: There is no sensor of a name or kind to ignore.
    """
    names = [compiled.sensor(k).name or f"sensor {k}" for k in range(compiled.nsensor)]
    kinds = [mujoco.mjtSensor(int(kind)).name.removeprefix("mjSENS_").lower() for kind in compiled.sensor_type]
    unknown = [word for word in ignore if word not in (*names, *kinds)]
    if unknown:
        raise UnknownName("sensor to ignore", unknown[0], dict.fromkeys((*names, *kinds)))
    found = []
    for k, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        if name in ignore or kind in ignore:
            continue
        sensor = _counterpart(mujoco, compiled, k, kind, sites, carriers)
        if sensor is None:
            raise ConfigError(
                f"sensor {name!r} of kind {kind!r} has no counterpart, or its site has no name or is on a body without a joint; "
                f"leave it out, ignore=({kind!r},)"
            )
        found.append(sensor)
    return tuple(found)


def _counterpart(
    mujoco: Any, compiled: Any, k: int, kind: str, sites: Mapping[int, str], carriers: Carriers
) -> Sensor | None:
    """The sensor with the same readings; None if there is none."""
    index, of_object = int(compiled.sensor_objid[k]), int(compiled.sensor_objtype[k])
    delayed = hasattr(compiled, "sensor_delay") and compiled.sensor_delay[k]
    if compiled.sensor_cutoff[k] or compiled.sensor_refid[k] >= 0 or delayed:
        return None
    of_site = of_object == mujoco.mjtObj.mjOBJ_SITE
    if kind in ("force", "torque") and of_site and not compiled.body_jntnum[compiled.site_bodyid[index]]:
        return None  # the load through a weld is not that of a joint
    if of_site and index in sites:
        return {
            "accelerometer": Accelerometer(sites[index]),
            "gyro": Gyroscope(sites[index]),
            "force": ForceTorqueSensor(sites[index], component="force"),
            "torque": ForceTorqueSensor(sites[index], component="moment"),
            "framepos": Markers((sites[index],)),
        }.get(kind)
    if of_object == mujoco.mjtObj.mjOBJ_XBODY and kind == "framepos":
        carrier, origin = carriers[index]
        return Markers((carrier,), [origin])
    if kind == "jointvel" or (kind == "jointpos" and not compiled.qpos0[compiled.jnt_qposadr[index]]):
        return JointEncoders((compiled.joint(index).name or f"joint {index}",), velocities=kind == "jointvel")
    return None
