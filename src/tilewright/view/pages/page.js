// One element, in every picture of the page. A selection is a set of coordinates, {m: 3, k: 5}; a
// step marks the element that it names, or all elements that agree with it where it names fewer
// coordinates than the step has.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const data = JSON.parse(document.getElementById("data").textContent);
const sections = [...document.querySelectorAll("section")];
const entries = [...document.querySelectorAll("aside li")];
let steps = [];
let pinned = data.start;
let hovered = null;
let now = 0;

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(stream).arrayBuffer();
  const numbers = data.wide ? new Float64Array(bytes) : new Int32Array(bytes);
  for (let i = 1; i < numbers.length; i++) numbers[i] += numbers[i - 1];
  return numbers;
}

// --- where elements stand ---

class Step {
  constructor(given, numbers, section, entry) {
    Object.assign(this, given);
    this.size = this.sizes.reduce((a, b) => a * b, 1);
    this.array = (start) => numbers.subarray(start, start + this.size);
    this.placed = numbers.subarray(this.places, this.places + this.size * this.copies);
    this.svg = section.querySelector("svg");
    this.said = entry.querySelector("p");
    this.standing = new Int32Array(this.rows * this.columns).fill(-1);
    for (let i = this.placed.length - 1; i >= 0; i--) {
      if (this.placed[i] >= 0) this.standing[this.placed[i]] = Math.floor(i / this.copies);
    }
    this.marks = this.svg.appendChild(document.createElementNS(SVG, "path"));
    this.marks.setAttribute("pointer-events", "none");
  }

  element(selection) {
    let index = 0;
    for (let i = this.names.length - 1; i >= 0; i--) {
      index = index * this.sizes[i] + selection[this.names[i]];
    }
    return index;
  }

  coordinates(element) {
    const found = {};
    this.names.forEach((name, i) => {
      found[name] = element % this.sizes[i];
      element = Math.floor(element / this.sizes[i]);
    });
    return found;
  }

  cell(place) {
    const row = Math.floor(place / this.columns), column = place % this.columns;
    const [x, y, wide, high] = this.box;
    return `M${x + column * wide} ${y + row * high}h${wide}v${high}h-${wide}z`;
  }

  // The element under the mouse, or -1.
  under(event) {
    const seen = this.svg.getBoundingClientRect(), view = this.svg.viewBox.baseVal;
    const [x, y, wide, high] = this.box;
    const across = view.x + ((event.clientX - seen.left) * view.width) / seen.width - x;
    const down = view.y + ((event.clientY - seen.top) * view.height) / seen.height - y;
    const column = Math.floor(across / wide), row = Math.floor(down / high);
    const inside = column >= 0 && column < this.columns && row >= 0 && row < this.rows;
    return inside ? this.standing[row * this.columns + column] : -1;
  }

  known(selection) {
    return this.names.filter((name, i) => name in selection && selection[name] < this.sizes[i]);
  }

  show(selection) {
    const known = this.known(selection);
    const whole = known.length === this.names.length;
    const elements = whole ? [this.element(selection)] : this.agreeing(known, selection);
    const cells = elements.flatMap((e) => [
      ...this.placed.subarray(e * this.copies, (e + 1) * this.copies),
    ]);
    this.marks.setAttribute("d", cells.filter((p) => p >= 0).map((p) => this.cell(p)).join(""));
    this.marks.setAttribute("class", whole ? "one" : "part");
    this.said.textContent = whole
      ? this.sentence(selection, elements[0])
      : known.map((name) => `${name} = ${selection[name]}: ${elements.length} elements`).join("");
    this.said.className = whole ? "" : "part";
  }

  // Scroll the picture until its mark is seen.
  reveal() {
    if (!this.marks.getAttribute("d")) return;
    const frame = this.svg.parentElement, seen = frame.getBoundingClientRect();
    const mark = this.marks.getBoundingClientRect();
    if (mark.bottom > seen.bottom || mark.top < seen.top) {
      frame.scrollTop += mark.top - seen.top - frame.clientHeight / 2;
    }
    if (mark.right > seen.right || mark.left < seen.left) {
      frame.scrollLeft += mark.left - seen.left - frame.clientWidth / 2;
    }
  }

  agreeing(known, selection) {
    const found = [];
    if (!known.length) return found;
    for (let e = 0; e < this.size; e++) {
      const crd = this.coordinates(e);
      if (known.every((name) => crd[name] === selection[name])) found.push(e);
    }
    return found;
  }

  // The step's sentence with its numbers; a part in brackets is left out where its number is 0.
  sentence(selection, element) {
    const number = (name) =>
      name in selection ? selection[name] : this.array(this.facts[name])[element];
    if ("thread" in this.facts && number("thread") < 0) return "nobody has it";
    return this.says
      .replace(/\[(.*?)\]/g, (_, part) => (number(/\{(\w+)\}/.exec(part)[1]) ? part : ""))
      .replace(/\{(\w+)\}/g, (_, name) => number(name));
  }
}

// --- what is selected ---

function show() {
  const selection = hovered || pinned || {};
  steps.forEach((step) => step.show(selection));
  const names = Object.entries(selection).map(([name, value]) => `${name} = ${value}`);
  document.getElementById("element").textContent = names.join(", ") || "no element";
}

function go(index) {
  now = Math.max(0, Math.min(steps.length - 1, index));
  [sections, entries].forEach((all) => all.forEach((x, i) => x.classList.toggle("now", i === now)));
  sections[now].scrollIntoView({ block: "nearest" });
  entries[now].scrollIntoView({ block: "nearest" });
}

function pin(step, element) {
  pinned = element < 0 ? null : step.coordinates(element);
  hovered = null;
  show();
  steps.filter((other) => other !== step).forEach((other) => other.reveal());
}

function hover(selection) {
  if (JSON.stringify(selection) === JSON.stringify(hovered)) return;
  hovered = selection;
  show();
}

// The element of the present step that stands beside the pinned one.
function move(down, across) {
  const step = steps[now];
  if (!pinned || step.known(pinned).length < step.names.length) return pin(step, 0);
  const place = step.placed[step.element(pinned) * step.copies];
  const row = Math.floor(place / step.columns) + down, column = (place % step.columns) + across;
  if (row < 0 || row >= step.rows || column < 0 || column >= step.columns) return;
  const element = step.standing[row * step.columns + column];
  if (element >= 0) pin(step, element);
}

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function pressed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "Escape") pin(steps[now], -1);
  else if (event.shiftKey && event.key in ARROWS) move(...ARROWS[event.key]);
  else if (event.key === "ArrowLeft") go(now - 1);
  else if (event.key === "ArrowRight") go(now + 1);
  else return;
  event.preventDefault();
}

function listen(step, i) {
  step.svg.addEventListener("pointermove", (event) => {
    const element = step.under(event);
    hover(element < 0 ? null : step.coordinates(element));
  });
  step.svg.addEventListener("pointerleave", () => hover(null));
  step.svg.addEventListener("click", (event) => {
    pin(step, step.under(event));
    go(i);
  });
  entries[i].querySelector("a").addEventListener("click", (event) => {
    event.preventDefault();
    go(i);
  });
}

unpacked(data.numbers).then((numbers) => {
  steps = data.steps.map((given, i) => new Step(given, numbers, sections[i], entries[i]));
  steps.forEach(listen);
  document.addEventListener("keydown", pressed);
  document.getElementById("previous").addEventListener("click", () => go(now - 1));
  document.getElementById("next").addEventListener("click", () => go(now + 1));
  document.querySelectorAll("[hidden]").forEach((x) => (x.hidden = false));
  entries[0].classList.add("now");
  sections[0].classList.add("now");
  show();
});
