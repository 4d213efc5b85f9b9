"""The command `jaxdyn view`: an interactive replay of a run in the browser, and the same replay as one file."""

import argparse
import contextlib
from pathlib import Path

from jaxdyn.io.runs import load_run
from jaxdyn.jobs.command import needs

_LANES = 4096  # largest number of samples to view; further chunks of a larger run are not read


def view(arguments: argparse.Namespace) -> None:
    """Write the page of a run and serve its replay."""
    system, arrays = load_run(arguments.run, lanes=max([_LANES, *(lane + 1 for lane in arguments.lanes or [])]))
    with needs("view"):
        from jaxdyn.view.replay import Replay
    energy, work = arrays.get("energy"), arrays.get("work")
    replay = Replay(system, arrays["time"], arrays["q"], energy=energy, work=work)
    page: Path = arguments.html or arguments.run / "replay.html"
    replay.write_html(page, lanes=arguments.lanes, overlay=arguments.overlay)
    print(f"{page}: open this page in a browser, without a server")
    if arguments.no_serve:
        return
    with replay.serve(arguments.port, arguments.host) as served, contextlib.suppress(KeyboardInterrupt):
        print(f"{served.address}: all {replay.recording.lanes} samples; press Ctrl-C to stop the server", flush=True)
        served.wait()
