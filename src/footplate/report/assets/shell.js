/* What every page does: build its parts, draw their figures, follow new data, width, colours and paper.

The script before this one has BUILDERS: a function for each part, DRAWN: the parts with figures, and render(). */

let data = JSON.parse(document.getElementById("data").textContent);
const root = document.getElementById("report");
const places = {};  // the element of each part of the page

let charts = [];  // what the figures have drawn

/** Build one part again, in its place. */
function refresh(name) {
  const part = BUILDERS[name](data);
  places[name].replaceChildren(...(part ? [part] : []));
}

function redrawCharts() {
  charts.forEach((chart) => chart.destroy());
  charts = [];
  DRAWN.filter((name) => places[name]).forEach((name) => {
    refresh(name);
    for (const figure of places[name].querySelectorAll("figure")) {
      const chart = figure.draw && figure.draw();
      if (chart) charts.push(chart);
    }
  });
}

/** Build these parts, in this order the first time. */
function renderParts(names) {
  for (const name of names) {
    if (!places[name]) root.append(places[name] = make("div", { class: `part part-${name}` }));
    const isInUse = places[name].contains(document.activeElement);  // a rebuilt slider would end the user's drag
    if (!isInUse && !DRAWN.includes(name)) refresh(name);
  }
  redrawCharts();
}

/** Rebuild something; whoever stands on one of its controls still does so afterwards. */
function keepingFocus(rebuild) {
  const key = document.activeElement && document.activeElement.dataset.focus;
  if (key !== undefined) document.activeElement.blur();  // a part that is in use would be left as it is
  rebuild();
  const found = key !== undefined && [...document.querySelectorAll("[data-focus]")].find((element) => element.dataset.focus === key);
  if (found) found.focus({ preventScroll: true });
}

/** A served page asks for what is new. */
async function poll() {
  let tag = null;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 3000));
    if (document.hidden) continue;
    try {
      const answer = await fetch("data.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (!answer.ok) continue;
      tag = answer.headers.get("ETag");
      data = await answer.json();
      const top = window.scrollY;
      render();
      window.scrollTo(0, top);
    } catch (error) { /* the server has stopped: keep showing the last data */ }
  }
}

root.replaceChildren();
render();
performance.mark("drawn");
if (data.live) poll();

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) { width = window.innerWidth; redrawCharts(); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
// print in the light colors, at the width of the paper
window.addEventListener("beforeprint", () => { document.documentElement.classList.add("paper"); render(); });
window.addEventListener("afterprint", () => { document.documentElement.classList.remove("paper"); render(); });
