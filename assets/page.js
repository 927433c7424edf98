// What the browser adds to Gradio: a clickable map, sliders for the keyboard.
(() => {
  const set = (input, value) => {
    const owner = input.tagName === "TEXTAREA" ? HTMLTextAreaElement : HTMLInputElement;
    Object.getOwnPropertyDescriptor(owner.prototype, "value").set.call(input, value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };

  // A cell of the layer x head map, as "layer,head", into the hidden box that Python listens to.
  document.addEventListener("rk:cell", (event) => {
    const box = document.querySelector("#picked textarea, #picked input");
    const { name, x, y } = event.detail;
    if (name === "map" && box) set(box, `${x},${y},${Date.now()}`);
  });

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
