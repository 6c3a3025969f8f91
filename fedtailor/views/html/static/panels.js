"use strict";
/* What a method is doing: draws the panels of views/panels, in the report and in the dashboard. */
const Panels = (() => {
  const { el, svg, number, colour } = FT;
  const ROW = 16; // pixels of a client in a chart of bars

  /* `state` keeps where each panel was scrubbed to when the page is drawn again. */
  function draw(box, panels, state = {}) {
    const charts = panels.map((panel) => [panel, el("div")]);
    box.replaceChildren(...charts.map(([panel, chart]) => el("div", { class: "panel" }, el("h3", {}, panel.title), panel.note ? el("p", { class: "note" }, panel.note) : null, chart)));
    for (const [panel, chart] of charts) kinds[panel.kind](chart, panel, state);
  }

  /* A slider over the frames of a panel. It stays at the last one until somebody moves it. */
  function scrubbed(box, panel, state, show) {
    const last = panel.frames.length - 1, chart = el("div");
    if (last < 0) return;
    const label = el("output", {}, ""), slider = el("input", { type: "range", min: 0, max: last, "aria-label": `round of ${panel.title}` });
    const go = () => {
      const frame = panel.frames[slider.value];
      label.textContent = frame.name;
      slider.setAttribute("aria-valuetext", frame.name);
      show(chart, frame);
    };
    slider.value = Math.min(last, state[panel.title] ?? last);
    slider.addEventListener("input", () => {
      if (Number(slider.value) === last) delete state[panel.title]; else state[panel.title] = Number(slider.value);
      go();
    });
    box.replaceChildren(...(last > 0 ? [el("div", { class: "controls" }, el("label", {}, "scrub", slider), label)] : []), chart);
    go();
  }

  function heat(box, panel, state) {
    const scale = FT.range(panel.frames.flatMap((frame) => frame.rows.flat()), 0); // the same colours in every round
    scrubbed(box, panel, state, (chart, frame) => FT.heat(chart, { rows: frame.rows, rowLabels: frame.down, columnLabels: frame.across, xLabel: panel.x, yLabel: panel.y, unit: panel.unit, scale }));
  }

  function curves(box, panel) {
    FT.curves(box, { series: panel.series, xLabel: panel.x, yLabel: panel.y, title: panel.title, height: 240 });
  }

  /* Clients as rows of bars: what they did, in colour, and grey until the round ended. */
  function gantt(box, panel, state) {
    const names = [...new Set(panel.frames.flatMap((frame) => frame.rows.flatMap((row) => row.parts.map(([name]) => name))))];
    scrubbed(box, panel, state, (chart, frame) => FT.keepDrawn(chart, () => {
      chart.classList.add("chart");
      const longest = Math.max(1, ...frame.rows.map((row) => row.name.length));
      const width = Math.max(280, chart.clientWidth || 700), left = Math.min(130, 12 + 7 * longest), right = 66, bottom = 38;
      const height = frame.rows.length * ROW + bottom, end = Math.max(frame.end, ...frame.rows.flatMap((row) => row.parts.map((part) => part[2]))) || 1;
      const px = (time) => left + time / end * (width - left - right);
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${panel.title}, ${frame.name}: ${frame.said}` });
      frame.rows.forEach((row, k) => {
        const y = k * ROW, said = `${row.name}: ` + row.parts.map(([name, from, to]) => `${name} ${number(to - from)}`).join(", ") + (row.note ? `; ${row.note}` : "");
        root.append(svg("g", {}, svg("title", {}, said),
          svg("text", { x: left - 6, y: y + 12, "text-anchor": "end" }, row.name.length > 17 ? row.name.slice(0, 16) + "…" : row.name),
          svg("rect", { x: left, y: y + 2, width: px(frame.end) - left, height: ROW - 4, fill: "var(--plain-back)" }),
          row.parts.map(([name, from, to]) => svg("rect", { x: px(from), y: y + 2, width: Math.max(0, px(to) - px(from)), height: ROW - 4, fill: colour(names.indexOf(name)) })),
          row.note ? svg("text", { x: px(Math.max(...row.parts.map((part) => part[2]))) + 4, y: y + 12 }, row.note.length > 10 ? row.note.slice(0, 9) + "…" : row.note) : null));
      });
      const axis = svg("g", { class: "axis" });
      for (const time of FT.ticks(0, end, Math.max(2, width / 120))) axis.append(svg("text", { x: px(time), y: height - bottom + 16, "text-anchor": "middle" }, number(time)));
      axis.append(svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, panel.x));
      root.append(axis);
      chart.replaceChildren(el("p", { class: "said" }, frame.said), root, FT.boxes(names));
    }));
  }

  /* A tree of merges: [{x: 4 places, y: 4 heights, group}] over leaves in order. */
  function tree(box, panel) {
    box.classList.add("chart");
    FT.keepDrawn(box, () => {
      const width = Math.max(280, box.clientWidth || 700), height = 300, [left, right, top] = [48, 10, 8];
      const few = panel.leaves.length <= 60, longest = Math.max(...panel.leaves.map((leaf) => leaf.name.length)), bottom = few ? 20 + Math.min(90, 7 * longest) : 24;
      const high = Math.max(...panel.links.flatMap((link) => link.y)) || 1, wide = (width - left - right) / Math.max(1, panel.leaves.length);
      const px = (x) => left + (x + 0.5) * wide, py = (y) => height - bottom - y / high * (height - bottom - top);
      const groups = [...new Set(panel.leaves.map((leaf) => leaf.group))];
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${panel.title}: ${panel.leaves.length} clients in ${groups.length} groups` });
      const axis = svg("g", { class: "axis" });
      for (const y of FT.ticks(0, high, 4)) axis.append(svg("line", { x1: left, x2: width - right, y1: py(y), y2: py(y) }), svg("text", { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, number(y)));
      root.append(axis);
      for (const link of panel.links) root.append(svg("path", { d: link.x.map((x, i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(link.y[i]).toFixed(1)}`).join(""), fill: "none", "stroke-width": 1.8, stroke: link.group === null ? "var(--soft)" : colour(groups.indexOf(link.group)) }));
      if (FT.known(panel.cut)) root.append(svg("line", { x1: left, x2: width - right, y1: py(panel.cut), y2: py(panel.cut), stroke: "var(--ink)", "stroke-dasharray": "6 4" }));
      panel.leaves.forEach((leaf, k) => {
        const mark = svg("circle", { cx: px(k), cy: height - bottom + 5, r: Math.max(1.5, Math.min(4, wide / 3)), fill: colour(groups.indexOf(leaf.group)) }, svg("title", {}, `client ${leaf.name}, group ${leaf.group}`));
        root.append(mark);
        if (few) root.append(svg("text", { x: px(k), y: height - bottom + 14, "text-anchor": "end", transform: `rotate(-90 ${px(k)} ${height - bottom + 14}) translate(0 4)` }, leaf.name.length > 12 ? leaf.name.slice(0, 11) + "…" : leaf.name));
      });
      const sizes = groups.map((group) => `group ${group}: ${panel.leaves.filter((leaf) => leaf.group === group).length}`);
      box.replaceChildren(root, FT.boxes(sizes));
    });
  }

  const kinds = { heat, curves, gantt, tree };
  return { draw };
})();
