"""Objects in notebooks: a table of their properties, and a small picture if matplotlib is installed.

Names can come from untrusted files, so all text is escaped, and pictures are PNG, which contains no text.
"""

import base64
import html

from jaxdyn.display import Displayed

_MOST_ROWS = 40
_MOST_CHARACTERS = 300
_LEFT = ' style="text-align: left"'


def html_of(shown: Displayed) -> str:
    """The title, the rows and the picture of an object as HTML."""
    display = shown._display_or_none()
    if display is None:
        return f"<pre>{html.escape(repr(shown))}</pre>"
    rows = list(display.rows.items())
    if len(rows) > _MOST_ROWS:
        rows = [*rows[:_MOST_ROWS], ("", f"and {len(rows) - _MOST_ROWS} more")]
    cells = "".join(
        f"<tr><th{_LEFT}>{_escaped(label)}</th><td{_LEFT}>{_escaped(text)}</td></tr>" for label, text in rows
    )
    table = f"<div><b>{_escaped(display.title)}</b><table>{cells}</table></div>"
    return f'<div style="display: flex; gap: 1em; align-items: center">{table}{_picture(shown)}</div>'


def _escaped(text: str) -> str:
    shortened = text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
    return html.escape(shortened)


def _picture(shown: Displayed) -> str:
    """The picture of an object as an element of HTML, or nothing."""
    try:
        from jaxdyn.view.thumbnails import thumbnail
    except ModuleNotFoundError:
        return ""
    # The leaves of an object can be of any shape and type, and its table is worth more than its picture.
    try:
        figure = thumbnail(shown)
        picture = None if figure is None else base64.b64encode(figure._repr_png_()).decode()
    except Exception as error:
        return f"<small>{_escaped(f'no picture: {error}')}</small>"
    return "" if picture is None else f'<img src="data:image/png;base64,{picture}"/>'
