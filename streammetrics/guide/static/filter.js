// Above the table of all metrics: a field for words, and a list of tasks.
const place = document.querySelector(".metric-filter");
const table = document.querySelector("table");
if (place && table) {
  const rows = [...table.tBodies[0].rows];
  const tasks = [...new Set(rows.map((row) => row.cells[1].textContent.trim()))];
  const words = Object.assign(document.createElement("input"), {
    type: "search",
    placeholder: "Filter metrics",
    ariaLabel: "Filter metrics by a word",
  });
  const choice = document.createElement("select");
  choice.ariaLabel = "Task";
  choice.append(new Option("all tasks", ""), ...tasks.map((task) => new Option(task, task)));
  const count = Object.assign(document.createElement("output"), { ariaLive: "polite" });
  const filter = () => {
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const task = row.cells[1].textContent.trim();
      row.hidden = !text.includes(words.value.trim().toLowerCase()) || (choice.value && task !== choice.value);
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} metrics`;
  };
  words.addEventListener("input", filter);
  choice.addEventListener("change", filter);
  table.classList.add("metric-table");
  place.append(words, choice, count);
  filter();
}
