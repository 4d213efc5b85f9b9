"""The command `jaxdyn view`: an interactive replay of a run in the browser, and the same as one file."""

import argparse
import contextlib
from pathlib import Path

from jaxdyn.io.runs import load_run
from jaxdyn.jobs.command import Command, count, needs

_LANES = 4096  # to look at; of a larger run in chunks the others are not read


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN_DIR", help="run directory")
    parser.add_argument("--html", type=Path, metavar="FILE", help="where to write the page; replay.html in the run")
    parser.add_argument(
        "--lanes", type=count, nargs="+", metavar="K", help="lanes that the page holds; the first eight if not given"
    )
    parser.add_argument("--overlay", type=count, default=3, metavar="N", help="other lanes in gray on the page, 3")
    parser.add_argument("--no-serve", action="store_true", help="write the page and be done")
    parser.add_argument("--port", type=count, default=8080, help="8080 if not given, or the next free one")
    parser.add_argument("--host", default="127.0.0.1", help="127.0.0.1: this computer only; 0.0.0.0: the network too")


def _view(arguments: argparse.Namespace) -> None:
    system, arrays = load_run(arguments.run, lanes=max([_LANES, *(lane + 1 for lane in arguments.lanes or [])]))
    with needs("view"):
        from jaxdyn.view.replay import Replay
    energy, work = arrays.get("energy"), arrays.get("work")
    replay = Replay(system, arrays["time"], arrays["q"], energy=energy, work=work)
    page: Path = arguments.html or arguments.run / "replay.html"
    replay.write_html(page, lanes=arguments.lanes, overlay=arguments.overlay)
    print(f"{page}: opens in any browser, without a server")
    if arguments.no_serve:
        return
    with replay.serve(arguments.port, arguments.host) as served, contextlib.suppress(KeyboardInterrupt):
        print(f"{served.address}: all {replay.recording.lanes} lanes; Ctrl-C ends it", flush=True)
        served.wait()


COMMAND = Command(
    "view",
    "replay a run in the browser, in three dimensions\n\n"
    "Writes replay.html into the run directory, a page that needs neither server nor network, and then serves a replay of\n"
    "all lanes, at most 4096, with more to choose: time, speed, lane, lanes laid over it, what to show, plots of coordinates and\n"
    "energy.\n\n"
    "  jaxdyn view runs/panda\n"
    "  jaxdyn view runs/panda --no-serve --lanes 0 17 42",
    _add_arguments,
    _view,
)
