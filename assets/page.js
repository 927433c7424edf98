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
  document.addEventListener("click", ({ target }) => {
    const head = target.closest?.("button[data-head]")?.dataset.head;
    const box = document.querySelector("#picked textarea, #picked input");
    if (head && box) set(box, `${head},${Date.now()}`);
  });

  // A token of the table below an answer: its word on the picture, its query in Look inside, which
  // has recorded the first column that compresses.
  document.addEventListener("click", ({ target }) => {
    const token = Number(target.closest?.("#answers button[data-token]")?.dataset.token ?? NaN);
    if (Number.isNaN(token)) return;
    const word = [...target.closest(".rk-card").querySelectorAll(".rk-word")].find(
      ({ dataset }) => dataset.first <= token && token <= dataset.last);
    if (word && !("lit" in word.dataset)) word.click();
    const slider = target.closest("#card-1") && document.querySelector("#step input[type=range]");
    if (slider) set(slider, Math.min(token, slider.max));
  });

  // Gradio sends a slider's `release` for a pointer only; arrow keys deserve the same.
  const steps = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End",
    "PageUp", "PageDown"]);
  document.addEventListener("keyup", (event) => {
    if (event.target.type === "range" && steps.has(event.key)) {
      event.target.dispatchEvent(new PointerEvent("pointerup", { bubbles: true }));
    }
  });

  // Ctrl or Cmd with Enter asks what the focus is in: a follow-up, the collection, the picture.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    const inside = (place) => event.target.closest?.(place);
    const button = inside("#follow") ? "#follow-ask"
      : inside("#collection") ? "#collection-ask" : "#ask";
    document.querySelector(button)?.click();
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

  return { take };
})();

// The answers: what was opened stays open, Ask brings them into view, sliders ask again.
(() => {
  const answers = () => document.querySelector("#answers");
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  // Every update writes the cards anew; this runs before the browser paints them, and what had the
  // focus has it again, so that Tab goes on from there.
  const opened = new Set();
  let focused = null; // in a card: the element, its column, and which one of its kind it is
  const alike = (card, { tagName, className }) =>
    [...card.querySelectorAll(tagName)].filter((other) => other.className === className);
  const focus = ({ target }) => {
    const card = target.closest?.("#answers .rk-card");
    focused = card && { target, column: card.dataset.column, at: alike(card, target).indexOf(target) };
  };
  document.addEventListener("focusin", focus);
  document.addEventListener("pointerdown", focus);
  const refocus = () => {
    if (!focused || focused.target.isConnected || document.activeElement !== document.body) return;
    const cards = [...document.querySelectorAll("#answers .rk-card")];
    const card = cards.find((one) => one.dataset.column === focused.column);
    if (card) alike(card, focused.target)[focused.at]?.focus({ preventScroll: true });
  };
  let wanted = false; // the column of "what if", which comes into view
  const key = (part) => `${part.className} ${part.closest(".rk-card").dataset.column}`;
  const restore = () => {
    for (const part of document.querySelectorAll("#answers .rk-card details")) {
      if (opened.has(key(part))) part.open = true;
    }
    refocus();
    delete answers()?.dataset.stale;
    const further = wanted && document.querySelector("#further .rk-card:last-child");
    if (!further) return;
    wanted = false;
    further.scrollIntoView({ block: "center", behavior: calm() ? "auto" : "smooth" });
  };
  document.addEventListener("toggle", ({ target }) => {
    if (target.closest?.("#answers .rk-card")) opened[target.open ? "add" : "delete"](key(target));
  }, true);

  const seen = (element) => {
    const box = element.getBoundingClientRect();
    return box.top >= 0 && box.bottom <= innerHeight;
  };
  const bring = (moved) => {
    const box = answers(), first = box?.querySelector(".rk-card, .rk-empty") || box;
    if (!box) return;
    const visible = seen(first);
    if (!visible) box.scrollIntoView({ block: "start", behavior: calm() ? "auto" : "smooth" });
    if (moved || !visible) {
      box.setAttribute("tabindex", "-1");
      box.focus({ preventScroll: true });
    }
  };

  // A slider that has come to rest asks again, once. The number beside it counts when it is left.
  // Whoever asks meanwhile has asked: what then came of its own would end his answer.
  const REST_MS = 400;
  let waiting = 0;
  const asked = (moved) => {
    clearTimeout(waiting);
    bring(moved);
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#ask, #follow-ask")) asked(event.isTrusted);
    if (event.target.closest?.("#what-if button")) wanted = true;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    if (event.target.closest?.("#question")) asked(false);
    else if (event.target.closest?.("#follow")) clearTimeout(waiting);
  });
  const rest = (event) => {
    const again = document.querySelector("#again");
    if (!again || !event.target.matches?.(".rk-sliders input")) return;
    if (!answers()?.querySelector(".rk-card")) return;
    answers().dataset.stale = "";
    clearTimeout(waiting);
    waiting = setTimeout(() => again.click(), REST_MS);
  };
  document.addEventListener("input", (event) => {
    if (event.target.matches?.(".rk-sliders input")) clearTimeout(waiting);
  });
  for (const kind of ["pointerup", "change"]) document.addEventListener(kind, rest, true);

  const inside = (node, selector) => (node.closest ? node : node.parentElement)?.closest(selector);
  const begin = () => {
    new MutationObserver((changes) => {
      if (changes.some(({ target }) => inside(target, "#answers"))) restore();
    }).observe(document.body, { childList: true, characterData: true, subtree: true });
  };
  if (document.body) begin();
  else document.addEventListener("DOMContentLoaded", begin);
})();

// A word of an answer, and where its column looked: light on the picture, everything else in shade.
window.rotatekLooks = (() => {
  const sent = { page: {}, opened: {} }; // columns, of the answers and of a page that is opened
  let lit = null;
  let shown, other = false; // the picture's address, and whether it changed since the answers
  const SHADE = 0.66, GAMMA = 0.75;

  const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const know = (where, columns) => {
    for (const look of Object.values(columns)) look.cells = bytes(look.cells);
    sent[where] = columns;
  };
  const take = (text) => {
    if (!text) return;
    know("page", JSON.parse(text).columns);
    other = false;
    const chosen = lit?.isConnected ? lit : null;
    dim();
    if (chosen) light(chosen);
  };

  const places = { page: "#image .image-frame img", opened: "#rk-opened .rk-frame img" };
  const where = (word) => (word?.closest("#rk-opened") ? "opened" : "page");
  const picture = (name = "page") => document.querySelector(places[name]);
  const veil = (image) => {
    const frame = image?.parentElement;
    if (!frame) return null;
    let found = frame.querySelector(".rk-veil");
    if (!found) {
      found = document.createElement("canvas");
      found.className = "rk-veil";
      found.setAttribute("aria-hidden", "true");
      frame.append(found);
    }
    return found;
  };

  // Where the picture's pixels are inside its element.
  const place = (canvas, image) => {
    const fit = Math.min(image.clientWidth / image.naturalWidth,
      image.clientHeight / image.naturalHeight);
    const width = image.naturalWidth * fit, height = image.naturalHeight * fit;
    const left = image.offsetLeft + (image.clientWidth - width) / 2;
    const top = image.offsetTop + (image.clientHeight - height) / 2;
    Object.assign(canvas.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`,
      height: `${height}px` });
    return [Math.round(width), Math.round(height)];
  };

  // The mean over a word's recorded tokens, each number the tail of one recorded before it.
  const cellsOf = (look, first, last) => {
    const size = look.rows * look.columns, mass = new Float32Array(size);
    let rows = look.steps.map((step, row) => [step, row])
      .filter(([step]) => step >= first && step <= last).map(([, row]) => row);
    if (!rows.length) rows = [look.steps.findLastIndex((step) => step <= first)];
    for (const row of rows) {
      for (let i = 0; i < size; i += 1) mass[i] += look.cells[row * size + i];
    }
    const top = Math.max(...mass) || 1;
    return mass.map((value) => (value / top) ** GAMMA);
  };

  const draw = (look, first, last) => {
    const image = picture(where(lit)), canvas = veil(image);
    if (!canvas || !image.naturalWidth) return;
    const [width, height] = place(canvas, image), mass = cellsOf(look, first, last);
    const small = new ImageData(look.columns, look.rows);
    mass.forEach((value, i) => {
      small.data.set([8, 14, 24, Math.round(255 * SHADE * (1 - value))], 4 * i);
    });
    const grid = new OffscreenCanvas(look.columns, look.rows);
    grid.getContext("2d").putImageData(small, 0, 0);
    canvas.width = width;
    canvas.height = height;
    const pen = canvas.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(grid, 0, 0, width, height);
    canvas.dataset.on = "";
    beside(image, canvas);
  };

  // Where the picture is out of view, as on a telephone, a small one comes to the word.
  const beside = (image, canvas) => {
    document.querySelector(".rk-beside")?.remove();
    const box = image.getBoundingClientRect();
    if (box.top > -box.height / 4 && box.bottom < innerHeight + box.height / 4) return;
    const small = document.createElement("canvas");
    small.className = "rk-beside";
    small.setAttribute("aria-hidden", "true");
    const fit = Math.min(0.56 * innerWidth / canvas.width, 0.36 * innerHeight / canvas.height);
    [small.width, small.height] = [Math.round(fit * canvas.width), Math.round(fit * canvas.height)];
    const pen = small.getContext("2d");
    pen.drawImage(image, 0, 0, small.width, small.height);
    pen.drawImage(canvas, 0, 0, small.width, small.height);
    (image.closest("dialog") || document.body).append(small);
  };

  const say = (html, name = "page") => {
    const line = document.querySelector(name === "page" ? "#lit .rk-lit" : "#rk-opened .rk-lit");
    if (!line) return;
    line.dataset.usual ||= line.innerHTML;
    line.replaceChildren(...(html || []));
    if (!html) line.innerHTML = line.dataset.usual;
  };
  const bold = (text) => Object.assign(document.createElement("b"), { textContent: text });

  const dim = () => {
    const name = where(lit);
    lit?.removeAttribute("data-lit");
    lit = null;
    for (const canvas of document.querySelectorAll(".rk-veil")) delete canvas.dataset.on;
    document.querySelector(".rk-beside")?.remove();
    say(null, name);
  };

  const light = (word) => {
    const column = word.closest(".rk-card").dataset.column, name = where(word);
    const look = sent[name][column];
    if (word === lit) return dim();
    dim();
    lit = word;
    word.dataset.lit = "";
    if (name === "page" && other) return say(["These answers are about another picture. Ask about this one."]);
    if (!look) {
      return say(["Where this column looked is known once every answer is complete."], name);
    }
    draw(look, Number(word.dataset.first), Number(word.dataset.last));
    const who = name === "page" ? bold(column) : "The stored page";
    say([who, " looked here for ", bold(word.textContent)], name);
    if (name === "page") document.dispatchEvent(new CustomEvent("rk:lit", { detail: column }));
  };

  document.addEventListener("click", (event) => {
    const word = event.target.closest?.(".rk-word");
    if (word) light(word);
    else if (event.target.matches?.(".rk-beside")) dim();
  });
  // With the focus on an answer, arrow keys go from word to word and Escape ends it.
  document.addEventListener("keydown", (event) => {
    const answer = event.target.matches?.(".rk-answer") && event.target;
    if (!answer) return;
    const words = [...answer.querySelectorAll(".rk-word")], at = words.indexOf(lit);
    const next = { ArrowRight: at + 1, ArrowLeft: at < 0 ? words.length - 1 : at - 1,
      Home: 0, End: words.length - 1 }[event.key];
    if (event.key === "Escape") dim();
    if (next === undefined || !words[next]) return;
    event.preventDefault();
    light(words[next]);
    words[next].scrollIntoView({ block: "nearest" });
  });

  // Another picture, or another size of it.
  const begin = () => {
    new MutationObserver((changes) => {
      if (!changes.some(({ target }) => target.closest?.("#image"))) return;
      const now = picture()?.getAttribute("src") ?? null;
      if (now === shown || (now === null && shown === undefined)) return;
      other = shown !== undefined;
      shown = now;
      dim();
    }).observe(document.body, { subtree: true, childList: true, attributes: true,
      attributeFilter: ["src"] });
    addEventListener("resize", () => {
      if (lit) {
        const look = sent[where(lit)][lit.closest(".rk-card").dataset.column];
        draw(look, Number(lit.dataset.first), Number(lit.dataset.last));
      }
    });
  };
  if (document.body) begin();
  else document.addEventListener("DOMContentLoaded", begin);

  return { take, know, dim };
})();

// A page of the collection, opened large over the others: Escape or a click beside it closes it.
window.rotatekOpened = (() => {
  const box = () => {
    let found = document.querySelector("#rk-opened");
    if (found) return found;
    found = Object.assign(document.createElement("dialog"), { id: "rk-opened" });
    const frame = Object.assign(document.createElement("div"), { className: "rk-frame" });
    const side = Object.assign(document.createElement("div"), { className: "rk-side" });
    const close = Object.assign(document.createElement("button"), { className: "rk-close",
      type: "button", textContent: "Close" });
    frame.append(document.createElement("img"));
    close.addEventListener("click", () => found.close());
    found.addEventListener("click", (event) => { if (event.target === found) found.close(); });
    found.addEventListener("close", () => window.rotatekLooks.dim());
    found.append(frame, side, close);
    (document.querySelector("#collection") || document.body).append(found); // where its rules reach
    return found;
  };

  const take = (text) => {
    if (!text) return;
    const { image, label, html, look } = JSON.parse(text);
    const dialog = box(), picture = dialog.querySelector("img");
    if (image) {
      picture.src = image;
      picture.alt = label;
      dialog.setAttribute("aria-label", label);
      dialog.dataset.label = label;
    } else if (dialog.dataset.label !== label || !dialog.open) return;
    window.rotatekLooks.dim();
    dialog.querySelector(".rk-side").innerHTML = html;
    window.rotatekLooks.know("opened", look ? { page: look } : {});
    if (!dialog.open) dialog.showModal();
  };

  document.addEventListener("click", (event) => {
    const number = event.target.closest?.("#collection [data-page]")?.dataset.page;
    const input = document.querySelector("#collection-chosen textarea, #collection-chosen input");
    if (number === undefined || !input) return;
    const owner = input.tagName === "TEXTAREA" ? HTMLTextAreaElement : HTMLInputElement;
    const value = Object.getOwnPropertyDescriptor(owner.prototype, "value");
    value.set.call(input, `${number},${Date.now()}`);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });

  return { take };
})();
