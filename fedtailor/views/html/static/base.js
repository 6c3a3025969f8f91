"use strict";
/* What the scripts of FedTailor's pages share: elements, numbers, colours, axes, and a label at the pointer.
   Every text enters the page as text, never as markup. */
const FT = (() => {
  const NS = "http://www.w3.org/2000/svg";

  function el(name, attributes, ...children) {
    return fill(document.createElement(name), attributes, children);
  }

  function svg(name, attributes, ...children) {
    return fill(document.createElementNS(NS, name), attributes, children);
  }

  function fill(node, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined) node.setAttribute(key, value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
    return node;
  }

  const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
  const colour = (index) => `var(--c${index % 8})`;
  const dash = (index) => ["", "9 4", "2 3", "9 3 2 3"][(index + Math.floor(index / 8)) % 4]; // lines differ without colours too
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /* A number with three figures; shares of one in percent. */
  function number(value, percent) {
    if (!known(value)) return "–";
    if (percent) return (100 * value).toFixed(1) + " %";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString("en");
    return String(Number(value.toPrecision(3)));
  }

  function ticks(low, high, most) {
    const span = high - low || Math.abs(high) || 1;
    const rough = span / Math.max(1, most);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((k) => k * power >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-6; k++) found.push(k * step);
    return found;
  }

  function range(values, room) {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (known(value)) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > high) return [0, 1];
    const extra = (high - low || Math.abs(high) * 0.1 || 1) * room;
    return [low - extra, high + extra];
  }

  /* A label that follows the pointer inside a chart. */
  function tip(box) {
    const node = el("div", { class: "tip", hidden: "" });
    box.append(node);
    return {
      show(x, y, title, lines) {
        node.replaceChildren(el("b", {}, title), ...lines.map((line) => el("div", {}, line)));
        node.hidden = false;
        const left = x + 14 + node.offsetWidth > box.clientWidth ? x - 14 - node.offsetWidth : x + 14;
        node.style.left = Math.max(0, left) + "px";
        node.style.top = Math.max(0, y - node.offsetHeight / 2) + "px";
      },
      hide() { node.hidden = true; },
    };
  }

  /* Draw again when the box changes its width or the colours change. */
  function keepDrawn(box, draw) {
    box.ftDraw = draw;
    draw();
    if (box.ftWatched) return;
    box.ftWatched = true;
    let width = box.clientWidth;
    new ResizeObserver(() => {
      if (Math.abs(box.clientWidth - width) > 2) { width = box.clientWidth; box.ftDraw(); }
    }).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => box.ftDraw());
  }

  /* A choice above a chart: a label and a select. */
  function choice(label, options, chosen, change) {
    const select = el("select", { onchange: () => change(select.value) }, options.map(([value, text]) => el("option", { value }, text)));
    select.value = chosen;
    return el("label", {}, label, select);
  }

  return { el, svg, choice, number, known, colour, dash, style, range, ticks, tip, keepDrawn };
})();
