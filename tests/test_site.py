"""The site: built without a warning, with nothing to fetch, and with a page for every theory."""

import html
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
THEORIES = sorted(path.stem for path in ROOT.glob("src/saccade/theory/[!_]*.py"))
FETCHED = re.compile(
    r"""<(?:link|script|img|iframe|source|video|audio|object|embed)\b[^>]*?"""
    r"""\b(?:src|href|srcset|data)=["']?\s*((?:https?:)?//[^"' >]+)"""
)
"""What a browser loads by itself; links that a reader may follow are not."""


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(DOCS), *sys.path])
        spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    program = Path(sys.executable).with_name("mkdocs")
    command = [program, "build", "--quiet", "--strict", "--site-dir", folder]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def page(site: Path, name: str) -> str:
    return (site / f"{name}.html").read_text(encoding="utf-8")


def article(text: str) -> str:
    (found,) = re.findall(r"<article.*?</article>", text, re.DOTALL)
    return found


def test_every_page_is_in_the_navigation():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": (\S+\.md)$", settings, re.MULTILINE)
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in DOCS.glob("**/*.md"))


def test_docstrings_of_fields_are_shown(site):
    assert "Measured along training; loss" in page(site, "reference/train")


def test_nothing_is_fetched(site):
    pages = sorted(site.glob("**/*.html"))
    assert len(pages) > 40
    for one in pages:
        assert not FETCHED.findall(one.read_text(encoding="utf-8")), one
    for one in site.glob("**/*.css"):
        text = one.read_text(encoding="utf-8")
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text), one


def test_links_between_pages_lead_to_files(site):
    """So that the site can be read without a server."""
    for one in site.glob("**/*.html"):
        if one.name == "404.html":  # its links begin at the root of a server
            continue
        for link in re.findall(
            r'<a\b[^>]*?\bhref="(?!https?:)([^"#?]+)', one.read_text(encoding="utf-8")
        ):
            assert (one.parent / link).is_file(), f"{one.relative_to(site)}: {link}"


def test_what_a_browser_would_fetch_is_found():
    assert FETCHED.findall('<script defer src="https://elsewhere.org/a.js"></script>')
    assert FETCHED.findall('<link rel="stylesheet" href="//elsewhere.org/a.css">')
    assert FETCHED.findall("<img alt='' src=http://elsewhere.org/a.png>")
    assert not FETCHED.findall('<a href="https://elsewhere.org">a link</a><img src="a.png">')


# -- theory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", THEORIES)
def test_a_theory_has_a_page_with_typeset_formulas(name, site, hooks):
    text = article(page(site, f"theory/{name}"))
    title, source = hooks.title_and_source(name)
    assert html.escape(title, quote=False) in text
    assert source or name == "value_spectrum", "its paper is named in the statement"
    assert html.escape(source[1:], quote=False) in text
    assert "<strong>Statement.</strong>" in text
    assert "<strong>Limits.</strong>" in text
    formulas = len(re.findall(r"\$\$.+?\$\$|\$[^$]+\$", hooks.docstring(name), re.DOTALL))
    assert len(re.findall("<math ", text)) == formulas > 3
    without_code = re.sub(r"<(code|pre)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert "$" not in re.sub(r'alttext="[^"]*"', "", without_code)
    assert "arithmatex" not in text


@pytest.mark.parametrize("name", THEORIES)
def test_every_formula_is_understood(name, hooks):
    """What the converter does not know it passes on as text, without an error."""
    for block, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$]+)\$", hooks.docstring(name), re.DOTALL):
        assert unknown_in(hooks.mathml(block or inline, bool(block))) == [], block or inline


def unknown_in(mathml: str) -> list[str]:
    shown = re.sub(r'alttext="[^"]*"', "", mathml)
    return re.findall(r"\\\\?\w*|>\s*&(?!#|\w+;)", shown)


def test_a_formula_that_is_not_understood_is_found(hooks):
    assert unknown_in(hooks.mathml(r"\nonsense{a}"))
    assert unknown_in(hooks.mathml(r"\begin{aligned} a & = b \end{aligned}"))
    assert not unknown_in(hooks.mathml(r"\begin{split} a & = \frac{b}{2} \end{split}"))


def test_formulas_are_typeset_in_the_reference_too(site):
    text = article(page(site, "reference/theory"))
    assert "<math " in text
    assert "arithmatex" not in text


def test_the_overview_links_to_every_theory(site):
    text = article(page(site, "theory"))
    assert set(re.findall(r'href="theory/(\w+)\.html"', text)) >= set(THEORIES)


# -- the tutorial ----------------------------------------------------------------------------------


def test_the_tutorial_shows_its_outputs(site):
    text = article(page(site, "tutorial"))
    assert 'src="data:image/png;base64,' in text
    assert "fails" in text
    assert (site / "tutorial.ipynb").exists()
