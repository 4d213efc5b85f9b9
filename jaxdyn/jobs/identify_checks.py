"""Figures of merit of a plant on the recordings of a config."""

from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import RecordingError
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify_config import IdentifyConfig
from jaxdyn.jobs.identify_plant import Part, motions_of


def figures(config: IdentifyConfig, plant: Plant, parts: list[Part]) -> dict[str, float]:
    """The figures of merit of all checks of the config, by the names that appear in tables.

    Raises:
        ConfigError: A recording is too short for a check.
    """
    recordings = [part.alone for part in parts]
    options = {"lead": config.windows.lead, "velocity_cutoff": config.windows.velocity_cutoff}
    found: dict[str, float] = {}
    for check in config.check:
        try:
            found |= check.figures(plant, recordings, lambda: motions_of(config, parts), **options)
        except RecordingError as error:
            raise ConfigError(str(error)) from None
    return found
