"use strict";
/* Fills the figures of a report; its tables are there without it. */
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const box = (id, fill) => { const node = document.getElementById(id); if (node) fill(node); };
  if (facts.kind === "run") {
    box("curves", (node) => Views.runCurves(node, facts));
    box("map", (node) => Views.clientMap(node, facts));
    box("distribution", (node) => Views.distribution(node, facts));
    box("profile", (node) => Views.profile(node, facts));
    box("method", (node) => Panels.draw(node, facts.panels));
  } else {
    box("curves", (node) => Views.comparisonCurves(node, facts));
    box("scatter", (node) => Views.comparisonScatter(node, facts));
    box("distribution", (node) => Views.distribution(node, facts));
  }
  FT.sortable(document);
})();
