"use strict";
/* Tables that a click on a header sorts. */
(() => {
  const { el } = FT;

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

  Object.assign(FT, { sortable });
})();
