/* A search box over the tables of machines of docs/predict/expected.md. It shows the rows that contain every word, in
   the row or in the heading above its table. The page has `<div id="table-search">` where the box goes. */
const place = document.getElementById("table-search");
if (place) {
  place.innerHTML = '<input type="search" placeholder="machine, GPU, network or collective: h100 efa all_gather"> <output></output>';
  const [input, output] = place.children;
  const sections = [];
  let heading;
  for (const element of document.querySelectorAll("article h2, article table")) {
    if (element.tagName === "H2") heading = element;
    else if (element.rows[0].cells[1].textContent === "collective") sections.push({ heading, table: element });
  }
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let total = 0;
    for (const { heading, table } of sections) {
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = [heading, row.cells[0], row.cells[1]].map((one) => one.textContent).join(" ").toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      heading.hidden = table.hidden = shown === 0;
      total += shown;
    }
    output.textContent = `${total} rows`;
  };
  input.addEventListener("input", show);
  show();
}
