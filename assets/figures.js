// Figures: one JSON payload in, plotly drawings out. What a figure shows is decided in Python.
window.rotatek = (() => {
  const specs = new Map(); // name -> {data, layout, reading, summary, text: both as drawn}
  const pictures = new Map(); // name -> data URI, sent once a run
  const config = { displayModeBar: false, scrollZoom: false, doubleClick: false };

  // Plotly is fetched early but run once the page stands: parsing it takes a good part of a second.
  const source = () => document.querySelector("#rk-plotly").href;
  const loaded = new Promise((done) => {
    const wait = () => {
      if (!document.querySelector("#ask")?.offsetWidth) return setTimeout(wait, 30);
      const script = document.createElement("script");
      script.src = source();
      script.onload = () => done(window.Plotly);
      document.head.append(script);
    };
    wait();
  });

  const place = (name) => document.querySelector(`#${name}-plot > .rk-plot`);
  const css = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

  // The layout in the page's present ink, with the picture it may stand on.
  const dressed = (spec) => {
    const layout = structuredClone(spec.layout);
    layout.font = { ...layout.font, color: css("--rk-soft") };
    for (const image of layout.images || []) {
      if (image.source.startsWith("rk:")) image.source = pictures.get(image.source.slice(3));
    }
    return layout;
  };
  const complete = (spec) => (spec.layout.images || []).every(
    (image) => !image.source.startsWith("rk:") || pictures.has(image.source.slice(3)));

  const write = (name, spec) => {
    const caption = document.querySelector(`#${name}-caption`);
    if (!caption) return;
    caption.querySelector(".rk-see").textContent = spec.reading;
    caption.querySelector(".rk-summary").textContent = spec.summary;
    const plot = place(name);
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", spec.summary);
  };

  const draw = async (name, Plotly) => {
    const spec = specs.get(name), plot = place(name), before = plot.rkSpec;
    plot.rkSpec = spec;
    write(name, spec);
    if (before?.text === spec.text) return;
    await Plotly.react(plot, structuredClone(spec.data), dressed(spec), config);
    if (before) return;
    plot.rkWidth = plot.offsetWidth;
    plot.on("plotly_click", (event) => {
      const { x, y } = event.points[0];
      plot.dispatchEvent(new CustomEvent("rk:cell", { bubbles: true, detail: { name, x, y } }));
    });
  };

  // What is yet to be drawn, and how far each is from what the reader sees, nearest first. Hidden
  // frames wait until they are shown.
  const due = () => {
    const found = [];
    for (const [name, spec] of specs) {
      const plot = place(name);
      if (!plot?.offsetWidth || plot.rkSpec === spec || !complete(spec)) continue;
      const box = plot.getBoundingClientRect();
      found.push({ name, away: Math.max(0, box.top - innerHeight, -box.bottom) });
    }
    return found.sort((one, other) => one.away - other.away);
  };

  const told = (event, names) => document.dispatchEvent(new CustomEvent(event, { detail: names }));
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

  // Figures in view at once; then the others, one a turn, so that the page stays at hand.
  let drawing = false, drawn = [];
  const drawAll = async () => {
    if (drawing) return;
    drawing = true;
    const Plotly = await loaded;
    for (let found = due(); found.length; found = due()) {
      const inView = found.filter(({ away }) => away === 0);
      for (const { name } of inView.length ? inView : found.slice(0, 1)) {
        await draw(name, Plotly);
        drawn.push(name);
      }
      await (inView.length ? painted() : new Promise((done) => setTimeout(done)));
      if (inView.length) told("rk:seen", inView.map(({ name }) => name));
    }
    drawing = false;
    if (!drawn.length) return;
    told("rk:drawn", drawn);
    drawn = [];
  };

  // A payload from Python: {figures: {name: spec}, pictures: {name: data URI}}.
  const take = (text) => {
    if (!text) return;
    const sent = JSON.parse(text);
    for (const [name, uri] of Object.entries(sent.pictures)) pictures.set(name, uri);
    for (const [name, spec] of Object.entries(sent.figures)) {
      specs.set(name, { ...spec, text: JSON.stringify([spec.data, spec.layout]) });
    }
    drawAll();
  };

  // A frame that comes into being, is shown or changes its width.
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const width = target.offsetWidth;
      if (!width || width === target.rkWidth || !target.rkSpec) continue;
      target.rkWidth = width;
      window.Plotly.Plots.resize(target);
    }
    drawAll();
  });
  const find = () => document.querySelectorAll(".rk-plot").forEach((plot) => sizes.observe(plot));

  // Light or dark: the same figures in the other ink.
  const restyle = async () => {
    const Plotly = await loaded;
    for (const plot of document.querySelectorAll(".rk-plot.js-plotly-plot")) {
      await Plotly.relayout(plot, { "font.color": css("--rk-soft") });
    }
  };

  const save = (blob, file) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };

  const grounded = (spec) => ({ ...dressed(spec), paper_bgcolor: css("--rk-surface") });

  const saveImage = async (name) => {
    const spec = specs.get(name), plot = place(name), Plotly = await loaded;
    const figure = { data: structuredClone(spec.data), layout: grounded(spec) };
    const size = { width: plot.offsetWidth, height: spec.layout.height };
    const uri = await Plotly.toImage(figure, { format: "png", scale: 2, ...size });
    save(await (await fetch(uri)).blob(), `rotatek-${name}.png`);
  };

  // A page of its own, plotly included: it opens anywhere and needs no network.
  const savePage = async (name) => {
    const spec = specs.get(name), plotly = await (await fetch(source())).text();
    const title = document.querySelector(`#${name}-caption h3`).textContent;
    const safe = (text) => text.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`);
    const json = (value) => JSON.stringify(value).replace(/</g, "\\u003c");
    const ground = `background:${css("--rk-surface")};color:${css("--rk-ink")}`;
    const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>${safe(title)}</title>
<body style="margin:2rem auto;max-width:900px;font-family:system-ui,sans-serif;${ground}">
<h1 style="font-size:1.3rem">${safe(title)}</h1><p>${safe(spec.reading)}</p>
<div id="figure" role="img" aria-label="${safe(spec.summary).replace(/"/g, "&quot;")}"></div>
<script>${plotly}</scr` + `ipt><script>Plotly.newPlot("figure", ${json(spec.data)}, ` +
      `${json(grounded(spec))}, {displayModeBar: false, responsive: true});</scr` + `ipt></body></html>`;
    save(new Blob([page], { type: "text/html" }), `rotatek-${name}.html`);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button[data-save]");
    if (!button || !specs.has(button.dataset.figure)) return;
    (button.dataset.save === "png" ? saveImage : savePage)(button.dataset.figure);
  });

  const begin = () => {
    let waiting = 0;
    const soon = () => { waiting ||= setTimeout(() => { waiting = 0; find(); }, 50); };
    new MutationObserver(soon).observe(document.body, { childList: true, subtree: true });
    new MutationObserver(restyle).observe(document.body,
      { attributes: true, attributeFilter: ["class"] });
  };
  if (document.body) begin();
  else document.addEventListener("DOMContentLoaded", begin);

  return { take };
})();
