"use strict";
/* Charts of FedTailor's pages: curves, a map of clients, a scatter, a heat map; sortable tables.
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

  /* Colours from dark blue to yellow, which everybody can tell apart. */
  const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  function shade(share) {
    const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1), k = Math.min(RAMP.length - 2, Math.floor(at));
    return `rgb(${RAMP[k].map((from, i) => Math.round(from + (RAMP[k + 1][i] - from) * (at - k))).join(",")})`;
  }

  function canvas(box, width, height, attributes) {
    const node = el("canvas", { ...attributes, width: Math.round(width * devicePixelRatio), height: Math.round(height * devicePixelRatio) });
    node.style.width = width + "px"; node.style.height = height + "px";
    const pen = node.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    return [node, pen];
  }

  /* One cell per client. cells: [{client, label, value, marked, note, group}]; by group, each group begins a line. */
  function map(box, { cells, percent = false, less = false, order = "number", pick = null, name = "client" }) {
    box.classList.add("chart");
    const shown = [...cells];
    const sign = less ? -1 : 1, rank = (cell) => known(cell.value) ? sign * cell.value : -Infinity;
    if (order === "value") shown.sort((a, b) => rank(a) - rank(b));
    if (order === "group") shown.sort((a, b) => a.group - b.group || a.client - b.client);
    const values = cells.map((cell) => cell.value).filter(known);
    const [low, high] = range(values, 0);
    let at = -1;
    keepDrawn(box, () => {
      const width = Math.max(260, box.clientWidth || 600), count = Math.max(1, shown.length);
      const side = Math.max(3, Math.min(34, Math.floor(Math.sqrt(width * Math.min(420, width) / count))));
      const columns = Math.max(1, Math.floor(width / side)), cellAt = new Map(), places = [];
      let line = 0, column = 0;
      shown.forEach((cell, index) => {
        if (index && (column === columns || (order === "group" && cell.group !== shown[index - 1].group))) { line += order === "group" && column < columns && cell.group !== shown[index - 1].group ? 1.5 : 1; column = 0; }
        places.push([column * side, line * side]);
        cellAt.set(`${column} ${line}`, index);
        column++;
      });
      const rows = line + 1;
      const said = `${count} clients, from ${number(low, percent)} to ${number(high, percent)}`;
      const [node, pen] = canvas(box, columns * side, rows * side, { role: "img", tabindex: "0", "aria-label": said });
      const gap = side > 7 ? 2 : side > 4 ? 1 : 0;
      const place = (index) => places[index];
      const all = el("canvas", { width: node.width, height: node.height }); // painted once: ten thousand cells take a moment
      const paint = () => {
        pen.save(); pen.setTransform(1, 0, 0, 1, 0, 0); pen.clearRect(0, 0, node.width, node.height); pen.drawImage(all, 0, 0); pen.restore();
        if (at >= 0) {
          const [x, y] = place(at);
          pen.strokeStyle = style("--ink"); pen.lineWidth = 2; pen.strokeRect(x + 1, y + 1, Math.max(2, side - gap - 2), Math.max(2, side - gap - 2));
        }
      };
      const paintAll = (pen) => {
        pen.scale(devicePixelRatio, devicePixelRatio);
        const empty = style("--plain-back"), ink = style("--bad");
        shown.forEach((cell, index) => {
          const [x, y] = place(index);
          const share = high > low ? (cell.value - low) / (high - low) : 1;
          pen.fillStyle = known(cell.value) ? shade(less ? 1 - share : share) : empty;
          pen.fillRect(x, y, side - gap, side - gap);
          if (cell.marked) { pen.strokeStyle = ink; pen.lineWidth = gap ? 2 : 1; pen.strokeRect(x + 1, y + 1, side - gap - 2, side - gap - 2); }
        });
      };
      paintAll(all.getContext("2d"));
      paint();
      const ramp = el("div", { class: "ramp" }, number(less ? high : low, percent), el("i", { "aria-hidden": "true" }), number(less ? low : high, percent));
      box.replaceChildren(node, ramp);
      const label = tip(box);
      const show = () => {
        const cell = shown[at];
        if (!cell) return;
        paint();
        const [x, y] = place(at);
        label.show(x + side, y + side / 2, `${name} ${cell.label}`, [number(cell.value, percent), ...(cell.note ? [cell.note] : [])]);
      };
      node.addEventListener("pointermove", (event) => {
        const y = event.offsetY / side, x = Math.floor(event.offsetX / side);
        const index = cellAt.get(`${x} ${Math.floor(y)}`) ?? cellAt.get(`${x} ${Math.floor(y - 0.5) + 0.5}`);
        if (index !== undefined && index !== at) { at = index; show(); }
      });
      const leave = () => { label.hide(); at = -1; paint(); };
      node.addEventListener("pointerleave", leave);
      node.addEventListener("blur", leave);
      if (pick) { node.style.cursor = "pointer"; node.addEventListener("click", () => shown[at] && pick(shown[at])); }
      node.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
        if (event.key === "Enter" && pick && shown[at]) pick(shown[at]);
        if (!step) return;
        event.preventDefault();
        at = Math.min(shown.length - 1, Math.max(0, at + step));
        show();
      });
    });
  }

  /* One point per client: two values against each other, with the diagonal. points: [{x, y, label}] */
  function scatter(box, { points, xLabel, yLabel, percent = false, less = false }) {
    box.classList.add("chart");
    keepDrawn(box, () => {
      const width = Math.min(520, Math.max(260, box.clientWidth || 480)), height = width;
      const [left, right, top, bottom] = [52, 12, 10, 42];
      const [low, high] = range(points.flatMap((point) => [point.x, point.y]), 0.05);
      const px = (x) => left + (x - low) / (high - low) * (width - left - right);
      const py = (y) => height - bottom - (y - low) / (high - low) * (height - top - bottom);
      const sign = less ? -1 : 1;
      const better = points.filter((p) => sign * (p.y - p.x) > 0).length, worse = points.filter((p) => sign * (p.y - p.x) < 0).length;
      const said = `${yLabel} is better for ${better} clients, equal for ${points.length - better - worse}, worse for ${worse} than ${xLabel}.`;
      const [node, pen] = canvas(box, width, height, { role: "img", "aria-label": said });
      pen.font = "12px system-ui, sans-serif"; pen.fillStyle = style("--soft"); pen.strokeStyle = style("--line");
      for (const value of ticks(low, high, 5)) {
        pen.beginPath(); pen.moveTo(left, py(value)); pen.lineTo(width - right, py(value)); pen.moveTo(px(value), top); pen.lineTo(px(value), height - bottom); pen.stroke();
        const text = percent ? String(Number((100 * value).toFixed(1))) : number(value);
        pen.textAlign = "right"; pen.fillText(text, left - 6, py(value) + 4);
        pen.textAlign = "center"; pen.fillText(text, px(value), height - bottom + 16);
      }
      pen.fillText(short(xLabel), (left + width - right) / 2, height - 6);
      pen.save(); pen.translate(12, (top + height - bottom) / 2); pen.rotate(-Math.PI / 2); pen.fillText(short(yLabel), 0, 0); pen.restore();
      pen.strokeStyle = style("--soft"); pen.setLineDash([4, 4]); pen.beginPath(); pen.moveTo(px(low), py(low)); pen.lineTo(px(high), py(high)); pen.stroke(); pen.setLineDash([]);
      const size = points.length > 2000 ? 1.5 : points.length > 300 ? 2.5 : 4;
      pen.globalAlpha = points.length > 300 ? 0.45 : 0.75;
      for (const point of points) {
        pen.fillStyle = style(sign * (point.y - point.x) > 0 ? "--c0" : point.y === point.x ? "--soft" : "--c1");
        pen.beginPath(); pen.arc(px(point.x), py(point.y), size, 0, 7); pen.fill();
      }
      box.replaceChildren(node, el("p", { class: "note" }, said));
      const label = tip(box);
      node.addEventListener("pointermove", (event) => {
        let best = null, distance = 200;
        for (const point of points) {
          const d = (px(point.x) - event.offsetX) ** 2 + (py(point.y) - event.offsetY) ** 2;
          if (d < distance) { distance = d; best = point; }
        }
        if (!best) return label.hide();
        label.show(px(best.x), py(best.y), best.label, [`${xLabel}: ${number(best.x, percent)}`, `${yLabel}: ${number(best.y, percent)}`]);
      });
      node.addEventListener("pointerleave", label.hide);
    });
  }

  const short = (text) => text.length > 44 ? text.slice(0, 42) + "…" : text;

  /* Numbers as colours, with the labels of rows and columns where they fit. `scale`: the lowest and the highest colour. */
  function heat(box, { rows, rowLabels = null, columnLabels = null, xLabel = "", yLabel = "", unit = "", scale = null, zeroes = true }) {
    box.classList.add("chart");
    keepDrawn(box, () => {
      const columns = Math.max(1, ...rows.map((row) => row.length)), width = Math.max(260, box.clientWidth || 600);
      const tall = Math.max(2, Math.min(20, Math.floor(420 / Math.max(1, rows.length))));
      const name = (labels, k) => labels ? String(labels[k]) : String(k);
      const short = (text) => text.length > 16 ? text.slice(0, 15) + "…" : text;
      const left = tall >= 11 ? 8 + 6.6 * Math.max(...rows.map((_, y) => short(name(rowLabels, y)).length)) : 0;
      const side = Math.max(1, Math.min(34, (width - left) / columns)), wide = left + columns * side, high = rows.length * tall;
      const [low, top] = scale || range(rows.flat(), 0);
      const said = `${yLabel} against ${xLabel}: ${rows.length} by ${columns} values from ${number(low)} to ${number(top)}`;
      const [node, pen] = canvas(box, wide, high + 16, { role: "img", tabindex: "0", "aria-label": said });
      let at = [-1, 0];
      const paint = () => {
        pen.clearRect(0, 0, wide, high + 16);
        rows.forEach((row, y) => row.forEach((value, x) => {
          pen.fillStyle = known(value) && (zeroes || value !== 0) ? shade((value - low) / (top - low || 1)) : empty;
          pen.fillRect(left + x * side, y * tall, side - (side > 6 ? 1 : 0), tall - (tall > 6 ? 1 : 0));
        }));
        pen.fillStyle = style("--soft"); pen.font = "11px sans-serif"; pen.textBaseline = "middle"; pen.textAlign = "right";
        if (left) rows.forEach((_, y) => pen.fillText(short(name(rowLabels, y)), left - 5, (y + 0.5) * tall));
        pen.textAlign = "center";
        let end = -1;
        for (let x = 0; x < columns; x++) { // the labels that do not touch the one before
          const text = short(name(columnLabels, x)), half = pen.measureText(text).width / 2, middle = Math.min(wide - half, Math.max(half, left + (x + 0.5) * side));
          if (middle - half > end + 4) { pen.fillText(text, middle, high + 9); end = middle + half; }
        }
        if (at[0] >= 0) { pen.strokeStyle = style("--ink"); pen.lineWidth = 2; pen.strokeRect(left + at[1] * side, at[0] * tall, Math.max(2, side), Math.max(2, tall)); }
      };
      const empty = style("--plain-back");
      paint();
      box.replaceChildren(node, el("div", { class: "ramp" }, number(low), el("i", { "aria-hidden": "true" }), `${number(top)} ${unit}`));
      const label = tip(box);
      const show = (y, x) => {
        if (!rows[y] || rows[y][x] === undefined) return hide();
        at = [y, x];
        paint();
        label.show(left + (x + 1) * side, y * tall, `${yLabel} ${name(rowLabels, y)}`, [`${xLabel} ${name(columnLabels, x)}: ${number(rows[y][x])} ${unit}`]);
      };
      const hide = () => { label.hide(); at = [-1, 0]; paint(); };
      node.addEventListener("pointermove", (event) => {
        const y = Math.floor(event.offsetY / tall), x = Math.floor((event.offsetX - left) / side);
        if (y !== at[0] || x !== at[1]) show(y, x);
      });
      node.addEventListener("pointerleave", hide);
      node.addEventListener("blur", hide);
      node.addEventListener("keydown", (event) => {
        const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
        if (!step) return;
        event.preventDefault();
        const y = Math.min(rows.length - 1, Math.max(0, at[0] < 0 ? 0 : at[0] + step[0]));
        show(y, Math.min(rows[y].length - 1, Math.max(0, at[0] < 0 ? 0 : at[1] + step[1])));
      });
    });
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

  /* A click on a header sorts a table by that column. */
  function sortable(root) {
    for (const table of root.querySelectorAll("table.sortable:not([data-ready])")) {
      table.dataset.ready = "yes";
      [...table.tHead.rows[0].cells].forEach((cell, column) => {
        if (!cell.textContent) return;
        const button = el("button", { type: "button", onclick: () => sort(table, cell, column) }, cell.textContent);
        cell.replaceChildren(button);
      });
    }
  }

  function sort(table, header, column) {
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => {
      const text = (row.cells[column].dataset.value ?? row.cells[column].textContent).trim();
      const found = text.replaceAll(",", "").match(/^[+-]?\d+(\.\d+)?(e[+-]?\d+)?/i);
      return [found ? Number(found[0]) : NaN, text];
    };
    const rows = [...table.tBodies[0].rows].map((row) => [row, ...value(row)]);
    const compare = (a, b) => {
      if (Number.isNaN(a[1]) !== Number.isNaN(b[1])) return Number.isNaN(a[1]) ? 1 : -1; // what is no number comes last
      const order = Number.isNaN(a[1]) ? a[2].localeCompare(b[2]) : a[1] - b[1];
      return down ? -order : order;
    };
    table.tBodies[0].append(...rows.sort(compare).map((row) => row[0]));
  }

  /* A choice above a chart: a label and a select. */
  function choice(label, options, chosen, change) {
    const select = el("select", { onchange: () => change(select.value) }, options.map(([value, text]) => el("option", { value }, text)));
    select.value = chosen;
    return el("label", {}, label, select);
  }

  return { el, svg, curves, map, scatter, heat, stacked, bars, boxes, sortable, choice, number, known, colour, range, ticks, keepDrawn };
})();
