"""Pages in headless Chromium: a script is run within a page of a given width, and gives JSON."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

_HARNESS = """<!DOCTYPE html><meta charset="utf-8">
<style>body { margin: 0 } iframe { border: 0; width: %dpx; height: %dpx }</style>
<iframe id="frame" src="%s"></iframe><pre id="result"></pre>
<script>
const frame = document.getElementById("frame");
const problems = [];
const sleep = (time) => new Promise((resume) => setTimeout(resume, time));
async function until(condition) {
  for (let turn = 0; turn < 600 && !condition(); turn += 1) await sleep(50);
  if (!condition()) throw new Error("waited in vain for " + condition);
}
frame.addEventListener("load", async () => {
  const view = frame.contentWindow, page = frame.contentDocument;
  view.addEventListener("error", (event) => problems.push(String(event.message)));
  const logged = view.console.error;
  view.console.error = (...words) => { problems.push(words.join(" ")); logged(...words); };
  let found;
  try { found = await (async () => { %s })(); } catch (error) { found = { error: String(error) }; }
  document.getElementById("result").textContent = JSON.stringify({ found, problems });
});
</script>"""


def chromium() -> str:
    """The browser; the test is skipped without one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on this machine")


def examined(page: Path, script: str, width: int, picture: Path | None = None) -> Any:
    """What a script returns within a page, whose `view` and `page` are window and document; a test
    fails on any error of the console. With a picture, the first 2,000 pixels are drawn as well.
    """
    harness = page.with_name(f"harness-{width}.html")
    height = 900 if picture is None else 2000
    harness.write_text(_HARNESS % (width, height, page.name, script), encoding="utf-8")
    profile = page.with_name(f"profile-{width}")
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]
    command += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
    command += ["--disable-sync", "--allow-file-access-from-files", f"--user-data-dir={profile}"]
    command += ["--virtual-time-budget=60000", f"--window-size={max(width, 500)},{height}"]
    command += ["--dump-dom"] if picture is None else [f"--screenshot={picture}"]
    command += [harness.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    if picture is not None:
        return None
    (text,) = re.findall(r'<pre id="result">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    answer = json.loads(html.unescape(text))
    assert not answer["problems"], answer["problems"]
    assert not (isinstance(answer["found"], dict) and "error" in answer["found"]), answer["found"]
    return answer["found"]
