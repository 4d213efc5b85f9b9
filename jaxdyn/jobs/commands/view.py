"""The command `jaxdyn view`: a replay of a run, or a mechanism with sliders, in the browser."""

from pathlib import Path

from jaxdyn.io.archive.plant import holds_plant
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.runs.loaded import load_run
from jaxdyn.io.shapes.visual_files import load_visuals, visuals_of_run
from jaxdyn.jobs.commands.arguments import ViewArguments
from jaxdyn.jobs.notes import warnings_as_notes
from jaxdyn.jobs.source import load_source
from jaxdyn.view.mechanism_page import write_mechanism_page
from jaxdyn.view.replay import Replay

_SAMPLES = 4096  # samples that are read unless others are selected; further chunks of a larger run are not
_OVERLAY = 3


def view(arguments: ViewArguments) -> None:
    """Write the page of a mechanism or of a run."""
    source: Path = arguments.source
    (_view_run if source.is_dir() and not holds_plant(source) else _view_mechanism)(source, arguments)


def _view_run(path: Path, arguments: ViewArguments) -> None:
    run = load_run(path, samples=max([_SAMPLES, *(sample + 1 for sample in arguments.samples or [])]))
    arrays = run.arrays
    with warnings_as_notes():
        visuals = visuals_of_run(run)
    recorded = {name: arrays.get(name) for name in ("v", "energy", "work")}
    replay = Replay(run.system, arrays["time"], arrays["q"], **recorded, visuals=visuals)
    page: Path = arguments.html or path / "replay.html"
    overlay = _OVERLAY if arguments.overlay is None else arguments.overlay
    replay.write_html(page, samples=arguments.samples, overlay=overlay)
    _name_page(page)


def _view_mechanism(file: Path, arguments: ViewArguments) -> None:
    system = load_source(arguments, file)
    for option in ("samples", "overlay"):
        if getattr(arguments, option) is not None:
            raise ConfigError(
                f"{file}: --{option} selects samples of a run, but this file is a mechanism; omit the option"
            )
    with warnings_as_notes():
        visuals = load_visuals(file, system, folder=arguments.folder)
    page: Path = arguments.html or Path(f"{file.stem}.html")
    write_mechanism_page(system, page, visuals=visuals)
    _name_page(page)


def _name_page(page: Path) -> None:
    print(f"{page}: open this page in a browser, without a server")
