"""The tutorial as a notebook: `python docs/notebook.py` makes it from tutorial.md, and runs it.

The Markdown is the one source. A Python block is a code cell; one that begins with a file name in a
comment writes that file; a bash block is a cell of commands. Cells run in order in one namespace,
in an empty folder. What they print, the value of a last expression and figures become their
outputs, which the site shows below the blocks of the page.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE, NOTEBOOK = HERE / "tutorial.md", HERE / "tutorial.ipynb"
FENCE = re.compile(r"^```(python|bash)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")

Cell = dict[str, Any]


def cells(markdown: str) -> list[Cell]:
    """The cells of a page, without outputs."""
    made: list[Cell] = []
    parts = FENCE.split(markdown)  # text, language, block, text, language, block, ..., text
    for place in range(0, len(parts), 3):
        if text := parts[place].strip():
            made.append({"cell_type": "markdown", "metadata": {}, "source": text})
        if place + 1 < len(parts):
            source = _cell_source(*parts[place + 1 : place + 3])
            made.append(
                {
                    "cell_type": "code",
                    "execution_count": None,
                    "metadata": {},
                    "outputs": [],
                    "source": source,
                }
            )
    return [{"id": f"cell-{number:02}", **one} for number, one in enumerate(made, 1)]


def _cell_source(language: str, block: str) -> str:
    if language == "bash":
        return f"%%bash\n{block.strip()}"
    if file := FILE.match(block):
        return f"%%writefile {file[1]}\n{block.strip()}"
    return block.strip()


def bash(commands: str) -> str:
    """What some commands print; they must end well."""
    place = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env=os.environ | place,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def run(notebook_cells: list[Cell], shell: Callable[[str], str] = bash) -> None:
    """Execute the code cells in the current folder, and set their outputs."""
    import matplotlib
    import matplotlib.pyplot as plt

    matplotlib.use("agg")
    plt.close("all")  # figures of somebody else
    namespace: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook_cells:
        if cell["cell_type"] != "code":
            continue
        count += 1
        first, _, rest = cell["source"].partition("\n")
        if first == "%%bash":
            outputs = _stream(shell(rest))
        elif first.startswith("%%writefile "):
            file = first.removeprefix("%%writefile ")
            Path(file).write_text(f"{rest}\n", encoding="utf-8")
            outputs = _stream(f"Writing {file}\n")
        else:
            outputs = _run_python(cell["source"], namespace, count)
        cell.update(execution_count=count, outputs=outputs)


def _stream(text: str) -> list[dict[str, Any]]:
    lines = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    return [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []


def _run_python(source: str, namespace: dict[str, Any], count: int) -> list[dict[str, Any]]:
    import matplotlib.pyplot as plt

    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    outputs = _stream(printed.getvalue())
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=80, bbox_inches="tight")
        shown = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"data": shown, "metadata": {}, "output_type": "display_data"})
    if value is not None and not plt.get_fignums():
        told = {"text/plain": repr(value)}
        kind = {"output_type": "execute_result", "execution_count": count}
        outputs.append({"data": told, "metadata": {}, **kind})
    plt.close("all")
    return outputs


def notebook(notebook_cells: list[Cell]) -> dict[str, Any]:
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": notebook_cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def with_outputs(markdown: str) -> str:
    """The page with the notebook's outputs below its blocks."""
    known = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    outputs = iter([cell["outputs"] for cell in known if cell["cell_type"] == "code"])
    return FENCE.sub(lambda found: found[0] + _shown(next(outputs)), markdown)


def _shown(outputs: list[dict[str, Any]]) -> str:
    shown = ""
    for one in outputs:
        data = one.get("data", {})
        if "image/png" in data:
            shown += f"\n![Output of the cell](data:image/png;base64,{data['image/png']})\n"
        elif not one.get("text", "").startswith("Writing "):
            text = (one.get("text") or data["text/plain"]).rstrip()
            shown += f"\n``` {{ .text .output }}\n{text}\n```\n"
    return shown


def main() -> None:
    made = cells(SOURCE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run(made)
    text = json.dumps(notebook(made), indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
