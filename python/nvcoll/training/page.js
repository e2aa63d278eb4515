"use strict";
// Draws every chart at the width of its box, in the colours of the page; again when either changes.
const specs = JSON.parse(document.getElementById("specs").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function config() {
  const [ink, faint, grid, paper] = ["--ink", "--faint", "--grid", "--paper"].map(colour);
  const axis = { labelColor: ink, titleColor: ink, domainColor: faint, tickColor: faint, gridColor: grid };
  Object.assign(axis, { labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelOverlap: true, labelSeparation: 6 });
  return {
    background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
    axis, axisX: { tickCount: 5 }, axisY: { grid: false }, text: { color: ink }, rule: { color: ink },
    bar: { stroke: paper, strokeWidth: 1 },
  };
}

function sized(spec, width) {
  const padding = { left: 2, right: 18, top: 5, bottom: 5 };
  if (!spec.vconcat) return { ...spec, padding, width, autosize: { type: "fit-x", contains: "padding" } };
  return { ...spec, vconcat: spec.vconcat.map((view) => ({ ...view, width: width - 80 })) };
}

function draw() {
  for (const box of document.querySelectorAll("[data-chart]")) {
    const options = { actions: false, config: config(), tooltip: { theme: dark.matches ? "dark" : "light" } };
    vegaEmbed(box, sized(specs[box.dataset.chart], box.clientWidth), options).catch((error) => {
      box.textContent = `This chart cannot be drawn: ${error.message}`;
      console.error(error);
    });
  }
}

// A click on a head sorts the rows of its table, a second click the other way.
for (const table of document.querySelectorAll("table.sortable")) {
  table.tHead.addEventListener("click", (event) => {
    const head = event.target.closest("th"), body = table.tBodies[0];
    const way = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const one of head.parentNode.cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", way);
    const value = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
    const order = new Intl.Collator("en", { numeric: true }).compare;
    const compare = (a, b) => (isNaN(a - b) ? order(a, b) : a - b);
    const rows = [...body.rows].sort((a, b) => compare(value(a), value(b)) * (way === "ascending" ? 1 : -1));
    body.append(...rows);
  });
}

// Wide machines scroll: at less than three quarters of its size, a picture cannot be read.
for (const picture of document.querySelectorAll(".machine svg")) {
  picture.style.minWidth = `${0.75 * picture.viewBox.baseVal.width}px`;
}

let width = innerWidth, timer;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(timer);
  timer = setTimeout(draw, 150);
});
dark.addEventListener("change", draw);
draw();
