"use strict";
// What a page can do with scripts: sort tables, zoom the time line and all plots together, show
// what is under the pointer. Without it, everything is there to read.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const figures = JSON.parse(document.getElementById("figures").textContent);
  document.documentElement.classList.add("scripted");
  for (const element of all(".script")) element.hidden = false;

  // Tables.
  for (const table of all("table[data-sortable]")) {
    for (const head of all("th[data-sort]", table)) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, head));
    }
  }

  function sort(table, head) {
    const isNumber = head.dataset.sort === "number";
    const before = head.getAttribute("aria-sort");
    const order = before
      ? before === "ascending"
        ? "descending"
        : "ascending"
      : isNumber
        ? "descending"
        : "ascending";
    for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const column = [...head.parentNode.children].indexOf(head);
    const value = (row) => row.children[column].dataset.value ?? "";
    const compare = isNumber
      ? (a, b) => Number(value(a)) - Number(value(b))
      : (a, b) => value(a).localeCompare(value(b), "en", { numeric: true });
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => sign * compare(a, b)));
  }

  // Places that are folded open when a link leads to them, and everything does for printing.
  const unfold = (element) => {
    for (
      let fold = element?.closest("details");
      fold;
      fold = fold.parentElement.closest("details")
    ) {
      fold.open = true;
    }
  };
  const target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
  addEventListener("hashchange", () => unfold(target()));
  unfold(target());
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const details of folded) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
  });

  // Colours of tracks.
  for (const button of all("[data-colour]")) {
    button.addEventListener("click", () => {
      button.closest("section").dataset.colour = button.dataset.colour;
      for (const other of all("[data-colour]", button.parentNode)) {
        other.setAttribute("aria-pressed", String(other === button));
      }
    });
  }

  document.getElementById("save-figures")?.addEventListener("click", () => {
    const text = document.getElementById("figures").textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "figures.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });

  // Time: seconds after the first event.
  const lanes = document.getElementById("lanes");
  if (!lanes) return;
  const time = Object.fromEntries(
    ["start", "bucket", "from", "to"].map((key) => [key, Number(lanes.dataset[key])]),
  );
  const least = Math.max(time.bucket * 3, (time.to - time.from) / 1e6);
  let [from, to] = [time.from, time.to];
  const plots = [];
  const drawings = all("svg[data-lane]", lanes);
  const ticks = lanes.querySelector(".ticks");

  function timeText(seconds, step) {
    const sign = seconds < 0 ? "−" : "";
    const size = Math.abs(seconds);
    const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
    if (size < 60) return `${sign}${size.toFixed(places)} s`;
    const two = (n) => String(n).padStart(2, "0");
    const rest = (size % 60).toFixed(places).padStart(places ? places + 3 : 2, "0");
    const minutes = Math.floor(size / 60);
    return minutes < 60
      ? `${sign}${two(minutes)}:${rest}`
      : `${sign}${Math.floor(minutes / 60)}:${two(minutes % 60)}:${rest}`;
  }

  function roundStep(span, most) {
    const power = 10 ** Math.floor(Math.log10(span / most));
    return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= span / most) ?? span;
  }

  function showTicks() {
    const step = roundStep(to - from, Math.max(2, Math.min(8, ticks.clientWidth / 110)));
    ticks.replaceChildren();
    for (let n = Math.ceil(from / step); n * step <= to && ticks.childElementCount < 20; n += 1) {
      const tick = document.createElement("span");
      tick.style.left = `${((n * step - from) / (to - from)) * 100}%`;
      tick.textContent = timeText(n * step, step);
      ticks.append(tick);
    }
  }

  function zoom(newFrom, newTo) {
    const width = Math.min(Math.max(newTo - newFrom, least), time.to - time.from);
    const middle = (newFrom + newTo) / 2;
    from = Math.min(Math.max(middle - width / 2, time.from), time.to - width);
    to = from + width;
    const left = (from - time.start) / time.bucket;
    for (const svg of drawings) svg.setAttribute("viewBox", `${left} 0 ${width / time.bucket} 10`);
    showTicks();
    for (const plot of plots) plot.setScale("x", { min: from, max: to });
  }

  const moves = {
    in: () => zoom(from + (to - from) / 4, to - (to - from) / 4),
    out: () => zoom(from - (to - from) / 2, to + (to - from) / 2),
    earlier: () => zoom(from - (to - from) / 4, to - (to - from) / 4),
    later: () => zoom(from + (to - from) / 4, to + (to - from) / 4),
    all: () => zoom(time.from, time.to),
  };
  const keys = {
    ArrowUp: "in",
    "+": "in",
    ArrowDown: "out",
    "-": "out",
    ArrowLeft: "earlier",
    ArrowRight: "later",
    Escape: "all",
  };
  for (const toolbar of all(".zoom")) {
    toolbar.addEventListener("click", (event) => moves[event.target.dataset.zoom]?.());
    toolbar.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      moves[keys[event.key]]();
    });
  }
  for (const link of all("a[data-time]")) {
    link.addEventListener("click", () => {
      const [at, around] = [Number(link.dataset.time), (time.to - time.from) / 20];
      zoom(at - around, at + around);
    });
  }

  // The pointer over lanes: a line at its time, and dragging zooms.
  const line = lanes.appendChild(document.createElement("div"));
  const chosen = lanes.appendChild(document.createElement("div"));
  [line.className, chosen.className, line.hidden, chosen.hidden] = ["cursor", "chosen", true, true];
  const readouts = all(".readout");
  const ways = all("svg .now");
  let drag = null;

  const timeAt = (event, box) => from + ((event.clientX - box.left) / box.width) * (to - from);

  function pointAt(seconds, text) {
    const isShown = seconds !== null && seconds >= from && seconds <= to;
    line.hidden = !isShown;
    const box = ticks.getBoundingClientRect();
    if (isShown) {
      const left = box.left - lanes.getBoundingClientRect().left;
      line.style.left = `${left + ((seconds - from) / (to - from)) * box.width}px`;
    }
    for (const readout of readouts) readout.textContent = isShown ? text : "";
    for (const dot of ways) placeDot(dot, isShown ? seconds : null);
  }

  function placeDot(dot, seconds) {
    const { points, frame } = wayOf(dot);
    const after =
      seconds === null ? -1 : points.findIndex((p) => (p.time - figures.start) / 1e9 >= seconds);
    dot.setAttribute("visibility", after < 0 ? "hidden" : "visible");
    if (after < 0) return;
    dot.setAttribute("cx", (points[after].x - frame[0]) * frame[2]);
    dot.setAttribute("cy", (frame[1] - points[after].y) * frame[2]);
  }

  function wayOf(dot) {
    const [list, number] = dot.dataset.way.split("-");
    return {
      points: figures[list][number].points,
      frame: dot.dataset.frame.split(" ").map(Number),
    };
  }

  for (const svg of drawings) {
    const channel = figures.channels[svg.dataset.lane];
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const at = timeAt(event, box);
      const bucket = Math.floor((at - time.start) / time.bucket);
      const count = channel.timeline[bucket] ?? 0;
      const step = time.bucket;
      pointAt(at, `${timeText(at, step)} · ${count} events in ${timeText(step, step / 100)}`);
      if (!drag) return;
      const edge = box.left - lanes.getBoundingClientRect().left;
      const [a, b] = [drag.x, event.clientX].sort((x, y) => x - y);
      chosen.hidden = b - a < 5;
      chosen.style.left = `${edge + a - box.left}px`;
      chosen.style.width = `${b - a}px`;
    });
    svg.addEventListener("pointerleave", () => pointAt(null));
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      svg.setPointerCapture(event.pointerId);
      drag = { x: event.clientX, at: timeAt(event, svg.getBoundingClientRect()) };
    });
    svg.addEventListener("pointerup", (event) => {
      const end = timeAt(event, svg.getBoundingClientRect());
      if (drag && Math.abs(event.clientX - drag.x) >= 5)
        zoom(Math.min(drag.at, end), Math.max(drag.at, end));
      [drag, chosen.hidden] = [null, true];
    });
    svg.addEventListener("pointercancel", () => {
      [drag, chosen.hidden] = [null, true];
    });
    svg.addEventListener("dblclick", moves.all);
  }
  new ResizeObserver(showTicks).observe(ticks);

  // Plots: drawn when they have a width, so that folded ones cost nothing.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const resized = new ResizeObserver((entries) => {
    for (const { target: figure, contentRect } of entries) {
      const live = figure.querySelector(".live");
      const width = Math.floor(contentRect.width);
      if (width < 50) continue;
      if (live.plot) live.plot.setSize({ width, height: 170 });
      else draw(live, width);
    }
  });
  for (const figure of all("figure.plot")) resized.observe(figure);

  // Times, least and greatest values; nothing where values are missing for much longer than usual.
  function columns(series) {
    const places = series.flatMap((extent, place) => (extent ? [place] : []));
    const distances = places
      .slice(1)
      .map((place, n) => place - places[n])
      .sort((a, b) => a - b);
    const usual = distances[distances.length >> 1] ?? 1;
    const data = [[], [], []];
    const push = (place, low, high) => {
      data[0].push(time.start + (place + 0.5) * time.bucket);
      data[1].push(low);
      data[2].push(high);
    };
    places.forEach((place, n) => {
      if (n > 0 && place - places[n - 1] > usual * 3) push((place + places[n - 1]) / 2, null, null);
      push(place, ...series[place]);
    });
    return data;
  }

  function draw(live, width) {
    const figure = live.closest("figure");
    const field = figures.channels[figure.dataset.channel].fields[figure.dataset.field];
    const data = columns(field.series);
    const caption = figure.querySelector("small");
    const text = caption.textContent;
    const axis = {
      stroke: () => colour("--muted"),
      grid: { stroke: () => colour("--mesh"), width: 1 },
      ticks: { stroke: () => colour("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
    };
    const line = {
      stroke: () => colour("--accent"),
      width: 1.25,
      points: { show: data[0].length < 40, size: 5 },
    };
    live.plot = new uPlot(
      {
        width,
        height: 170,
        legend: { show: false },
        scales: { x: { time: false, min: from, max: to, auto: false } },
        axes: [
          {
            ...axis,
            space: 80,
            values: (_, splits, _axis, _space, step) => splits.map((s) => timeText(s, step)),
          },
          { ...axis, size: 62 },
        ],
        series: [{}, line, line],
        bands: [{ series: [2, 1], fill: () => colour("--accent-soft") }],
        cursor: { y: false, drag: { x: true, y: false, setScale: false }, sync: { key: "time" } },
        hooks: {
          setSelect: [
            (plot) => {
              const { left, width: size } = plot.select;
              if (size < 5) return;
              zoom(plot.posToVal(left, "x"), plot.posToVal(left + size, "x"));
              plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            },
          ],
          setCursor: [
            ({ cursor: { idx } }) => {
              const isShown = idx !== null && idx !== undefined && data[1][idx] !== null;
              caption.textContent = isShown
                ? `${timeText(data[0][idx], time.bucket)}: ${data[1][idx]} to ${data[2][idx]}`
                : text;
            },
          ],
        },
      },
      data,
      live,
    );
    live.plot.over.addEventListener("dblclick", moves.all);
    plots.push(live.plot);
    figure.classList.add("drawn");
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const plot of plots) plot.redraw();
  });
})();
