// Draws the Pareto front with Plotly (SVG traces only) in the page's own colours.
(function () {
  "use strict";
  const place = document.getElementById("pareto");
  if (!place || typeof Plotly === "undefined") return;
  const data = JSON.parse(document.getElementById("pareto-data").textContent);

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function trace(name, trials, more) {
    return {
      type: "scatter", name: name, x: trials.map((trial) => trial[1]), y: trials.map((trial) => trial[2]),
      customdata: trials.map((trial) => trial[0]), text: trials.map((trial) => trial[3]),
      hovertemplate: "trial %{customdata}, %{text}<br>" + data.axes[0] + ": %{x:.4~g}<br>" + data.axes[1] + ": %{y:.4~g}<extra></extra>", ...more,
    };
  }

  // Times that lie far apart get a logarithmic axis; in a narrow range that would show no tick.
  function scale(place) {
    const values = data.front.concat(data.others).map((trial) => trial[place + 1]);
    const low = Math.min(...values), high = Math.max(...values);
    return data.logarithmic[place] && low > 0 && high > 8 * low ? { type: "log", dtick: Math.log10(2), tickformat: ".3~g" } : { nticks: 8, tickformat: ".3~g" };
  }

  function draw() {
    const axis = { gridcolor: colour("line"), zeroline: false, linecolor: colour("line"), tickcolor: colour("line"), fixedrange: true };
    const traces = [
      trace("other correct trials", data.others, { mode: "markers", marker: { size: 6, color: colour("series-1"), opacity: 0.5 } }),
      trace("Pareto front", data.front, { mode: "markers", marker: { size: 9, symbol: "diamond", color: colour("good") } }),
    ];
    Plotly.react(place, traces, {
      margin: { l: 66, r: 12, t: 8, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") }, hovermode: "closest", dragmode: false,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      xaxis: { ...axis, title: { text: data.axes[0], standoff: 6 }, ...scale(0) },
      yaxis: { ...axis, title: { text: data.axes[1], standoff: 8 }, ...scale(1) },
    }, { displayModeBar: false, responsive: true });
    if (place.dataset.ready) return;
    place.dataset.ready = "yes";
    place.on("plotly_click", (event) => { location.href = data.url + event.points[0].customdata; });
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
