"use strict";
/* Charts with axes, drawn as SVG: curves with bands, bars, bars with parts on top of each other. */
(() => {
  const { el, svg, number, known, colour, dash, range, ticks, tip, keepDrawn } = FT;

  /* Lines with bands. series: [{label, x, y, low, high, faint}]; marks: [{x, y, label, index}] */
  function curves(box, { series, marks = [], xLabel = "round", yLabel = "", percent = false, xPercent = false, title = "", height = 320, ends = true }) {
    box.classList.add("chart");
    keepDrawn(box, () => {
      const width = Math.max(280, box.clientWidth || 700);
      const [left, right, top, bottom] = [58, 14, 10, 40];
      const shown = series.map((one, index) => ({ ...one, index: one.index ?? index }));
      const xs = shown.flatMap((one) => one.x).concat(marks.map((mark) => mark.x));
      const ys = shown.flatMap((one) => [...one.y, ...(one.low || []), ...(one.high || [])]).concat(marks.map((mark) => mark.y));
      const [x0, x1] = range(xs, xs.length > 1 ? 0 : 0.5), [y0, y1] = range(ys, 0.06);
      const px = (x) => left + (x - x0) / (x1 - x0 || 1) * (width - left - right);
      const py = (y) => height - bottom - (y - y0) / (y1 - y0 || 1) * (height - top - bottom);
      const said = `${title || yLabel} over ${xLabel}: ` + shown.map((one) => `${one.label} ends at ${number(last(one.y), percent)}`).join("; ");
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": said.slice(0, 900) });
      const axis = svg("g", { class: "axis" });
      for (const y of ticks(y0, y1, 5)) {
        axis.append(svg("line", { x1: left, x2: width - right, y1: py(y), y2: py(y) }),
          svg("text", { x: left - 7, y: py(y) + 4, "text-anchor": "end" }, percent ? String(Number((100 * y).toFixed(1))) : number(y)));
      }
      const whole = xs.every(Number.isInteger); // rounds have no halves
      for (const x of ticks(x0, x1, Math.max(3, width / 90)).filter((x) => !whole || Number.isInteger(x))) {
        axis.append(svg("text", { x: px(x), y: height - bottom + 17, "text-anchor": "middle" }, xPercent ? String(Number((100 * x).toFixed(1))) : number(x)));
      }
      axis.append(svg("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel + (xPercent ? " in %" : "")),
        svg("text", { x: 13, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 13 ${(top + height - bottom) / 2})` }, yLabel + (percent ? " in %" : "")));
      root.append(axis);
      for (const one of shown) if (one.low) {
        const edge = one.x.map((x, i) => [x, one.low[i], one.high[i]]).filter(([, a, b]) => known(a) && known(b));
        const path = [...edge.map(([x, , b]) => [x, b]), ...edge.reverse().map(([x, a]) => [x, a])];
        if (path.length) root.append(svg("path", { d: line(path, px, py) + "Z", fill: colour(one.index), opacity: "0.13" }));
      }
      for (const one of shown) {
        const points = one.x.map((x, i) => [x, one.y[i]]).filter(([, y]) => known(y));
        const stroke = one.faint ? "var(--soft)" : colour(one.index);
        root.append(svg("path", { d: line(points, px, py), fill: "none", stroke, "stroke-width": one.faint ? 0.8 : 2.2, "stroke-dasharray": dash(one.index), "stroke-linejoin": "round" }));
        if (points.length < 3) for (const [x, y] of points) root.append(svg("circle", { cx: px(x), cy: py(y), r: 4, fill: stroke }));
      }
      for (const mark of marks) if (known(mark.y)) {
        root.append(svg("path", { d: star(px(mark.x), py(mark.y), 8), fill: mark.index === undefined ? "var(--ink)" : colour(mark.index) }, svg("title", {}, `${mark.label} ${number(mark.y, percent)}`)));
      }
      const cross = svg("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
      root.append(cross);
      const legend = el("ul", { class: "legend" }, shown.filter((one) => !one.faint).map((one) => el("li", {},
        svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("path", { d: "M1 5H25", stroke: colour(one.index), "stroke-width": 3, "stroke-dasharray": dash(one.index) })),
        ends ? `${one.label} ${number(last(one.y), percent)}` : one.label)),
        marks.map((mark) => el("li", {}, `★ ${mark.label} ${number(mark.y, percent)}`)));
      box.replaceChildren(root, legend);
      const label = tip(box);
      const places = [...new Set(xs)].filter(known).sort((a, b) => a - b);
      let at = places.length - 1;
      const show = () => {
        const x = places[at];
        if (x === undefined) return;
        cross.setAttribute("x1", px(x)); cross.setAttribute("x2", px(x)); cross.setAttribute("visibility", "visible");
        const lines = shown.filter((one) => !one.faint).map((one) => [one, one.x.findLastIndex((at) => known(at) && at <= x)]).filter(([one, i]) => i >= 0 && known(one.y[i]))
          .map(([one, i]) => `${one.label}: ${number(one.y[i], percent)}` + (one.low && known(one.low[i]) ? ` (${number(one.low[i], percent)} to ${number(one.high[i], percent)})` : ""));
        const scale = root.clientWidth / width;
        label.show(px(x) * scale, height * scale / 2, `${xLabel} ${number(x, xPercent)}`, lines);
      };
      const hide = () => { label.hide(); cross.setAttribute("visibility", "hidden"); };
      root.addEventListener("pointermove", (event) => {
        const x = x0 + ((event.offsetX / root.clientWidth * width) - left) / (width - left - right) * (x1 - x0);
        at = places.reduce((best, place, i) => Math.abs(place - x) < Math.abs(places[best] - x) ? i : best, 0);
        show();
      });
      root.addEventListener("pointerleave", hide);
      root.addEventListener("blur", hide);
      root.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        at = Math.min(places.length - 1, Math.max(0, at + step));
        show();
      });
    });
  }

  const last = (values) => values.filter(known).at(-1);
  const line = (points, px, py) => points.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");
  function star(x, y, size) {
    const points = [...Array(10).keys()].map((k) => {
      const r = k % 2 ? size * 0.42 : size, a = Math.PI * (k / 5 - 0.5);
      return `${(x + r * Math.cos(a)).toFixed(1)} ${(y + r * Math.sin(a)).toFixed(1)}`;
    });
    return "M" + points.join("L") + "Z";
  }

  /* A legend of coloured boxes. */
  function boxes(names) {
    return el("ul", { class: "legend" }, names.map((name, k) => el("li", {}, svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("rect", { x: 6, width: 14, height: 10, fill: colour(k) })), name)));
  }

  /* A bar for each name, with a mark for another number beside it. */
  function bars(box, { names, values, others, unit, said }) {
    box.classList.add("chart");
    keepDrawn(box, () => {
      const width = Math.min(620, Math.max(260, box.clientWidth || 600)), tall = 20, left = Math.min(150, 14 + 7 * Math.max(...names.map((name) => name.length)));
      const high = Math.max(...values, ...others) || 1, px = (value) => left + value / high * (width - left - 60);
      const root = svg("svg", { viewBox: `0 0 ${width} ${names.length * tall}`, role: "img", "aria-label": names.map((name, k) => `${name}: ${number(values[k])}`).join(", ").slice(0, 900) });
      root.style.maxWidth = width + "px";
      names.forEach((name, k) => root.append(svg("text", { x: left - 6, y: k * tall + 14, "text-anchor": "end" }, name.length > 19 ? name.slice(0, 18) + "…" : name),
        svg("rect", { x: left, y: k * tall + 3, width: px(values[k]) - left, height: tall - 6, fill: colour(0) }),
        svg("line", { x1: px(others[k]), x2: px(others[k]), y1: k * tall + 1, y2: k * tall + tall - 1, stroke: "var(--ink)", "stroke-width": 2 }),
        svg("text", { x: px(Math.max(values[k], others[k])) + 6, y: k * tall + 14 }, number(values[k]))));
      box.replaceChildren(root, el("p", { class: "note" }, `${unit} of every class; ${said}`));
    });
  }

  /* Bars with parts on top of each other. parts: {name: [value of every x]} */
  function stacked(box, { x, parts, title, height = 200, xLabel = "round", unit = "s" }) {
    box.classList.add("chart");
    keepDrawn(box, () => {
      const width = Math.max(280, box.clientWidth || 700), [left, right, top, bottom] = [58, 14, 10, 40];
      const names = Object.keys(parts), sums = x.map((_, i) => names.reduce((sum, name) => sum + (parts[name][i] || 0), 0));
      const high = Math.max(...sums, 0) || 1, wide = (width - left - right) / Math.max(1, x.length);
      const py = (y) => height - bottom - y / high * (height - top - bottom);
      const total = (name) => parts[name].reduce((a, b) => a + (b || 0), 0);
      const said = `${title}: ` + names.map((name) => `${name} ${number(total(name))} ${unit}`).join(", ");
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said });
      const axis = svg("g", { class: "axis" });
      for (const y of ticks(0, high, 4)) axis.append(svg("line", { x1: left, x2: width - right, y1: py(y), y2: py(y) }), svg("text", { x: left - 7, y: py(y) + 4, "text-anchor": "end" }, number(y)));
      const every = Math.ceil(x.length / Math.max(2, width / 60));
      x.forEach((value, i) => { if (i % every === 0) axis.append(svg("text", { x: left + (i + 0.5) * wide, y: height - bottom + 17, "text-anchor": "middle" }, String(value))); });
      axis.append(svg("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel), svg("text", { x: 13, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 13 ${(top + height - bottom) / 2})` }, "seconds"));
      root.append(axis);
      x.forEach((_, i) => {
        let below = 0;
        names.forEach((name, k) => {
          const value = parts[name][i] || 0;
          if (value > 0) root.append(svg("rect", { x: (left + i * wide + wide * 0.05).toFixed(2), width: (wide * 0.9).toFixed(2), y: py(below + value).toFixed(2), height: (py(below) - py(below + value)).toFixed(2), fill: colour(k) }));
          below += value;
        });
      });
      box.replaceChildren(root, boxes(names.map((name) => `${name} ${number(total(name))} ${unit}`)));
      const label = tip(box);
      root.addEventListener("pointermove", (event) => {
        const i = Math.floor((event.offsetX / root.clientWidth * width - left) / wide);
        if (i < 0 || i >= x.length) return label.hide();
        label.show(event.offsetX, event.offsetY, `${xLabel} ${x[i]}`, names.map((name) => `${name}: ${number(parts[name][i])} ${unit}`));
      });
      root.addEventListener("pointerleave", label.hide);
    });
  }

  Object.assign(FT, { curves, bars, stacked, boxes });
})();
