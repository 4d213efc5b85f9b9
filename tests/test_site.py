"""The documentation site has a place for every package and every public name. `.ci/docs/build` builds it and checks its links."""

import functools
import importlib
import re
from pathlib import Path

import pytest
import site_generator

import jaxdyn

pages = site_generator.load("pages")
FOLDERS = {path.parent.name for path in Path(jaxdyn.__file__).parent.glob("*/__init__.py")}


@functools.cache
def reference() -> dict[str, str]:
    return pages.api_pages()


def entries(package: str) -> list[str]:
    """The names that the page of a package explains."""
    return re.findall(r"^::: ([\w.]+)$", reference()[f"api/{package}.md"], re.MULTILINE)


def resolve(dotted: str):
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_every_package_has_its_guide_and_its_reference_in_the_navigation():
    listed = re.findall(r"[\w/]+\.md", str(pages.navigation()))
    for package in FOLDERS:
        assert f"api/{package}.md" in listed
        assert f"jaxdyn/{package}/README.md" in listed


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r"[\w/.-]+\.md", str(pages.navigation()))
    assert sorted(listed) == sorted({*pages.guides(), *reference()})


@pytest.mark.parametrize("package", sorted(FOLDERS))
def test_every_public_name_of_a_package_has_one_entry_in_the_reference(package):
    module = importlib.import_module(f"jaxdyn.{package}")
    explained = [
        resolve(entry) for other in FOLDERS for entry in entries(other) if entry.rpartition(".")[2] in dir(module)
    ]
    for name in getattr(module, "__all__", []):
        assert sum(item is getattr(module, name) for item in explained) == 1, name


def test_every_name_of_jaxdyn_itself_is_in_the_overview_of_the_reference():
    overview = reference()["api/README.md"]
    for name in set(jaxdyn.__all__) - FOLDERS:
        found = re.search(rf"\[`jaxdyn\.{name}`\]\[([\w.]+)\]", overview)
        assert found, name
        assert resolve(found[1]) is getattr(jaxdyn, name)


def test_headings_within_code_do_not_split_a_guide():
    text = "# Guide\n\n## First part?\n\n```sh\n## not a part\n```\n\n### Detail\n\n## Second\n"
    parts = pages.sections("jaxdyn/README.md", text)
    assert list(parts) == ["jaxdyn/README.md", "jaxdyn/first-part.md", "jaxdyn/second.md"]
    assert parts["jaxdyn/first-part.md"].startswith("# First part?\n")
    assert "\n## Detail" in parts["jaxdyn/first-part.md"]
    assert "\n## not a part" in parts["jaxdyn/first-part.md"]


@pytest.mark.parametrize(
    ("page", "guide", "link", "turned"),
    [
        ("jaxdyn/io/README.md", "jaxdyn/io/README.md", "../README.md#pitfalls", "../faq.md#pitfalls"),
        ("jaxdyn/choose.md", "jaxdyn/README.md", "#pitfalls", "faq.md#pitfalls"),
        ("README.md", "README.md", "jaxdyn/spatial", "jaxdyn/spatial/README.md"),
        ("jaxdyn/io/README.md", "jaxdyn/io/README.md", "units.py", "units.py"),
    ],
)
def test_links_into_split_guides_and_to_folders_lead_to_their_pages(page, guide, link, turned):
    text, anchors = "See [this]({}) and `[that]({})`.", {"jaxdyn/README.md": {"pitfalls": "jaxdyn/faq.md"}}
    assert pages._turned(page, text.format(link, link), guide, anchors) == text.format(turned, link)


@pytest.mark.parametrize(
    ("name", "package", "found"),
    [
        ("jaxdyn.mass_matrix", "", "jaxdyn.dynamics.metric.mass_matrix"),
        ("mass_matrix", "simulate", "jaxdyn.dynamics.metric.mass_matrix"),
        ("jaxdyn.configuration.random", "", "jaxdyn.mechanism.configuration.random"),
        ("jaxdyn.compute.batched", "", "jaxdyn.compute.programs.batched"),
        ("jaxdyn.dynamics.kinematics.rate_of_poses", "", "source:jaxdyn.dynamics.kinematics.rate_of_poses"),
        ("numpy", "", None),
    ],
)
def test_names_in_texts_lead_to_the_reference_or_to_the_source(name, package, found):
    assert pages.identifier(name, package) == found
