// What the browser adds to Gradio: a clickable map, figures with names, sliders for the keyboard.
(() => {
  const set = (input, value) => {
    const owner = input.tagName === "TEXTAREA" ? HTMLTextAreaElement : HTMLInputElement;
    Object.getOwnPropertyDescriptor(owner.prototype, "value").set.call(input, value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };

  // A cell of the layer x head map, as "layer,head", into the hidden box that Python listens to.
  const listen = (plot) => {
    plot.on("plotly_click", (event) => {
      const cell = event.points[0];
      const box = document.querySelector("#picked textarea, #picked input");
      if (box) set(box, `${cell.x},${cell.y},${Date.now()}`);
    });
  };

  // A figure is an image to a screen reader, and its summary is the caption's hidden paragraph.
  const name = (plot) => {
    const figure = plot.closest(".rk-figure");
    const words = figure && figure.querySelector(".rk-summary");
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", words ? words.textContent : "figure");
  };

  const visit = () => {
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      name(plot);
      if (!plot.dataset.rk && plot.on) {
        plot.dataset.rk = "1";
        if (plot.closest("#map-plot")) listen(plot);
      }
    }
  };

  let waiting = 0;
  const soon = () => {
    if (!waiting) waiting = setTimeout(() => { waiting = 0; visit(); }, 80);
  };
  new MutationObserver(soon).observe(document.documentElement, { childList: true, subtree: true });

  // Gradio sends a slider's `release` for a pointer only; arrow keys deserve the same.
  const steps = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End",
    "PageUp", "PageDown"]);
  document.addEventListener("keyup", (event) => {
    if (event.target.type === "range" && steps.has(event.key)) {
      event.target.dispatchEvent(new PointerEvent("pointerup", { bubbles: true }));
    }
  });

  // Ctrl or Cmd with Enter asks from anywhere.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      document.querySelector("#ask")?.click();
    }
  });
})();
