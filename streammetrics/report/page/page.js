"use strict";
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
for (const button of document.querySelectorAll(".slices thead button")) {
  button.addEventListener("click", () => {
    const table = button.closest("table"), body = table.tBodies[0], column = Number(button.dataset.column);
    const order = button.dataset.order === "down" ? "up" : "down";
    for (const other of table.querySelectorAll("thead button")) delete other.dataset.order;
    button.dataset.order = order;
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.sort === undefined ? cell.textContent : cell.dataset.sort === "" ? NaN : Number(cell.dataset.sort);
    };
    const sign = order === "down" ? -1 : 1;
    const rows = [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (typeof x === "string") return -sign * x.localeCompare(y, undefined, { numeric: true });
      return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : sign * (x - y);
    });
    body.append(...rows);
  });
}
