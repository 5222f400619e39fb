"use strict";
// Sorting and finding slices, a cursor on pictures by pointer or arrow keys. Everything reads without it.
const compared = (x, y, sign) => typeof x === "string"
  ? sign * x.localeCompare(y, undefined, { numeric: true })
  : Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : sign * (x - y);
const rising = (head, words) => words ? head.getAttribute("aria-sort") !== "ascending" : head.getAttribute("aria-sort") === "descending";
const enliven = (root) => {
  for (const table of root.querySelectorAll("table.slices")) {
    const body = table.tBodies[0], tools = table.previousElementSibling, select = tools.querySelector("select"), groups = [];
    for (const row of body.rows) row.classList.contains("group") ? groups.push([row]) : groups.at(-1).push(row);
    const sort = (key, up) => {
      for (const [head, ...rest] of groups) {
        const rows = rest.filter((row) => row.dataset.few), more = rest.filter((row) => !row.dataset.few);
        const of = (row) => key === "name" ? row.dataset.name : Number(row.dataset[key]);
        rows.sort((a, b) => a.dataset.few - b.dataset.few || compared(of(a), of(b), up ? 1 : -1));
        body.append(head, ...rows, ...more);
      }
      select.value = key;
      for (const button of table.querySelectorAll("thead button")) {
        const head = button.closest("th");
        if (button.dataset.key === key) head.setAttribute("aria-sort", up ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      }
    };
    for (const button of table.querySelectorAll("thead button")) button.addEventListener("click", () =>
      sort(button.dataset.key, rising(button.closest("th"), button.dataset.key === "name")));
    select.addEventListener("change", () => sort(select.value, select.value === "name"));
    const find = tools.querySelector("input[type=search]"), few = tools.querySelector("input[type=checkbox]");
    const filter = () => {
      for (const row of body.rows) if (row.dataset.few)
        row.hidden = !row.dataset.name.toLowerCase().includes(find.value.trim().toLowerCase()) || (few.checked && row.dataset.few === "1");
    };
    find.addEventListener("input", filter);
    few.addEventListener("change", filter);
  }
  for (const table of root.querySelectorAll("table.grid")) {
    for (const button of table.querySelectorAll("thead button")) button.addEventListener("click", () => {
      const body = table.tBodies[0], column = Number(button.dataset.column), head = button.closest("th");
      const up = rising(head, body.rows[0]?.cells[column].dataset.sort === undefined);
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const of = (row) => {
        const cell = row.cells[column];
        return cell.dataset.sort === undefined ? cell.textContent : cell.dataset.sort === "" ? NaN : Number(cell.dataset.sort);
      };
      body.append(...[...body.rows].sort((a, b) => compared(of(a), of(b), up ? 1 : -1)));
    });
  }
  for (const chart of root.querySelectorAll("svg[data-pts]")) {
    const points = JSON.parse(chart.dataset.pts), line = chart.querySelector(".cursor");
    const out = chart.closest("figure").querySelector("output"), rest = out.textContent;
    let at = -1;
    const show = (i) => {
      at = Math.max(0, Math.min(points.length - 1, i));
      line.setAttribute("x1", points[at][0]);
      line.setAttribute("x2", points[at][0]);
      line.style.visibility = "visible";
      out.textContent = points[at][1];
    };
    const hide = () => { at = -1; line.style.visibility = "hidden"; out.textContent = rest; };
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
      show(points.reduce((best, p, i) => Math.abs(p[0] - x) < Math.abs(points[best][0] - x) ? i : best, 0));
    });
    chart.addEventListener("pointerleave", hide);
    chart.addEventListener("blur", hide);
    chart.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) { event.preventDefault(); show(at < 0 ? (step > 0 ? 0 : points.length - 1) : at + step); }
    });
  }
};
enliven(document);
document.addEventListener("swapped", (event) => enliven(event.target)); // a dashboard puts in new sections
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
