"use strict";
/* The dashboard: pages by the part of the address behind '#', drawn again when a run that they show changes. */
(() => {
  const { el, svg, number, known } = FT;
  const page = document.getElementById("page"), live = document.getElementById("live"), where = document.getElementById("where");
  const selected = new Set(), state = { filter: "", x: { x: "round" }, map: {}, scrubbed: {}, rest: 0, later: 0 };
  let shown = 0, concerns = () => false, redraw = () => {};

  /* A document; never, if another page has been opened meanwhile, so that an old page does not draw over it. */
  async function get(path, query = {}) {
    const mine = shown;
    const answer = await fetch(path + "?" + new URLSearchParams(query));
    const document = await answer.json().catch(() => ({ error: answer.statusText }));
    if (mine !== shown) return new Promise(() => {});
    if (!answer.ok || document.error) throw new Error(document.error || answer.statusText);
    return document;
  }

  const link = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");
  const badge = (word) => el("span", { class: `badge ${word}` }, word);
  const part = (title, ...children) => el("section", {}, el("h2", {}, title), ...children);
  const note = (text) => el("p", { class: "note" }, text);

  /* Redrawing leaves the keyboard where it was: call the answer after the redraw of what is in the box. */
  function keepFocus(box) {
    const old = document.activeElement;
    const sign = (node) => [node.tagName, node.type, node.getAttribute("href"), node.getAttribute("aria-label") || node.textContent].join(" ");
    const like = (wanted) => [...box.querySelectorAll("a, button, input, [tabindex]")].filter((node) => sign(node) === wanted);
    if (!box.contains(old)) return () => {};
    const wanted = sign(old), place = like(wanted).indexOf(old);
    return () => { if (!old.isConnected) (like(wanted)[place] || like(wanted)[0])?.focus({ preventScroll: true }); };
  }

  function table(grid, sortable = true) {
    const side = (column) => grid.words.includes(column) ? null : "number";
    const made = el("table", { class: sortable && grid.rows.length > 1 ? "sortable" : null },
      grid.title ? el("caption", {}, grid.title) : null,
      el("thead", {}, el("tr", {}, grid.header.map((name, i) => el("th", { scope: "col", class: side(i) }, name)))),
      el("tbody", {}, grid.rows.map((row) => el("tr", {}, row.map((cell, i) => el(i ? "td" : "th", { class: side(i), scope: i ? null : "row" },
        ["ahead", "behind", "level"].includes(cell) ? badge(cell) : cell))))));
    const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": grid.title || "table" }, made);
    FT.sortable(box);
    return box;
  }

  function spark(values) {
    const kept = values.filter(known), low = Math.min(...kept), high = Math.max(...kept);
    if (kept.length < 2) return el("span", {}, "–");
    const d = values.map((v, i) => known(v) ? `${(i / (values.length - 1) * 88 + 1).toFixed(1)} ${(20 - (v - low) / (high - low || 1) * 18).toFixed(1)}` : null).filter(Boolean).join("L");
    return svg("svg", { class: "spark", viewBox: "0 0 90 22", "aria-hidden": "true" }, svg("path", { d: "M" + d, fill: "none", stroke: "var(--c0)", "stroke-width": 1.6 }));
  }

  function bar(share) {
    return el("span", { class: "bar", "aria-hidden": "true" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" }, svg("rect", { width: 100 * share, height: 10, fill: "var(--accent)" })));
  }

  /* All runs */
  async function runsPage() {
    const found = await get("/api/runs");
    concerns = () => true;
    const search = el("input", { type: "search", value: state.filter, "aria-label": "Filter runs", placeholder: "filter: name, method, status" });
    const compare = el("a", { class: "button", role: "button", href: "#/" }, "Compare");
    const body = el("tbody");
    const count = el("span", { role: "status" });
    const settle = () => {
      compare.textContent = `Compare ${selected.size} runs`;
      compare.setAttribute("aria-disabled", String(selected.size < 2));
      compare.setAttribute("href", selected.size < 2 ? "#/" : link("compare", ...selected));
    };
    const fill = () => {
      const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = found.runs.filter((run) => words.every((word) => `${run.id} ${run.method || ""} ${run.status}`.toLowerCase().includes(word)));
      count.textContent = `${rows.length} of ${found.runs.length} runs`;
      body.replaceChildren(...rows.map(line));
      settle();
    };
    const line = (run) => {
      if (run.error) return el("tr", {}, el("td"), el("th", { scope: "row" }, run.id), el("td", { class: "error wrap", colspan: "5" }, run.error), el("td", {}, badge("damaged")), el("td"));
      const box = el("input", { type: "checkbox", "aria-label": `tick ${run.id}`, onchange: () => { box.checked ? selected.add(run.id) : selected.delete(run.id); settle(); } });
      box.checked = selected.has(run.id);
      return el("tr", {}, el("td", {}, box), el("th", { scope: "row" }, el("a", { href: link("run", run.id) }, run.id)), el("td", { class: "wrap" }, el("span", { class: "short", title: run.method }, run.method)),
        el("td", { class: "number" }, run.seed), el("td", { "data-value": run.done / run.rounds }, bar(run.done / run.rounds), `${run.done}/${run.rounds}`),
        el("td", {}, spark(run.spark)), el("td", { class: "number", "data-value": run.value ?? "" }, run.model ? `${run.model} ${run.shown}` : "–"),
        el("td", {}, badge(run.status)), el("td", { class: "number", "data-value": run.megabytes }, run.cost));
    };
    search.addEventListener("input", () => { state.filter = search.value; fill(); });
    const head = ["", "run", "method", "seed", "rounds", "curve", "result", "status", "cost"].map((name) => el("th", { scope: "col" }, name));
    const made = el("table", { class: "sortable" }, el("thead", {}, el("tr", {}, head)), body);
    where.textContent = "";
    const mine = Object.entries(found.mine);
    const restore = keepFocus(page);
    page.replaceChildren(el("h1", {}, `Runs in ${found.root}`),
      mine.length ? el("section", { id: "mine" }, el("h2", {}, "Started here"), el("ul", { class: "plain" }, mine.map(([name, one]) => el("li", {}, one.resumable || found.runs.some((run) => run.id === name) ? el("a", { href: link("run", name) }, name) : name, " ", badge(one.state), " ", Control.buttons(name, one))))) : "",
      el("div", { class: "controls" }, search, compare, count),
      el("section", {}, found.runs.length ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "all runs" }, made) : el("p", {}, "No runs yet. Start one with: fedtailor run")),
      found.comparisons.length ? part("Comparisons", el("ul", {}, found.comparisons.map((name) => el("li", {}, el("a", { href: "/report?id=" + encodeURIComponent(name) }, name))))) : "");
    fill();
    FT.sortable(page);
    restore();
  }

  /* A run */
  async function runPage(id) {
    concerns = (names) => names.includes(id);
    const boxes = { head: el("div"), curves: el("figure", { id: "curves" }), map: el("figure", { id: "map" }), spread: el("figure"), result: el("div"), failures: el("div"), phases: el("div"), profile: el("figure", { id: "profile" }), facts: el("div"), data: el("div", { id: "data" }), method: el("div", { id: "method" }) };
    let groups = {};
    state.rest = 0;
    const fill = async () => {
      const facts = await get("/api/run", { id });
      const restore = keepFocus(document.body);
      where.replaceChildren(el("span", {}, id), " ", el("a", { href: "/report?id=" + encodeURIComponent(id) }, "report"), " ", ...(facts.nodes ? [el("a", { href: link("run", id, "federation") }, `${facts.nodes} nodes`)] : []));
      boxes.head.replaceChildren(el("h1", {}, facts.name), el("p", { class: "lead" }, badge(facts.status), " ", facts.lead),
        ...(Control.enabled ? [el("p", { class: "controls" }, facts.mine ? Control.buttons(id, facts.mine) : null, el("a", { class: "button", href: link("start", id) }, "Start another like it"))] : []),
        el("p", { id: "progress" }, bar(facts.done / facts.rounds), `${facts.done} of ${facts.rounds} rounds. ${facts.cost}.`),
        ...facts.warnings.map((text) => el("p", { class: "warning" }, `Warning: ${text}`)), ...facts.privacy.map(note),
        note(`Last cohort: ${facts.cohort.length} of ${facts.count} clients` + (facts.cohort.length <= 30 ? ` (${facts.cohort.map((c) => facts.clients.names ? facts.clients.names[c] : c).join(", ")}).` : ".")));
      Views.runCurves(boxes.curves, facts, state.x);
      const map = () => Views.clientMap(boxes.map, { ...facts, groups }, (cell) => { location.hash = link("run", id, "client", String(cell.client)); }, state.map);
      map();
      if (facts.distribution.length) Views.distribution(boxes.spread, facts);
      boxes.result.replaceChildren(...(facts.evaluation ? [table(facts.evaluation), ...facts.remarks.map(note)] : [note("No round has been evaluated yet.")]));
      boxes.failures.replaceChildren(...(facts.event_count ? [table(facts.failures), el("h3", {}, "Latest events"),
        el("div", { class: "list", tabindex: "0", role: "region", "aria-label": "events" }, el("ul", {}, facts.events.map((e) => el("li", {}, `round ${e.round}, client ${e.client ?? "–"}: ${e.detail}`))))] : [note("None.")]));
      boxes.phases.replaceChildren(facts.phases ? table(facts.phases, false) : note("No complete round yet."));
      Views.profile(boxes.profile, facts);
      if (!boxes.facts.childElementCount) boxes.facts.append(el("details", {}, el("summary", {}, "Settings"), el("pre", { tabindex: "0" }, facts.settings)),
        el("details", {}, el("summary", {}, "Versions"), el("ul", {}, Object.entries(facts.environment).map(([name, value]) => el("li", {}, `${name}: ${value}`)))));
      restore();
      method(id, boxes.method, (found) => { groups = found; if (Object.keys(groups).length) map(); });
    };
    page.replaceChildren(boxes.head, part("Curves", boxes.curves, note("Band of the first model: mean to worst tenth of the clients.")),
      part("Clients", el("div", { class: "two" }, el("div", {}, el("h3", {}, "A cell per client: choose one to see it"), boxes.map), el("div", {}, el("h3", {}, "Share of clients with at most this value"), boxes.spread))),
      part("Result", boxes.result), part("What the method is doing", boxes.method), part("Left out of rounds, and why", boxes.failures), part("Time by phase", boxes.phases, boxes.profile),
      part("Data: who has which classes", boxes.data), part("Settings and versions", boxes.facts));
    await fill();
    redraw = fill;
    const ask = el("button", { class: "button", type: "button", onclick: () => data(id, boxes.data) }, "Read the data");
    boxes.data.append(note("The data are built again from the settings, which may take a moment."), ask);
  }

  async function data(id, box) {
    box.replaceChildren(note("Reading …"));
    const found = await get("/api/data", { id }).catch((error) => ({ error: error.message }));
    if (found.error) return box.replaceChildren(el("p", { class: "error" }, found.error));
    const chart = el("div");
    box.replaceChildren(chart);
    dataChart(chart, found);
  }

  function dataChart(box, found) {
    if (!found.classes.length) return box.replaceChildren(note("The targets are numbers, so there are no classes to show."));
    const chart = el("div");
    box.replaceChildren(chart, note(found.clients.length < found.all ? `${found.clients.length} of ${found.all} clients, evenly spaced. A row is a class, a column a client.` : "A row is a class, a column a client."));
    FT.heat(chart, { rows: found.counts, rowLabels: found.classes, columnLabels: found.clients, xLabel: "client", yLabel: "class", unit: "samples", zeroes: false });
  }

  /* What the method is doing. Reading it may take long, so that it is read again only after twenty times as long. */
  async function method(id, box, show) {
    const now = performance.now(), mine = shown;
    clearTimeout(state.later);
    if (now < state.rest) {
      state.later = setTimeout(() => { if (mine === shown) method(id, box, show); }, state.rest - now);
      return;
    }
    const found = await get("/api/method", { id }).catch((error) => ({ error: error.message }));
    state.rest = performance.now() + 20 * (performance.now() - now);
    if (found.error) return box.replaceChildren(el("p", { class: "error" }, found.error));
    if (found.panels.length) Panels.draw(box, found.panels, state.scrubbed);
    else box.replaceChildren(note("It declares no decisions, and keeps nothing that can be drawn."));
    show(found.groups);
  }

  /* A real federation */
  async function federationPage(id) {
    concerns = (names) => names.includes(id);
    const fill = async () => {
      const found = await get("/api/federation", { id });
      where.replaceChildren(el("a", { href: link("run", id) }, id), " / federation");
      page.replaceChildren(el("h1", {}, "A real federation"), part("Nodes", table(found.nodes)),
        part("Audit log", ...(found.audit ? [el("p", { id: "chain", class: found.audit.whole ? "note" : "warning" }, found.audit.said), ...(found.audit.grid.rows.length ? [table(found.audit.grid)] : [])]
          : [note("Start the dashboard with --keys FOLDER, the coordinator's folder of keys, to see the nodes' keys and the log.")])));
    };
    await fill();
    redraw = fill;
  }

  /* A client */
  async function clientPage(id, which) {
    concerns = (names) => names.includes(id);
    const dataBox = el("div", { id: "data" }, note("Reading the data …"));
    const fill = async () => {
      const [found, facts] = await Promise.all([get("/api/client", { id, client: which }), get("/api/run", { id })]);
      where.replaceChildren(el("a", { href: link("run", id) }, id), ` / client ${found.label}`);
      const chart = el("div"), series = Object.entries(found.curves).filter(([model]) => model !== "final").map(([model, one]) => ({ label: model, ...one }));
      facts.curves.filter((one) => one.model === "held").forEach((one) => series.push({ label: "held, mean of all clients", x: one.x.round, y: one.mean }));
      const final = found.curves.final, words = (parts) => Object.entries(parts).map(([name, value]) => `${name}: ${value}`).join("; ");
      const decided = found.decisions.map((d) => [d.name, String(d.round), words(d.answer), words(d.saw) || "–", number(d.reward)]);
      page.replaceChildren(el("h1", {}, `Client ${found.label}`),
        part("Its curve beside the federation's", chart),
        part("What the method decided about it, and why", ...found.about.map((text) => el("p", {}, text)),
          decided.length ? table({ title: "The latest decisions", header: ["decision", "round", "answer", "what the agent saw", "reward"], words: [0, 2, 3], rows: decided.reverse() })
            : note(found.about.length ? "It declares no decisions about clients." : "Nothing: it declares no decisions about clients, and keeps nothing about them.")),
        part("Its data", dataBox),
        part("Its model", found.has_model ? el("a", { class: "button", href: "/api/model?" + new URLSearchParams({ id, client: found.client }), download: "" }, "Download the model and its card") : note("No model of this client is stored: the run has not ended, or keeps no models.")),
        part("Its work", found.tasks.length ? table({ title: "", header: ["round", "steps", "samples", "loss", "seconds"], words: [], rows: found.tasks.map((t) => [t.round, t.steps, t.samples, number(t.loss), number(t.seconds)].map(String)) }) : note("It has not trained yet.")),
        part("Left out of rounds, and why", found.events.length ? el("ul", {}, found.events.map((e) => el("li", {}, `round ${e.round}: ${e.detail}`))) : note("Never.")));
      FT.curves(chart, { series, marks: final ? [{ x: Math.max(...final.x), y: final.y.at(-1), label: "final" }] : [], percent: found.percent, yLabel: found.measure });
    };
    await fill();
    redraw = fill;
    clientData(id, which, dataBox);
  }

  async function clientData(id, which, box) {
    const found = await get("/api/data", { id, client: which }).catch((error) => ({ error: error.message }));
    if (found.error) return box.replaceChildren(note(found.error));
    const chart = el("div"), { train, val, test } = found.sizes;
    box.replaceChildren(el("p", {}, `${train} samples to train, ${val} to validate, ${test} to test.`), found.classes.length ? chart : note("The targets are numbers, so there are no classes."));
    if (found.classes.length) FT.bars(chart, { names: found.classes, values: found.counts, others: found.mean, unit: "samples", said: "line: mean of all clients" });
  }

  /* Runs side by side */
  async function comparePage(ids) {
    concerns = (names) => names.some((name) => ids.includes(name));
    const fill = async () => {
      const facts = await get("/api/compare", { ids: ids.join("\n") });
      where.textContent = `${ids.length} runs side by side`;
      const boxes = { curves: el("figure"), scatter: el("figure", { id: "scatter" }), spread: el("figure") };
      page.replaceChildren(el("h1", {}, "Comparison"), part("Result", table(facts.table), ...facts.notes.map(note)), part("Curves", boxes.curves),
        part("Who wins, who loses", note("A point is a client in one seed."), boxes.scatter), part("Fairness: share of clients with at most this value", boxes.spread));
      Views.comparisonCurves(boxes.curves, facts, state.x);
      Views.comparisonScatter(boxes.scatter, facts);
      if (facts.distribution.length) Views.distribution(boxes.spread, facts);
    };
    await fill();
    redraw = fill;
  }

  /* Start a run */
  async function startPage(like) {
    concerns = () => false;
    const form = await get("/api/form", like ? { like } : {});
    where.textContent = like ? `like ${like}` : "";
    Control.page(page, form, { part, note, link, go: (hash) => { location.hash = hash; }, heat: dataChart });
  }

  async function go() {
    const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
    const mine = ++shown;
    redraw = go;
    try {
      if (parts[0] === "run" && parts[2] === "federation") await federationPage(parts[1]);
      else if (parts[0] === "run" && parts[2] === "client") await clientPage(parts[1], parts[3]);
      else if (parts[0] === "run") await runPage(parts[1]);
      else if (parts[0] === "start") await startPage(parts[1]);
      else if (parts[0] === "compare") await comparePage(parts.slice(1));
      else await runsPage();
    } catch (error) {
      if (mine === shown) page.replaceChildren(el("h1", {}, "This cannot be shown"), el("p", { class: "error" }, error.message));
    }
  }

  /* At most one drawing at a time, and at most one a second: a fast run must not keep the browser busy. */
  let waiting = false;
  function changed(names) {
    if (waiting || !concerns(names)) return;
    waiting = true;
    setTimeout(async () => {
      waiting = false;
      const scroll = scrollY;
      await redraw().catch(() => go());
      scrollTo(0, scroll);
    }, 300);
  }

  document.getElementById("start").hidden = !Control.enabled;
  const source = new EventSource("/api/changes");
  source.addEventListener("ready", () => { live.textContent = "live"; live.className = "badge on"; });
  source.addEventListener("message", (event) => changed(JSON.parse(event.data)));
  source.addEventListener("error", () => { live.textContent = "not connected"; live.className = "badge off"; });
  addEventListener("hashchange", () => { go().then(() => { page.focus(); scrollTo(0, 0); }); });
  go();
})();
