"""What mkdocs does for this site beyond its plugins, without a network.

* Formulas (`$...$` and `$$...$$`, found by pymdownx.arithmatex) become MathML, which browsers
  typeset themselves: nothing is fetched and no script runs.
* Every module of `saccade.theory` has a page, made from its docstring.
* The tutorial shows the outputs of its notebook.
"""

import ast
import html
import re
from pathlib import Path
from typing import Any

import notebook
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
THEORY = ROOT / "src" / "saccade" / "theory"
STUDIES = ROOT / "src" / "saccade" / "studies"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.DOTALL)
ROW = re.compile(r"^\| `(\w+)\.py`", re.MULTILINE)
"""The file of a theory, in the table of docs/theory.md."""
LABEL = re.compile(r"^((?:[A-Z][A-Za-z]+|[A-Z][A-Za-z ]+(?= \[))(?: \[[^\]]*\])?\.) ", re.MULTILINE)
"""What a paragraph of a docstring begins with: 'Statement.', 'Rate [derived here].'"""


# -- formulas --------------------------------------------------------------------------------------


def mathml(formula: str, block: bool = False) -> str:
    """The formula as MathML; the source stays with it, for those who copy it."""
    made = convert(" ".join(formula.split()), display="block" if block else "inline")
    return made.replace("<math ", f'<math alttext="{html.escape(formula.strip())}" ', 1)


def typeset(page: str) -> str:
    """HTML with every formula as MathML."""

    def one(found: re.Match[str]) -> str:
        block = found[2] == "["
        made = mathml(html.unescape(found[3]), block)
        return f'<div class="formula">{made}</div>' if block else made

    return FORMULA.sub(one, page)


# -- pages of theory modules -----------------------------------------------------------------------


def theory_modules() -> list[str]:
    """The modules that have a page, in the order of the table in docs/theory.md, others last."""
    table = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    names = [path.stem for path in sorted(THEORY.glob("[!_]*.py"))]
    return sorted(names, key=lambda name: (table.find(f"`{name}.py`") % (len(table) + 1), name))


def docstring(name: str) -> str:
    text = ast.get_docstring(ast.parse((THEORY / f"{name}.py").read_text(encoding="utf-8")))
    if not text:
        raise ValueError(f"the theory {name} has no docstring to make its page from")
    return text


def title_and_source(name: str) -> tuple[str, str]:
    """The sentence that a docstring begins with, and what it names in brackets at its end."""
    first = " ".join(docstring(name).partition("\n\n")[0].split()).removesuffix(".")
    found = re.fullmatch(r"(.*?) \((.*)\)", first)
    return (found[1], found[2]) if found else (first, "")


def theory_page(name: str) -> str:
    """The Markdown of a theory's page."""
    title, source = title_and_source(name)
    body = LABEL.sub(r"**\1** ", docstring(name).partition("\n\n")[2])
    body = re.sub(r"`(\w+?)(?:\.py)?`", _linked, body)
    imported = re.compile(rf"\b{name}\b")
    studies = [
        path.stem
        for path in sorted(STUDIES.glob("[!_]*.py"))
        if any(
            imported.search(line) and "theory" in line
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    ]
    where = [f"Source: `src/saccade/theory/{name}.py`."]
    if (ROOT / "tests" / "theory" / f"test_{name}.py").exists():
        where.append(f"Checked against its own equations by `tests/theory/test_{name}.py`.")
    if studies:
        where.append(f"Compared with training by {', '.join(f'`{one}`' for one in studies)}.")
    where.append("Classes and functions: [reference](../reference/theory.md).")
    cited = f"*{source[0].upper()}{source[1:]}*\n\n" if source else ""
    return f"# {title}\n\n{cited}{body}\n\n---\n\n{' '.join(where)}\n"


def _linked(found: re.Match[str]) -> str:
    return f"[{found[0]}]({found[1]}.md)" if found[1] in theory_modules() else found[0]


# -- what mkdocs calls -----------------------------------------------------------------------------


def on_config(config: Any) -> None:
    """The pages of the theories follow the one that lists them."""
    for section in config["nav"]:
        if "Theory" in section:
            section["Theory"] += [f"theory/{name}.md" for name in theory_modules()]


def on_files(files: Any, config: Any) -> Any:
    for name in theory_modules():
        page = File.generated(config, f"theory/{name}.md", content=theory_page(name))
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri == "theory.md":
        return ROW.sub(r"| [`\1.py`](theory/\1.md)", markdown)
    if page.file.src_uri == "tutorial.md":
        return notebook.with_outputs(markdown)
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    return typeset(content)
