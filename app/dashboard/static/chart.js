// Draws the best-so-far chart with Plotly (SVG traces only) in the page's own colours.
(function () {
  "use strict";
  const place = document.getElementById("chart");
  const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross", "star"];
  if (!place || typeof Plotly === "undefined") return;

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function points(data) {
    return Object.entries(data.templates).map(([name, group], index) => ({
      type: "scatter", mode: "markers", name: name, x: group.number, y: group.time,
      text: group.verdict.map((verdict) => verdict + ", " + data.kind),
      hovertemplate: "trial %{x}: %{y:.3~f} µs<br>" + name + ", %{text}<extra></extra>",
      marker: { symbol: SYMBOLS[index % SYMBOLS.length], size: group.number.length > 300 ? 5 : 7, color: colour("series-" + (index % 4 + 1)), opacity: 0.8,
                line: { width: 1, color: colour("card") } },
    }));
  }

  function bestLine(data) {
    const steps = data.best.concat(data.best.length ? [[data.last_number, data.best[data.best.length - 1][1]]] : []);
    return { type: "scatter", mode: "lines", name: data.kind === "measured" ? "best so far" : "lowest " + (data.kind || "") + " so far", x: steps.map((step) => step[0]), y: steps.map((step) => step[1]),
             line: { shape: "hv", width: 2, color: colour("good") }, hoverinfo: "skip" };
  }

  // Trials without a time form a row at the foot of the chart.
  function untimed(data) {
    return { type: "scatter", mode: "markers", name: "no time", yaxis: "y2",
             x: data.untimed.map((trial) => trial[0]), y: data.untimed.map(() => 0), text: data.untimed.map((trial) => trial[1]),
             hovertemplate: "trial %{x}: %{text}<extra></extra>",
             marker: { symbol: "x-thin", size: 6, line: { width: 1.5, color: colour("bad") } } };
  }

  function baseline(data) {
    if (!data.baseline) return { shapes: [], annotations: [] };
    const across = { xref: "paper", x0: 0, x1: 1, yref: "y" };
    const shapes = [{ type: "line", ...across, y0: data.baseline, y1: data.baseline,
                      line: { dash: "dash", width: 1.5, color: colour("ink") } }];
    const label = { xref: "paper", x: 1, xanchor: "right", yref: "y", yanchor: "bottom", showarrow: false,
                    font: { size: 11, color: colour("soft") }, bgcolor: colour("card"), borderpad: 1 };
    const annotations = [{ ...label, y: Math.log10(data.baseline), text: "baseline" }];
    if (data.band > 1) {
      shapes.push({ type: "rect", ...across, y0: data.baseline / data.band, y1: data.baseline * data.band, layer: "below",
                    line: { width: 0 }, fillcolor: colour("band") });
      // The label of a narrow band would cover the baseline's, and in a narrow chart so would one at the same side.
      const side = place.clientWidth > 500 ? {} : { x: 0, xanchor: "left" };
      if (data.band > 1.1) annotations.push({ ...label, ...side, y: Math.log10(data.baseline * data.band), yanchor: "top",
                         text: (place.clientWidth > 500 ? "not told apart from the baseline" : "not told apart") + " (factor " + data.band + ")" });
    }
    return { shapes: shapes, annotations: annotations };
  }

  // Round values, so that a logarithmic axis reads like a ruler: 1, 2, 5, and more digits in a narrow range.
  function ticks(low, high) {
    const within = (digits) => {
      const values = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
        for (const digit of digits) values.push(Number((digit * 10 ** power).toPrecision(3)));
      }
      return values.filter((value) => value >= low && value <= high);
    };
    const coarse = within([1, 2, 5]);
    return coarse.length > 1 ? coarse : within([1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]);
  }

  function layout(data) {
    const times = Object.values(data.templates).flatMap((group) => group.time);
    const all = times.concat(data.baseline ? [data.baseline] : []);
    const low = Math.min(...all) / 1.25, high = Math.max(...all) * 1.25;
    const axis = { gridcolor: colour("line"), zeroline: false, linecolor: colour("line"), tickcolor: colour("line"), fixedrange: true };
    return {
      margin: { l: 58, r: 12, t: 8, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") }, hovermode: "closest",
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, dragmode: false,
      xaxis: { ...axis, title: { text: "trial", standoff: 6 }, range: [-0.6, Math.max(data.last_number, 4) + 0.6], tickformat: "d", nticks: 8,
               anchor: "free", position: 0 },
      yaxis: { ...axis, title: { text: (data.kind || "") + " time, µs", standoff: 8 }, type: "log", domain: [0.09, 1],
               range: [Math.log10(low), Math.log10(high)], tickvals: ticks(low, high), tickformat: "~g" },
      yaxis2: { domain: [0, 0.06], range: [-1, 1], visible: false, fixedrange: true },
      ...baseline(data),
    };
  }

  function draw() {
    const data = JSON.parse(document.getElementById("chart-data").textContent);
    const empty = Object.keys(data.templates).length === 0;
    place.hidden = empty;
    if (empty) return;
    const traces = [...points(data), bestLine(data)].concat(data.untimed.length ? [untimed(data)] : []);
    Plotly.react(place, traces, layout(data), { displayModeBar: false, responsive: true });
    if (place.dataset.ready) return;
    place.dataset.ready = "yes";
    place.on("plotly_click", (event) => { location.href = data.url + event.points[0].x; });
  }

  draw();
  document.addEventListener("greenfast:live", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
