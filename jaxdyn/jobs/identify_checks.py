"""Figures of merit of a plant on the recordings of a config."""

from jaxdyn.identify.evaluation import evaluate
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part
from jaxdyn.jobs.identify_config import IdentifyConfig
from jaxdyn.jobs.identify_plant import as_config_errors


@as_config_errors()
def figures(config: IdentifyConfig, plant: Plant, parts: list[Part], *, intervals: bool = False) -> dict[str, float]:
    """The figures of merit of all checks of the config, by the names that appear in tables.

    Raises:
        ConfigError: A recording is too short for a check, or does not fit the plant.
    """
    if not config.check:
        return {}
    return evaluate(plant, parts, config.check, intervals=intervals).figures["plant"]
