"use strict";

// Draws the page of the data that stands in it. All text goes in as text; nothing here makes elements of text.
(() => {
  const root = document.documentElement;
  const failures = [];

  // Whoever tests the page reads `data-state` and `data-failures` of its root.
  const failed = (what) => {
    failures.push(what);
    root.dataset.state = "failed";
    root.dataset.failures = failures.join("\n");
  };
  addEventListener("error", (event) => failed(event.message));
  document.addEventListener("securitypolicyviolation", (event) => {
    failed(`forbidden by ${event.effectiveDirective}: ${event.blockedURI}`);
  });

  const data = JSON.parse(document.getElementById("data").textContent);

  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };

  const cell = (tag, text, isNumber) => make(tag, isNumber ? { class: "number" } : {}, text);

  const row = (tag, cells, sheet) =>
    make("tr", {}, ...cells.map((one, at) => {
      const made = cell(tag, one.text, at >= sheet.numbers);
      if (one.exact !== undefined) {
        made.dataset.exact = one.exact ?? "";
      }
      return made;
    }));

  const table = (part) => {
    const { sheet } = part;
    const head = sheet.columns.map((column) => ({ text: column.title }));
    const made = make("table", {});
    if (!part.folded) {
      made.append(make("caption", {}, part.caption));
    }
    made.append(make("thead", {}, row("th", head, sheet)));
    made.append(make("tbody", {}, ...sheet.rows.map((cells) => row("td", cells, sheet))));
    if (sheet.total) {
      made.append(make("tfoot", {}, row("td", sheet.total, sheet)));
    }
    const wide = make("div", { class: "wide" }, made);
    return part.folded ? make("details", {}, make("summary", {}, part.caption), wide) : wide;
  };

  const BAR_PIXELS = 34;
  const AROUND_BARS_PIXELS = 110;
  const BARS_PIXELS_MIN = 200;
  const CHART_PIXELS = 300;
  // Names beside bars leave them most of the width; the table has the whole names.
  const PIXELS_PER_LETTER = 30;

  const short = (name, pixels) => {
    const most = Math.max(10, Math.floor(pixels / PIXELS_PER_LETTER));
    return name.length > most ? `${name.slice(0, most - 1)}…` : name;
  };

  const figures = [];

  const figure = (chart) => {
    const canvas = make("canvas", { role: "img", "aria-label": `${chart.title}, ${chart.unit}` });
    const box = make("div", { class: "canvas" }, canvas);
    const bars = Math.max(BARS_PIXELS_MIN, chart.labels.length * BAR_PIXELS + AROUND_BARS_PIXELS);
    box.style.height = `${chart.form === "named_bars" ? bars : CHART_PIXELS}px`;
    figures.push({ chart, canvas, drawn: null });
    return make("figure", {}, make("figcaption", {}, chart.title), box);
  };

  const options = (chart, colour) => {
    const isNamed = chart.form === "named_bars";
    const isStacked = isNamed || chart.form === "stacked";
    const axis = (title) => ({
      stacked: isStacked,
      title: { display: true, text: title, color: colour("quiet") },
      ticks: { color: colour("quiet") },
      grid: { color: colour("line") },
      border: { color: colour("line") },
    });
    const values = { ...axis(chart.unit), beginAtZero: true };
    if (chart.per === 1) {
      values.ticks.precision = 0;
    }
    const names = axis(chart.category);
    names.grid = { display: false };
    names.ticks.callback = function (at) {
      return short(chart.labels[at], this.chart.width);
    };
    if (isNamed) {
      names.ticks.autoSkip = false;
    }
    return {
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      indexAxis: isNamed ? "y" : "x",
      interaction: { mode: "index", axis: isNamed ? "y" : "x", intersect: false },
      scales: isNamed ? { x: values, y: names } : { x: names, y: values },
      plugins: {
        legend: {
          display: chart.series.length > 1,
          position: "bottom",
          labels: { color: colour("ink"), boxWidth: 14 },
        },
        tooltip: {
          callbacks: { label: (item) => `${item.dataset.label}: ${item.formattedValue} ${chart.unit}` },
        },
      },
    };
  };

  const draw = () => {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    for (const one of figures) {
      const { chart } = one;
      one.drawn?.destroy();
      one.drawn = new Chart(one.canvas, {
        type: chart.form === "lines" ? "line" : "bar",
        data: {
          labels: chart.labels,
          datasets: chart.series.map((series) => ({
            label: series.name,
            data: series.values.map((value) => (value === null ? null : value / chart.per)),
            backgroundColor: colour(series.colour),
            borderColor: colour(series.colour),
            borderWidth: chart.form === "lines" ? 2 : 0,
            maxBarThickness: 40,
            pointRadius: 2,
          })),
        },
        options: options(chart, colour),
      });
    }
  };

  document.title = data.title;
  const page = document.getElementById("page");
  page.replaceChildren(
    make("h1", {}, data.title),
    make("dl", {}, ...data.facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    ...data.sections.map((section) =>
      make(
        "section",
        { id: section.id },
        make("h2", {}, section.title),
        make("p", {}, section.text),
        ...section.parts.flatMap((part) => [...(part.chart ? [figure(part.chart)] : []), table(part)]),
      )),
  );
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  if (failures.length === 0) {
    root.dataset.state = "drawn";
  }
})();
