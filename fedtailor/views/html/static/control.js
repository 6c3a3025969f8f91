"use strict";
/* Starting, stopping and resuming runs: a form made from the settings' schema, and buttons. Only with --control. */
const Control = (() => {
  const { el } = FT;
  const token = document.querySelector("meta[name=fedtailor-token]").content;
  const FIRST = ["", "method", "data", "data.partition", "training", "participation"]; // tables at the top, which are open

  async function post(path, body) {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json", "X-FedTailor-Token": token }, body: JSON.stringify(body) });
    const found = await answer.json().catch(() => ({ error: answer.statusText }));
    if (!answer.ok || found.error) throw Object.assign(new Error(found.error || answer.statusText), { problems: found.problems || [] });
    return found;
  }

  /* Buttons of a run that this dashboard started. */
  function buttons(id, mine) {
    const said = el("span", { class: "error", role: "alert" });
    const button = (label, path) => el("button", { class: "button", type: "button", onclick: async (event) => {
      event.target.disabled = true;
      await post(path, { id }).catch((error) => { said.textContent = error.message; event.target.disabled = false; });
    } }, label);
    const going = ["starting", "running", "stopping"].includes(mine.state);
    return el("span", { class: "controls commands" },
      going ? button(mine.asked ? "Stop at once" : "Stop", "/api/stop") : null,
      mine.asked && going ? "It stops at its next round boundary." : null,
      mine.resumable ? button("Resume", "/api/resume") : null, mine.why ? el("span", { class: "error" }, mine.why) : null, said);
  }

  /* The form. */
  function page(box, form, { part, note, heat, go, link }) {
    const boxes = form.fields.map((field, index) => row(field, index, form.values[field.key]));
    const more = row({ key: "more", about: "Settings that the form does not have, one key=value in a line, as after --set.", kind: "lines", default: "", allowed: "", when: [] }, "more", form.values.more);
    const all = [...boxes, more];
    const preview = el("div", { id: "preview", role: "status" }), wrong = el("div", { id: "wrong", role: "alert" });
    const value = (key) => {
      const found = boxes.find((one) => one.field.key === key && !one.node.hidden) || boxes.find((one) => one.field.key === key);
      return found.read() || found.field.default;
    };
    const tables = new Map();
    for (const one of boxes) {
      if (!tables.has(one.field.table)) tables.set(one.field.table, []);
      tables.get(one.field.table).push(one);
    }
    const order = (name) => FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length;
    const sections = [...tables].sort((a, b) => order(a[0]) - order(b[0])).map(([name, those]) => ({ those, node: el("details", { ...(FIRST.includes(name) ? { open: "" } : {}) }, el("summary", {}, name || "run"), el("div", { class: "fields" }, those.map((one) => one.node))) }));
    const settle = () => {
      for (const one of boxes) one.node.hidden = !one.field.when.every(([key, wanted]) => value(key) === wanted);
      for (const { those, node } of sections) node.hidden = those.every((one) => one.node.hidden);
    };
    const values = () => Object.fromEntries(all.filter((one) => !one.node.hidden && one.read()).map((one) => [one.field.key, one.read()]));
    const complain = (error) => {
      for (const one of all) one.say("");
      const rest = [];
      for (const { key, text } of error.problems.length ? error.problems : [{ key: "", text: error.message }]) {
        const at = all.find((one) => one.field.key === key && !one.node.hidden);
        at ? at.say(text) : rest.push(text);
      }
      wrong.replaceChildren(...rest.map((text) => el("p", { class: "error" }, text)));
      const first = all.find((one) => one.wrong());
      if (first) { first.node.closest("details")?.setAttribute("open", ""); first.input.focus(); }
    };
    const ask = async (button, path, done) => {
      button.disabled = true;
      try {
        const found = await post(path, { values: values() });
        for (const one of all) one.say("");
        wrong.replaceChildren();
        done(found);
      } catch (error) { complain(error); } finally { button.disabled = false; }
    };
    const look = el("button", { class: "button", type: "submit" }, "Check, and look at the data");
    const start = el("button", { class: "button main", type: "button", onclick: () => ask(start, "/api/start", () => go(link())) }, "Start");
    const show = (found) => {
      const chart = el("div"), sizes = found.summary;
      preview.replaceChildren(el("h3", {}, "Data"), el("p", {}, `${sizes.clients} clients, ${sizes.samples} samples: ${sizes.train} to train, ${sizes.val} to validate, ${sizes.test} to test.`),
        chart, el("h3", {}, "Time"), el("p", { id: "time" }, found.time));
      heat(chart, found.data);
    };
    const node = el("form", { novalidate: "", onsubmit: (event) => { event.preventDefault(); preview.replaceChildren(note("Reading the data …")); ask(look, "/api/preview", show).then(() => { if (!preview.querySelector("h3")) preview.replaceChildren(); }); } },
      sections.map((one) => one.node), el("details", { ...(form.values.more ? { open: "" } : {}) }, el("summary", {}, "more"), el("div", { class: "fields" }, more.node)),
      wrong, el("div", { class: "controls sticky" }, look, start), preview);
    node.addEventListener("input", settle);
    settle();
    box.replaceChildren(el("h1", {}, "Start a run"), note("An empty field means the default, which it shows. Nothing is written before you press Start."), el("section", {}, node));
  }

  /* A field with its label, description, range and a place for what is wrong with it. */
  function row(field, index, given) {
    const id = `field-${index}`, shown = field.default === "" ? "" : `default ${field.default}`;
    const attributes = { id, name: field.key, "aria-describedby": `${id}-about ${id}-wrong`, autocomplete: "off" };
    let input;
    if (field.kind === "choice") input = el("select", attributes, field.choices.map((name) => el("option", { value: name }, name || "default")));
    else if (field.kind === "truth" || field.kind === "table") input = el("select", attributes, ["true", "false"].map((name) => el("option", { value: name }, name === "true" ? "yes" : "no")));
    else if (field.kind === "lines") input = el("textarea", { ...attributes, rows: 4 });
    else input = el("input", { ...attributes, type: "text", inputmode: { whole: "numeric", number: "decimal" }[field.kind], placeholder: field.default, list: field.suggestions?.length ? `${id}-list` : null });
    if (given !== undefined) input.value = given;
    else if (["choice", "truth", "table"].includes(field.kind)) input.value = field.default;
    const said = el("p", { class: "error", id: `${id}-wrong`, role: "alert" });
    const range = [field.allowed && field.kind !== "choice" ? field.allowed : "", shown].filter(Boolean).join("; ");
    const node = el("div", { class: "field" }, el("label", { for: id }, field.key.split(".").slice(field.table ? field.table.split(".").length : 0).join(".") || field.key), input,
      field.suggestions?.length ? el("datalist", { id: `${id}-list` }, field.suggestions.map((name) => el("option", { value: name }))) : null,
      el("p", { class: "note", id: `${id}-about` }, field.about, field.about && range ? el("br") : null, range), said);
    return {
      field, node, input, read: () => input.value.trim(), wrong: () => said.textContent !== "",
      say: (text) => { said.textContent = text; text ? input.setAttribute("aria-invalid", "true") : input.removeAttribute("aria-invalid"); },
    };
  }

  return { enabled: token !== "", page, buttons };
})();
