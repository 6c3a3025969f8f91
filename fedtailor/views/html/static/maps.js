"use strict";
/* Charts with many cells or points, painted on a canvas: a map of clients, a scatter, a heat map. */
(() => {
  const { el, number, known, style, range, ticks, tip, keepDrawn } = FT;

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

  Object.assign(FT, { map, scatter, heat });
})();
