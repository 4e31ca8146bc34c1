// What is wrong with the page of a report, as lines of text; evaluated in the page by browser.py.
// `scripts`: whether its scripts have run.
async (scripts) => {
  const wrong = [];
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const figures = JSON.parse(document.getElementById("figures").textContent);
  figures.channels.forEach(({ name }, number) => {
    const head = document.querySelector(`#channel-${number} th`);
    const isPlain = /^[ -~]*$/.test(name) && !name.includes("\\");
    if (!head?.textContent || (isPlain && head.querySelector("bdi").textContent !== name)) {
      wrong.push(`no row for channel ${name}`);
    }
  });
  const hasFewerLanes = figures.thinned.some(({ what }) => what === "lanes of the time line");
  if (all(".lane").length !== figures.channels.length && !hasFewerLanes)
    wrong.push("lanes are missing");
  const verdict = document.querySelector("[data-verdict]")?.dataset.verdict;
  if (!["whole", "damaged"].includes(verdict)) wrong.push(`the verdict is ${verdict}`);
  if ((verdict === "damaged") !== !!document.getElementById("damage"))
    wrong.push("damage and verdict differ");

  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) {
    const edge = document.documentElement.clientWidth + 1;
    const who = all("main *").filter(
      (e) => !e.closest(".scroll") && e.getBoundingClientRect().right > edge,
    );
    wrong.push(
      `${wide} px wider than the window: ${who.slice(0, 3).map((e) => e.outerHTML.slice(0, 80))}`,
    );
  }
  const table = document.querySelector("#channels .scroll");
  if (table && innerWidth >= 1280 && table.scrollWidth > table.clientWidth)
    wrong.push(`the table of channels is ${table.scrollWidth - table.clientWidth} px too wide`);
  const marks = "path:not(.mesh), circle:not(.mesh):not(.now), rect:not(.ground)";
  for (const svg of all("svg[role=img]")) {
    const drawn = all(marks, svg).some((mark) => mark.tagName !== "path" || mark.getAttribute("d"));
    const lane = svg.dataset.lane;
    const isEmpty =
      lane !== undefined && !figures.channels[lane].timeline.some((count) => count > 0);
    if (!drawn && !isEmpty) wrong.push(`a chart without marks: ${svg.getAttribute("aria-label")}`);
    if (!svg.getAttribute("aria-label"))
      wrong.push(`a chart without a label: ${svg.outerHTML.slice(0, 80)}`);
    if (/NaN|Infinity|undefined/.test(svg.outerHTML))
      wrong.push(`no numbers in ${svg.outerHTML.slice(0, 200)}`);
  }
  for (const link of all("a[href^='#']")) {
    if (!document.getElementById(link.getAttribute("href").slice(1)))
      wrong.push(`nothing at ${link.href}`);
  }
  const ids = all("[id]").map((element) => element.id);
  if (new Set(ids).size !== ids.length) wrong.push("an id twice");
  for (const picture of all("img")) {
    try {
      await picture.decode();
    } catch {
      wrong.push(`a broken picture: ${picture.alt}`);
    }
    if (!picture.alt) wrong.push("a picture without text");
  }
  const levels = all("h1, h2, h3").map((heading) => Number(heading.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) wrong.push("not one h1");
  for (const table of all("table")) {
    if (!table.caption || all("thead th:not([scope])", table).length)
      wrong.push("a table without caption or scope");
  }
  if (!scripts) {
    if (all("button").some((button) => button.checkVisibility()))
      wrong.push("a button that does nothing");
    return wrong;
  }

  for (const details of all("details")) details.open = true;
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const plots = all("figure.plot");
  for (let n = 0; n < 100 && plots.some((plot) => !plot.querySelector("canvas")); n += 1)
    await wait(50);
  for (const plot of plots) {
    const canvas = plot.querySelector("canvas");
    const { data } = canvas?.getContext("2d").getImageData(0, 0, canvas.width, canvas.height) ?? {
      data: [],
    };
    let coloured = 0;
    for (let i = 0; i < data.length; i += 4) {
      // Axes and grid are shades of grey.
      const [r, g, b] = [data[i], data[i + 1], data[i + 2]];
      if (data[i + 3] > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 24) coloured += 1;
    }
    if (coloured < 10)
      wrong.push(`a plot without marks: ${plot.querySelector("figcaption").textContent}`);
  }

  if (figures.channels.length > 0) {
    const heads = all("#channels th[data-sort] button");
    if (heads.length < 7) wrong.push("the table of channels cannot be sorted");
    heads[1]?.click();
    const counts = all("#channels tbody tr").map((row) =>
      Number(row.children[1]?.dataset.value ?? 0),
    );
    const sorted = [...counts].sort((a, b) => b - a);
    if (String(counts) !== String(sorted)) wrong.push(`sorting by events gives ${counts}`);
    if (heads[1]?.closest("th").getAttribute("aria-sort") !== "descending")
      wrong.push("aria-sort is not set");
  }

  const lane = document.querySelector("svg[data-lane]");
  const view = () => lane?.getAttribute("viewBox").split(" ").map(Number)[2];
  const whole = view();
  const zoom = document.querySelector("[data-zoom=in]");
  zoom?.focus();
  zoom?.click();
  const changes = (before) => !(view() < before);
  if (lane && figures.end > figures.start && changes(whole)) wrong.push("zooming in does nothing");
  const key = (name) =>
    zoom?.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  key("ArrowRight");
  key("Escape");
  if (lane && Math.abs(view() - whole) > whole * 1e-3)
    wrong.push(`Escape shows ${view()} of ${whole}`);
  return wrong;
};
