"""The calls of MkDocs while it builds the site: the pages of pages.py, links from names and formula numbers, formulas as MathML."""

import html
import importlib.resources
import re
import sys
from pathlib import Path

import math_core
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import pages

PICTURES = (".png", ".gif", ".mp4", ".svg", ".webp")
_NUMBER = re.compile(r"\(([A-Z]\d{1,2})\)")
# What is left as it is, code of one word, formulas, and the numbers of formulas.
_PARTS = re.compile(
    r"<(?P<kept>a|pre|h[1-6]|autoref)\b.*?</(?P=kept)>|<code>(?P<name>[\w.]+)(?:\(\))?</code>"
    r'|<(?P<element>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=element)>|\((?P<number>[A-Z]\d{1,2})\)',
    re.DOTALL,
)
_FOREIGN = re.compile(
    r"""<(?:script|img|link(?! rel="canonical")|iframe|source|video|audio|object|embed)\b"""
    r"""[^>]*\s(?:src|href|srcset|data|poster)=["']?(?:https?:)?//[^>]*|(?:url\(|@import\s)["']?(?:https?:)?//[^)"']*"""
)
_math = math_core.LatexToMathML(fancy_error=False)


class SourceFile(File):
    """A source file of the repository, which becomes a page."""

    def is_documentation_page(self) -> bool:
        return True


def on_config(config: MkDocsConfig) -> None:
    for function in vars(pages).values():  # files change between the builds of `--serve`
        getattr(function, "cache_clear", lambda: None)()
    config.nav = pages.navigation()


def on_files(files: Files, config: MkDocsConfig) -> None:
    texts = pages.guides() | pages.folder_pages() | pages.api_pages()
    for path, text in texts.items():
        inclusion = InclusionLevel.NOT_IN_NAV if path in pages.folder_pages() else InclusionLevel.UNDEFINED
        files.append(File.generated(config, path, content=text, inclusion=inclusion))
    for path in (path for folder in pages.FOLDERS for path in (pages.ROOT / folder).rglob("*")):
        if path.suffix in PICTURES:
            uri = path.relative_to(pages.ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    for path in pages.source_files():
        outcome = {"dest_uri": f"source/{path}.html", "inclusion": InclusionLevel.NOT_IN_NAV}
        file = SourceFile(path, None, config.site_dir, config.use_directory_urls, **outcome)
        file.content_string = pages.source_page(path)
        files.append(file)


def on_page_content(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    autorefs = config.plugins["autorefs"]
    if isinstance(page.file, SourceFile):
        for name, line in pages.lines(page.file.src_uri).items():
            autorefs.register_anchor(page, f"source:{name}", f"__codelineno-0-{line}")
        return _NUMBER.sub(_formula_link, text)
    package = re.match(r"(?:api|jaxdyn)/(\w+)", page.file.src_uri)
    text = _PARTS.sub(lambda found: _linked(found, package[1] if package else "", page), text)
    if page.file.src_uri == pages.THEORY[0]:
        # Formulas in plain text begin with their number, those in LaTeX end with it.
        text = re.sub(r"(^|<code>)\(([A-Z]\d+)\)", r'\1<b id="\2">(\2)</b>', text, flags=re.MULTILINE)
        for number in pages.formulas():
            if f'id="{number}"' not in text:
                raise PluginError(f"{page.file.src_uri}: formula ({number}) is not displayed with its number")
            autorefs.register_anchor(page, f"formula:{number}", number)
    if 'class="arithmatex"' in text:
        raise PluginError(f"{page.file.src_uri}: a formula in a heading or a link; write it in words")
    return text


def _formula_link(found: re.Match) -> str:
    return (
        f'<autoref identifier="formula:{found[1]}">{found[0]}</autoref>' if found[1] in pages.formulas() else found[0]
    )


def _linked(found: re.Match, package: str, page: Page) -> str:
    number = found["number"]
    if found["name"] and (identifier := pages.identifier(found["name"], package)):
        return f'<autoref identifier="{identifier}">{found[0]}</autoref>'
    if found["latex"]:
        return _formula(html.unescape(found["latex"]), found["element"] == "div", page)
    if number in pages.formulas():
        return f'<autoref identifier="formula:{number}">({number})</autoref>'
    return found[0]


def _formula(latex: str, display: bool, page: Page) -> str:
    r"""A formula as MathML; one with \tag{F1} gets this number and anchor."""
    tag = re.search(r"\\tag\{(\w+)\}", latex)
    try:
        drawn = _math.convert_with_local_state(latex.replace(tag[0], "") if tag else latex, displaystyle=display)
    except math_core.LatexError as error:
        raise PluginError(f"{page.file.src_uri}: {error} in the formula {latex}") from None
    if not display:
        return drawn
    anchor, label = (f' id="{tag[1]}"', f'<a href="#{tag[1]}">({tag[1]})</a>') if tag else ("", "")
    return f'<div class="formula"{anchor}><div>{drawn}</div>{label}</div>'


def on_post_build(config: MkDocsConfig) -> None:
    site = Path(config.site_dir)
    font = importlib.resources.files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"
    (site / "STIXTwoMath.ttf").write_bytes(font.read_bytes())
    for file in (path for path in site.rglob("*") if path.suffix in (".html", ".css")):
        if found := _FOREIGN.search(file.read_text()):
            raise PluginError(f"{file.relative_to(site)} loads from another host: {found[0]}")
