"use strict";
/* What a run and a comparison look like, for the report and the dashboard alike. `facts` come from views/html/facts.py. */
const Views = (() => {
  const X = { round: "round", megabytes: "MB sent and received", seconds: "seconds", device_seconds: "seconds on the devices" };

  function offered(axes) {
    return Object.keys(X).filter((name) => name === "round" || axes.includes(name)).map((name) => [name, X[name]]);
  }

  function runCurves(box, facts, state = { x: "round" }) {
    const chart = FT.el("div");
    const draw = () => {
      const series = facts.curves.map((one, index) => ({
        label: one.model, x: one.x[state.x], y: one.mean, faint: one.faint, index,
        ...(index === 0 ? { low: one.worst_tenth, high: one.best_tenth || one.mean } : {}),
      }));
      const end = Math.max(...series.flatMap((one) => one.x).filter(FT.known), 0);
      const marks = FT.known(facts.final) ? [{ x: end, y: facts.final, label: "final" }] : [];
      FT.curves(chart, { series, marks, xLabel: X[state.x], percent: facts.percent, yLabel: facts.measure });
    };
    const options = offered(facts.axes);
    box.replaceChildren(...(options.length > 1 ? [FT.el("div", { class: "controls" }, FT.choice("over", options, state.x, (value) => { state.x = value; draw(); }))] : []), chart);
    draw();
  }

  function clientMap(box, facts, pick = null, state = {}) {
    const models = Object.keys(facts.clients.values);
    state.model = models.includes(state.model) ? state.model : models.find((m) => m === "final") || models.find((m) => m === "held") || models[0];
    if (!state.model) { box.replaceChildren(FT.el("p", { class: "note" }, "No client has been evaluated yet.")); return; }
    state.order = state.order || "number";
    const cohort = new Set(facts.cohort || []), groups = facts.groups && Object.keys(facts.groups).length ? facts.groups : null;
    const chart = FT.el("div");
    const draw = () => {
      const values = facts.clients.values[state.model];
      const ids = facts.clients.ids; // of very many clients only some are here
      const cells = values.map((value, place) => [value, ids ? ids[place] : place]).map(([value, client]) => ({
        client, value, label: facts.clients.names ? facts.clients.names[client] : String(client),
        marked: facts.status === "running" && cohort.has(client), group: groups ? groups[client] ?? Infinity : 0,
        note: [groups ? `group ${groups[client] ?? "–"}` : "", facts.status === "running" && cohort.has(client) ? "took part in the last round" : ""].filter(Boolean).join("; "),
      }));
      FT.map(chart, { cells, percent: facts.percent, less: facts.less, order: state.order, pick });
    };
    box.replaceChildren(FT.el("div", { class: "controls" },
      FT.choice("model", models.map((m) => [m, m]), state.model, (value) => { state.model = value; draw(); }),
      FT.choice("order", [["number", "by number"], ["value", "worst first"], ...(groups ? [["group", "by group"]] : [])], state.order, (value) => { state.order = value; draw(); })), chart);
    draw();
  }

  /* The same colour for a model or a method in every figure of a page. */
  function colours(facts) {
    const labels = [...facts.curves.map((one) => one.model || one.label), ...facts.distribution.map((row) => row.label)];
    return (label) => [...new Set(labels)].indexOf(label);
  }

  function distribution(box, facts) {
    const index = colours(facts);
    const series = facts.distribution.map((row) => ({
      label: row.label, x: row.quantiles, y: row.quantiles.map((_, k) => k / (row.quantiles.length - 1)), index: index(row.label),
    }));
    FT.curves(box, { series, xLabel: facts.measure, xPercent: facts.percent, yLabel: "share of clients", percent: true, height: 280, ends: false });
  }

  function comparisonCurves(box, facts, state = { x: "round" }) {
    const chart = FT.el("div");
    const draw = () => {
      const series = facts.curves.map((one, index) => ({
        label: one.label, x: one.x[state.x], y: one.mean, index,
        ...(facts.curves.length <= 6 && one.spread.some((s) => s > 0) ? { low: one.mean.map((m, i) => m - one.spread[i]), high: one.mean.map((m, i) => m + one.spread[i]) } : {}),
      })).filter((one) => one.x && one.x.length);
      FT.curves(chart, { series, xLabel: X[state.x], percent: facts.percent, yLabel: facts.measure });
    };
    const options = offered(facts.axes);
    box.replaceChildren(...(options.length > 1 ? [FT.el("div", { class: "controls" }, FT.choice("over", options, state.x, (value) => { state.x = value; draw(); }))] : []), chart);
    draw();
  }

  function comparisonScatter(box, facts) {
    const labels = facts.clients.map((row) => row.label);
    if (labels.length < 2) { box.replaceChildren(FT.el("p", { class: "note" }, "Two methods with finished runs are needed.")); return; }
    const others = labels.filter((label) => label !== facts.baseline);
    const state = { x: labels.includes(facts.baseline) ? facts.baseline : labels[0], y: others[0] };
    const chart = FT.el("div");
    const of = (label) => facts.clients.find((row) => row.label === label).seeds;
    const draw = () => {
      const points = [], xs = of(state.x), ys = of(state.y);
      for (const seed of Object.keys(xs)) if (ys[seed]) xs[seed].forEach((x, k) => {
        const y = ys[seed][k];
        if (FT.known(x) && FT.known(y)) {
          const client = k * facts.every, name = facts.names && facts.names[seed] ? facts.names[seed][k] : client;
          points.push({ x, y, label: `client ${name}, seed ${seed}` });
        }
      });
      FT.scatter(chart, { points, xLabel: state.x, yLabel: state.y, percent: facts.percent, less: facts.less });
    };
    const options = labels.map((label) => [label, label]);
    box.replaceChildren(FT.el("div", { class: "controls" },
      FT.choice("across", options, state.x, (value) => { state.x = value; draw(); }),
      FT.choice("up", options, state.y, (value) => { state.y = value; draw(); })), chart);
    draw();
  }

  /* Where the time of the rounds went: phases on top of each other, and below them what the workers did. */
  function profile(box, facts) {
    box.replaceChildren();
    const found = facts.profile;
    if (!found) return;
    for (const [name, parts] of [["Seconds of every round by phase", found.phases], ["What the workers did meanwhile, summed over them", found.workers]]) {
      const chart = FT.el("div");
      box.append(FT.el("h3", {}, name + (found.every ? "" : ", of rounds that are evenly spaced")), chart);
      FT.stacked(chart, { x: found.round, parts, title: name });
    }
    const each = found.each_worker || [];
    if (each.length) {
      const chart = FT.el("div"), title = "Seconds of each worker in all rounds";
      box.append(FT.el("h3", {}, title), chart);
      const parts = Object.fromEntries(["train", "evaluate", "idle"].map((kind) => [kind, each.map((one) => one[kind])]));
      FT.stacked(chart, { x: each.map((one) => one.worker), parts, title, xLabel: "worker" });
    }
  }

  return { runCurves, clientMap, distribution, comparisonCurves, comparisonScatter, profile };
})();
