// One chart after another, so that the page can be read while they are drawn; all of them, so that it can be printed.
(async function () {
  "use strict";
  const root = document.documentElement;
  const charts = Array.from(document.querySelectorAll(".chart"));
  let failed = 0;
  for (const chart of charts) {
    try {
      const specification = JSON.parse(chart.parentElement.querySelector(".specification").textContent);
      await window.vegaEmbed(chart, specification, {
        mode: "vega-lite", renderer: "svg", tooltip: { theme: "light" },
        actions: { export: true, source: false, compiled: false, editor: false },
      });
    } catch (error) {
      failed += 1;
      chart.className = "chart chart-error";
      chart.textContent = "This chart could not be drawn: " + error;
    }
    await new Promise((resume) => setTimeout(resume, 0));
  }
  root.dataset.charts = failed ? "failed" : "drawn";
})();
