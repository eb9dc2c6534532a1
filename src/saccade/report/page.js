// The page without a server: folded parts that open by link, filters, and charts that are drawn when they are seen.
(function () {
  "use strict";
  const root = document.documentElement;
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  const views = new Map(); // chart -> { view, names of its parameters }

  // -- theme -----------------------------------------------------------------------------------
  const themes = ["automatic", "light", "dark"];
  const button = document.getElementById("theme");
  function useTheme(name) {
    if (name === "automatic") delete root.dataset.theme; else root.dataset.theme = name;
    button.textContent = "Theme: " + name;
    try { localStorage.setItem("saccade-theme", name); } catch (error) { /* a page from a file may have no storage */ }
  }
  let theme = "automatic";
  try { theme = localStorage.getItem("saccade-theme") || theme; } catch (error) { /* see above */ }
  button.hidden = false;
  useTheme(themes.includes(theme) ? theme : "automatic");
  button.addEventListener("click", () => {
    const now = root.dataset.theme || "automatic";
    useTheme(themes[(themes.indexOf(now) + 1) % themes.length]);
  });

  // -- charts ----------------------------------------------------------------------------------
  async function unpacked(text) {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("this browser cannot unpack it; Chrome 80, Firefox 113, Safari 16.4 or newer can");
    }
    const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  function legendsBelowEachOther(part) {
    if (Array.isArray(part)) return part.forEach(legendsBelowEachOther);
    if (part === null || typeof part !== "object") return undefined;
    if (part.legend && part.legend.columns) Object.assign(part.legend, { columns: 1, labelLimit: 300 });
    return Object.values(part).forEach(legendsBelowEachOther);
  }

  // Fewer columns on a narrow screen, and narrower panels, but for tables, whose numbers need room.
  function fitted(specification, width) {
    const isTable = (panel) => panel.layer.some((layer) => (layer.mark.type || layer.mark) === "text");
    for (const panel of specification.concat) {
      if (!isTable(panel)) panel.width = Math.min(panel.width, Math.max(200, width - 110));
    }
    const widest = Math.max(...specification.concat.map((panel) => panel.width));
    const columns = Math.max(1, Math.floor((width + 40) / (widest + 85)));
    specification.columns = Math.min(specification.columns, columns);
    if (width < 600) legendsBelowEachOther(specification.concat);
    return specification;
  }

  async function draw(chart) {
    if (chart.dataset.state === "drawing") return;
    chart.dataset.state = "drawing";
    try {
      const { specification, choice } = await unpacked(chart.parentElement.querySelector(".specification").textContent);
      const { view } = await window.vegaEmbed(chart, fitted(specification, chart.clientWidth), {
        mode: "vega-lite", renderer: "svg", tooltip: { theme: "light" },
        actions: { export: true, source: false, compiled: false, editor: false },
      });
      chart.querySelector("summary")?.setAttribute("aria-label", "Save this chart as a picture");
      views.get(chart)?.view.finalize();
      views.set(chart, { view, names: (specification.params || []).map((one) => one.name) });
      if (choice) offer(chart, choice);
      const controls = chart.closest(".study")?.querySelector(".controls");
      if (controls) await follow(chart, controls);
      chart.dataset.state = "drawn";
    } catch (error) {
      chart.dataset.state = "failed";
      chart.className = "chart chart-error";
      chart.textContent = "This chart could not be drawn: " + (error.message || error);
    }
  }

  async function set(chart, name, value) {
    const known = views.get(chart);
    if (known && known.names.includes(name)) await known.view.signal(name, value).runAsync();
  }

  async function drawWithin(element) {
    for (const chart of all(".chart", element)) {
      if (!chart.dataset.state && !chart.closest("details:not([open])")) {
        await draw(chart);
        await new Promise((resume) => setTimeout(resume, 0));
      }
    }
    const states = all(".chart").map((chart) => chart.dataset.state).filter(Boolean);
    root.dataset.charts = states.includes("failed") ? "failed" : states.includes("drawing") ? "drawing" : "drawn";
  }

  // A slider over steps, or a word to type; kept when the chart is drawn again.
  function offer(chart, choice) {
    const figure = chart.parentElement;
    let chooser = figure.querySelector(".chooser");
    if (!chooser) {
      chooser = document.createElement("div");
      chooser.className = "chooser";
      const label = document.createElement("label");
      const input = document.createElement("input");
      const output = document.createElement("output");
      output.setAttribute("aria-live", "polite");
      label.append(choice.label + " ", input);
      chooser.append(label, output);
      chart.before(chooser);
      const show = (place) => {
        chooser.dataset.place = place;
        const note = (choice.notes || [])[place];
        output.textContent = choice.names[place] + (note ? ": " + note : "");
        return set(chart, "choice", place);
      };
      if (choice.by === "slider") {
        Object.assign(input, { type: "range", min: 0, max: choice.names.length - 1, value: choice.at });
        const tell = () => input.setAttribute("aria-valuetext", choice.names[input.value]);
        tell();
        input.addEventListener("input", () => { tell(); show(Number(input.value)); });
      } else {
        const list = document.createElement("datalist");
        list.id = figure.id + "-words";
        Object.assign(input, { type: "text", value: choice.names[choice.at], autocomplete: "off" });
        input.setAttribute("list", list.id);
        chooser.append(list);
        input.addEventListener("input", () => {
          const typed = input.value.trim().toLowerCase();
          const like = choice.names.filter((name) => name.toLowerCase().startsWith(typed)).slice(0, 20);
          list.replaceChildren(...like.map((name) => Object.assign(document.createElement("option"), { value: name })));
          const place = choice.names.findIndex((name) => name.toLowerCase() === typed);
          if (place >= 0) show(place);
          else output.textContent = like.length ? "such as " + like.slice(0, 5).join(", ") : "no word begins so";
        });
      }
      show(choice.at);
    } else {
      set(chart, "choice", Number(chooser.dataset.place));
    }
  }

  async function follow(chart, controls) {
    const { theory, seed } = controls.elements;
    if (theory) await set(chart, "theory", theory.checked);
    if (seed) await set(chart, "seed", seed.value === "" ? null : Number(seed.value));
  }
  for (const controls of all(".controls")) {
    controls.hidden = false;
    const study = controls.closest(".study");
    controls.addEventListener("submit", (event) => event.preventDefault());
    controls.addEventListener("input", async () => {
      for (const chart of all(".chart", study)) await follow(chart, controls);
    });
  }

  // Tiles say what they are about, in the words of the claims themselves.
  for (const tile of all("a.tile")) {
    const statement = document.getElementById(decodeURIComponent(tile.hash.slice(1)))?.querySelector(".statement");
    if (statement) tile.title = statement.textContent;
  }

  // -- what is folded --------------------------------------------------------------------------
  for (const study of all("details.study")) {
    study.addEventListener("toggle", () => { if (study.open) drawWithin(study); });
  }
  function reveal() {
    let name = location.hash.slice(1);
    try { name = decodeURIComponent(name); } catch (error) { /* as it is, if it is not encoded */ }
    if (!name) return;
    const target = document.getElementById(name) || all("[data-claim]").find((row) => row.dataset.claim === name);
    if (!target) return;
    if (target.matches(".row") && target.hidden) { form.reset(); filter(); }
    for (let part = target; part; part = part.parentElement) if (part.matches("details")) part.open = true;
    target.scrollIntoView();
    const focused = target.matches("details") ? target.querySelector("summary") : target;
    if (focused === target && !target.matches("a, button, input")) target.tabIndex = -1;
    focused.focus({ preventScroll: true });
  }
  addEventListener("hashchange", reveal);
  // A second click on the same link changes no hash.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link && link.hash === location.hash) reveal();
  });

  const openAll = document.getElementById("open-all");
  if (openAll) {
    openAll.hidden = false;
    openAll.addEventListener("click", async () => {
      all("details.study, details.row").forEach((one) => { one.open = true; });
      openAll.textContent = "Drawing all charts ...";
      await drawWithin(document);
      openAll.textContent = "All is open";
    });
  }

  // -- filters ---------------------------------------------------------------------------------
  const form = document.querySelector(".filters");
  function filter() {
    const rows = all(".row");
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = all("select", form).filter((one) => one.value);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word)) && wanted.every((one) => row.dataset[one.name] === one.value);
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = shown + " of " + rows.length + " claims";
  }
  if (form) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", filter);
    form.addEventListener("reset", () => setTimeout(filter, 0));
    filter();
  }

  // -- the start, and other widths -------------------------------------------------------------
  let width = innerWidth;
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      if (Math.abs(innerWidth - width) < 40) return;
      width = innerWidth;
      for (const chart of views.keys()) await draw(chart);
    }, 300);
  });
  drawWithin(document);
  reveal();
})();
