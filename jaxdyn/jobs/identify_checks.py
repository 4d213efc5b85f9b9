"""Figures of merit of a plant on the recordings of a config."""

from jaxdyn.identify.evaluation import evaluate
from jaxdyn.identify.measurement import MeasurementError, Plant
from jaxdyn.identify.recording import Part, RecordingError
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify_config import IdentifyConfig


def figures(config: IdentifyConfig, plant: Plant, parts: list[Part], *, intervals: bool = False) -> dict[str, float]:
    """The figures of merit of all checks of the config, by the names that appear in tables.

    Raises:
        ConfigError: A recording is too short for a check, or does not fit the plant.
    """
    if not config.check:
        return {}
    try:
        return evaluate(plant, parts, config.check, intervals=intervals).figures["plant"]
    except (RecordingError, MeasurementError) as error:
        raise ConfigError(str(error)) from None
