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

// Export: files, links and code. Python decides what; this saves and copies.
window.rotatekExport = (() => {
  const say = (words) => {
    const place = document.querySelector("#export-said .rk-said");
    if (place) place.textContent = words;
  };

  const save = ({ file, type, text }) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    link.download = file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    say(`Saved as ${file}.`);
  };

  // Where the clipboard is closed to us, the words stay selected for Ctrl+C.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false;
    }
  };

  const share = async (query, said) => {
    const address = `${location.origin}${location.pathname}?${query}`;
    history.replaceState(history.state, "", address);
    say(await copy(address) ? said : "The link is in the address bar; copy it from there.");
  };

  const take = (value) => {
    if (!value) return;
    const message = JSON.parse(value);
    if (message.file) save(message);
    else if (message.query) share(message.query, message.said);
    else say(message.said);
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button[data-copy]");
    if (!button) return;
    const block = button.closest("figure").querySelector("code");
    const done = await copy(block.textContent);
    if (!done) getSelection().selectAllChildren(block);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2500);
  });

  // Code that asks this page names the address it is served from.
  const name = () => {
    for (const block of document.querySelectorAll('[data-code="client"] code')) {
      if (block.textContent.includes('"ADDRESS"')) {
        block.textContent = block.textContent.replace("ADDRESS", location.origin + location.pathname);
      }
    }
  };
  new MutationObserver(name).observe(document.documentElement, { childList: true, subtree: true });

  return { take };
})();
