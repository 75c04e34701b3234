"use strict";
/* One page, no network. Names come from users: they go into text nodes, or through `esc` into plotly's labels. */
const DATA = JSON.parse(document.getElementById("data").textContent);
const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#b8a500",
  "#8c564b", "#17becf", "#9467bd", "#5c9e2e", "#6b6ecf", "#ad494a", "#7b4173", "#a55194"];
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon", "pentagon", "triangle-down",
  "bowtie", "hourglass"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const KINDS = ["running", "no progress", "suspended", "releasing"];
const HATCH = ["", "x", ".", "/"];
const CONFIG = {responsive: true, displaylogo: false, scrollZoom: false, modeBarButtonsToRemove: ["select2d", "lasso2d"]};
const state = {load: DATA.loads[0], theme: "light"};
const sections = [];

/* ---------- small helpers ---------- */
const esc = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const color = group => COLORS[DATA.groups.indexOf(group) % COLORS.length];
const symbol = group => SYMBOLS[DATA.groups.indexOf(group) % SYMBOLS.length];
const dash = group => DASHES[Math.floor(DATA.groups.indexOf(group) / 8) % DASHES.length];
const at = (table, ...keys) => keys.reduce((found, key) => (found == null ? found : found[key]), table);
const short = value => value == null ? "-" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") :
  Number(value.toPrecision(4)).toString();

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children) node.append(child);
  return node;
}

function choice(label, options, chosen, changed) {
  const select = element("select", {"aria-label": label});
  for (const [value, text] of options) select.append(element("option", {value}, text));
  if (chosen != null) select.value = chosen;
  select.addEventListener("change", () => changed(select.value));
  return [element("label", {}, label + " ", select), select];
}

function layout(more) {
  const axis = {gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true};
  const result = Object.assign({
    paper_bgcolor: css("--back"), plot_bgcolor: css("--back"), hovermode: "closest",
    font: {color: css("--text"), family: "system-ui, DejaVu Sans, sans-serif", size: 12},
    margin: {l: 60, r: 20, t: 30, b: 50}, legend: {orientation: "h", y: -0.18},
    hoverlabel: {bgcolor: css("--panel"), bordercolor: css("--line"), font: {color: css("--text")}},
  }, more);
  for (const name of Object.keys(result)) {
    if (/^[xy]axis\d*$/.test(name)) result[name] = Object.assign({}, axis, result[name]);
  }
  return result;
}

/* A section: title, what it means, controls, figures; drawn when it comes into sight. */
function section(id, title, meaning, build) {
  const node = element("section", {id});
  node.append(element("h2", {}, title), element("p", {class: "note"}, meaning));
  document.getElementById("sections").append(node);
  const entry = {id, node, drawn: false, draw: build(node)};
  sections.push(entry);
}

function figure(node, name, height) {
  const div = element("div", {class: "figure", id: name, role: "img", "aria-label": name});
  div.style.height = height + "px";
  node.append(div);
  return div;
}

function nothing(div, why) {
  Plotly.purge(div);
  div.style.height = "auto";
  div.replaceChildren(element("p", {class: "note"}, "Nothing to show: " + why));
}

function show(div, traces, how, height) {
  if (!traces.length) return nothing(div, "no run here has a value yet.");
  if (!div.querySelector(".plot-container")) div.replaceChildren();
  if (height) div.style.height = height + "px";
  return Plotly.react(div, traces, layout(how), CONFIG);
}

/* ---------- overview ---------- */
section("overview", "Overview", "Each mark is a scheduler: interquartile mean over traces, bars are 95 % bootstrap intervals. " +
  "Up and left is better: more kept work, less GPU time held beyond the fair share while others lack theirs. The dashed line joins those that no other beats in both.",
  node => {
    const div = figure(node, "frontier", 480);
    const scroll = element("div", {class: "scroll"});
    node.append(scroll, element("p", {class: "note"}, DATA.legend));
    return () => { frontier(div); ranking(scroll); };
  });

function frontier(div) {
  const points = DATA.groups.map(group => ({group, x: interval("over_share", group), y: interval("productive_utilization", group)}))
    .filter(point => point.x && point.y);
  const traces = points.map(({group, x, y}) => ({
    type: "scatter", mode: "markers+text", name: esc(group), x: [x[0]], y: [y[0]], text: [esc(group)], textposition: "top center",
    textfont: {size: 11, color: css("--text")}, cliponaxis: false,
    marker: {size: 13, color: color(group), symbol: symbol(group), line: {width: 1, color: css("--text")}},
    error_x: {type: "data", symmetric: false, array: [x[2] - x[0]], arrayminus: [x[0] - x[1]], thickness: 1, width: 3, color: color(group)},
    error_y: {type: "data", symmetric: false, array: [y[2] - y[0]], arrayminus: [y[0] - y[1]], thickness: 1, width: 3, color: color(group)},
    hovertemplate: `<b>${esc(group)}</b><br>over-share %{x:.4f} [${x[1].toFixed(4)}, ${x[2].toFixed(4)}]` +
      `<br>service %{y:.4f} [${y[1].toFixed(4)}, ${y[2].toFixed(4)}]<br>${x[3]} runs<extra></extra>`,
  }));
  const best = points.filter(p => !points.some(q => q.x[0] <= p.x[0] && q.y[0] >= p.y[0] && (q.x[0] < p.x[0] || q.y[0] > p.y[0])))
    .sort((p, q) => p.x[0] - q.x[0]);
  if (best.length > 1) traces.unshift({type: "scatter", mode: "lines", x: best.map(p => p.x[0]), y: best.map(p => p.y[0]), hoverinfo: "skip",
    name: "not beaten in both", line: {dash: "dash", width: 1.5, color: css("--faint")}});
  show(div, traces, {showlegend: false,
    xaxis: {title: {text: "over-share (share of the cluster), less is fairer"}},
    yaxis: {title: {text: "productive service (share of the cluster), more is better"}}});
}

function interval(metric, group, load = state.load) {
  return at(DATA.metrics, metric, "values", load, group);
}

function ranking(scroll) {
  const columns = [["score", "score", 1], ["productive_utilization", "service", 1], ["over_share", "over-share", 1], ["idle_with_demand", "idle", 1],
    ["wait_so_far_mean_s", "mean wait", 3600], ["wait_p95_s", "p95 wait", 3600], ["jct_so_far_mean_s", "mean JCT", 3600],
    ["jct_so_far_weighted_s", "JCT, weighted", 3600], ["wasted_lost_gpu_h", "lost", 1], ["preemptions_per_1000_jobs", "stops / 1000 jobs", 1],
    ["starved_jobs", "starved", 1], ["unfinished_jobs", "unfinished", 1]];
  const rows = [...DATA.groups].sort((a, b) => value("score", b) - value("score", a));
  function value(metric, group) { const found = interval(metric, group); return found ? found[0] : -Infinity; }
  const head = element("tr", {}, element("th", {scope: "col"}, "scheduler"));
  for (const [metric, name, scale] of columns) {
    head.append(element("th", {scope: "col"}, name, element("small", {}, scale > 1 ? "h" : at(DATA.metrics, metric, "unit") || "")));
  }
  const body = element("tbody");
  for (const group of rows) {
    const row = element("tr", {}, element("td", {}, group));
    for (const [metric, , scale] of columns) {
      const found = interval(metric, group);
      const cell = element("td", {}, found ? short(found[0] / scale) : "-");
      const all = DATA.groups.map(g => interval(metric, g)).filter(Boolean).map(v => v[0]);
      const better = at(DATA.metrics, metric, "better");
      if (found && all.length > 1 && found[0] === (better === "higher" ? Math.max(...all) : Math.min(...all))) cell.className = "best";
      if (found) cell.title = `95 %: ${short(found[1] / scale)} to ${short(found[2] / scale)}, ${found[3]} runs`;
      row.append(cell);
    }
    body.append(row);
  }
  scroll.replaceChildren(element("table", {}, element("thead", {}, head), body));
}

/* ---------- metrics ---------- */
section("metrics", "Every metric, with its interval", "Interquartile mean over traces and seeds, 95 % stratified bootstrap. The matrix: probability that the scheduler of the row " +
  "is better than that of the column on the same trace; ties count half.",
  node => {
    const names = Object.keys(DATA.metrics);
    let metric = names.includes("deficit") ? "deficit" : names[0];
    const [label, select] = choice("metric", names.map(name => [name, `${name} (${DATA.metrics[name].unit})`]), metric, name => { metric = name; draw(); });
    node.append(element("div", {class: "controls"}, label));
    const meaning = element("p", {class: "note"});
    node.append(meaning);
    const div = figure(node, "forest", 380), matrix = figure(node, "chances", 460);
    function draw() {
      const entry = DATA.metrics[metric];
      meaning.textContent = entry ? entry.meaning + (entry.better === "none" ? "" : ` ${entry.better[0].toUpperCase()}${entry.better.slice(1)} is better.`) : "";
      const rows = DATA.groups.map(group => [group, interval(metric, group)]).filter(([, found]) => found).sort((a, b) => a[1][0] - b[1][0]);
      if (entry && entry.better === "lower") rows.reverse();
      show(div, rows.map(([group, v]) => ({
        type: "scatter", mode: "markers", name: esc(group), x: [v[0]], y: [esc(group)],
        marker: {size: 11, color: color(group), symbol: symbol(group), line: {width: 1, color: css("--text")}},
        error_x: {type: "data", symmetric: false, array: [v[2] - v[0]], arrayminus: [v[0] - v[1]], thickness: 2, width: 5, color: color(group)},
        hovertemplate: `<b>${esc(group)}</b><br>%{x:.5g} [${short(v[1])}, ${short(v[2])}]<br>mean ${short(v[4])}, ${v[3]} runs<extra></extra>`,
      })), {showlegend: false, xaxis: {title: {text: entry ? `${esc(metric)} (${esc(entry.unit)})` : ""}}, yaxis: {type: "category"}}, 110 + 28 * rows.length);
      const chances = at(DATA.chances, state.load);
      if (!chances || DATA.groups.length < 2) return nothing(matrix, "fewer than two schedulers.");
      const order = [...DATA.groups];
      show(matrix, [{type: "heatmap", z: chances, x: order.map(esc), y: order.map(esc), zmin: 0, zmax: 1, colorscale: [[0, "#d55e00"], [0.5, css("--panel")], [1, "#0072b2"]], xgap: 1, ygap: 1,
        texttemplate: "%{z:.2f}", hovertemplate: "P(%{y} better than %{x}) = %{z:.2f}<extra></extra>", colorbar: {title: {text: "P"}, thickness: 12}}],
        {title: {text: "probability of a better score: row against column", font: {size: 13}}, yaxis: {autorange: "reversed", type: "category"}, xaxis: {type: "category", tickangle: -40}},
        200 + 26 * order.length);
    }
    return draw;
  });

/* ---------- GPU time ---------- */
section("split", "Where the GPU time went", "All GPUs x the window = 1, mean over traces. Productive time is kept work; hang, lost, overhead and the rest are held without it; " +
  "idle with demand is what nobody held although somebody wanted it.",
  node => {
    const div = figure(node, "gpu-time", 420);
    const PARTS = [["kept", "productive", "#0072b2", ""], ["kept_bad", "kept by jobs that ended badly", "#56b4e9", "/"], ["undecided", "undecided at the end", "#9ecae1", "."],
      ["hang", "hang", "#d55e00", "x"], ["lost", "lost", "#cc79a7", "\\"], ["overhead", "overhead", "#e69f00", "-"], ["suspended", "suspended", "#b8a500", "+"],
      ["releasing", "releasing", "#8c564b", "|"], ["surplus", "surplus", "#7f7f7f", "."], ["idle_with_demand", "idle with demand", "#444444", "/"], ["idle", "idle, nobody wants it", "#c8c8c8", ""]];
    return () => {
      const groups = DATA.groups.filter(group => at(DATA.split, state.load, group)).reverse();
      const traces = groups.length ? PARTS.filter(([part]) => groups.some(g => DATA.split[state.load][g][part] > 0.00005)).map(([part, name, fill, hatch]) => ({
        type: "bar", orientation: "h", name, y: groups.map(esc), x: groups.map(g => DATA.split[state.load][g][part]),
        marker: {color: fill, pattern: {shape: hatch, fillmode: "overlay", fgcolor: "#ffffff", fgopacity: 0.7, size: 6}}, hovertemplate: `%{y}<br>${name} %{x:.4f}<extra></extra>`})) : [];
      show(div, traces, {barmode: "stack", xaxis: {title: {text: "share of all GPU time"}, range: [0, 1.02]}, yaxis: {type: "category"}, legend: {orientation: "h", y: -0.25}, bargap: 0.25},
        190 + 30 * groups.length);
    };
  });

/* ---------- tenants ---------- */
section("tenants", "Tenants: share against entitlement over time", "One trace. Filled: GPUs held (mean of each stretch of time, exact). Line: fair share given the demand of all. Dashed: entitlement.",
  node => {
    let group = [...DATA.groups].sort((a, b) => (interval("score", b) || [-Infinity])[0] - (interval("score", a) || [-Infinity])[0])[0];
    const [label] = choice("scheduler", DATA.groups.map(g => [g, g]), group, name => { group = name; draw(); });
    node.append(element("div", {class: "controls"}, label));
    const div = figure(node, "shares", 600);
    function draw() {
      const run = at(DATA.series, state.load, group);
      if (!run || !run.tenants.length || !run.hours.length) return nothing(div, "no run of this scheduler was recorded here.");
      const wide = run.tenants.length < 3 ? run.tenants.length : 3, high = Math.ceil(run.tenants.length / wide);
      const how = {showlegend: false, annotations: [], margin: {l: 45, r: 15, t: 25, b: 40}};
      const traces = [];
      run.tenants.forEach((tenant, k) => {
        const n = k ? k + 1 : "", column = k % wide, line = Math.floor(k / wide);
        const width = 1 / wide, height = 1 / high;
        how["xaxis" + n] = {domain: [column * width + 0.012, (column + 1) * width - 0.012], anchor: "y" + n, matches: k ? "x" : undefined,
          showticklabels: line === high - 1 || k + wide >= run.tenants.length, ticksuffix: " h", nticks: 5};
        how["yaxis" + n] = {domain: [1 - (line + 1) * height + 0.05 / high * 1.2, 1 - line * height - 0.16 / high], anchor: "x" + n, rangemode: "tozero", nticks: 4};
        how.annotations.push({text: esc(tenant), xref: `x${n} domain`, yref: `y${n} domain`, x: 0, y: 1.02, yanchor: "bottom", xanchor: "left", showarrow: false, font: {size: 11}});
        const tint = COLORS[k % COLORS.length], add = (y, name, style) => traces.push(Object.assign({type: "scatter", mode: "lines", x: run.hours, y, name, xaxis: "x" + n, yaxis: "y" + n,
          hovertemplate: `${esc(tenant)}, %{x:.1f} h<br>${name} %{y:.2f} GPUs<extra></extra>`}, style));
        add(run.held[k], "held", {fill: "tozeroy", line: {width: 0.5, color: tint, shape: "hv"}, fillcolor: tint + "99"});
        add(run.fair[k], "fair share", {line: {width: 1.3, color: css("--text"), shape: "hv"}});
        add(run.hours.map(() => run.entitled[k]), "entitled", {line: {width: 1.3, dash: "dash", color: css("--faint")}});
      });
      show(div, traces, how, Math.max(260, 60 + 150 * high));
    }
    return draw;
  });

/* ---------- distributions ---------- */
section("waits", "Waits and slowdowns", "Distribution over jobs, all traces together; a job that is unfinished counts with what it has waited or stayed so far. Bounded slowdown = max(1, time in the system / max(run time, 10 s)).",
  node => {
    let quantity = "wait_h", lines = "schedulers", one = "all", group = DATA.groups[0];
    const classes = DATA.classes;
    const controls = element("div", {class: "controls"});
    const [a] = choice("of", [["wait_h", "wait (h)"], ["slowdown", "bounded slowdown"]], quantity, v => { quantity = v; draw(); });
    const [b] = choice("a line for each", [["schedulers", "scheduler"], ["size", "size"], ["tenant", "tenant"]], lines, v => { lines = v; draw(); });
    const [c, classSelect] = choice("jobs", classes.map(name => [name, name]), one, v => { one = v; draw(); });
    const [d, groupSelect] = choice("scheduler", DATA.groups.map(g => [g, g]), group, v => { group = v; draw(); });
    controls.append(a, b, c, d);
    node.append(controls);
    const div = figure(node, "distributions", 440);
    function draw() {
      c.style.display = lines === "schedulers" ? "" : "none";
      d.style.display = lines === "schedulers" ? "none" : "";
      const found = lines === "schedulers" ?
        DATA.groups.map(g => [g, at(DATA.distributions, state.load, g, one), color(g), dash(g)]) :
        classes.filter(name => name.startsWith(lines + " ")).map((name, i) => [name.slice(lines.length + 1), at(DATA.distributions, state.load, group, name), COLORS[i % COLORS.length], DASHES[Math.floor(i / 8) % 5]]);
      const floor = quantity === "wait_h" ? 0.01 : 1;
      const traces = found.filter(([, run]) => run).map(([name, run, tint, style]) => ({
        type: "scatter", mode: "lines", name: `${esc(lines === "size" ? name + " GPUs" : name)} (${run.jobs.toLocaleString("en")} jobs)`, x: run[quantity].map(v => Math.max(v, floor)), y: DATA.quantiles, line: {color: tint, dash: style, width: 2},
        hovertemplate: `${esc(name)}<br>%{y:.0%} of the jobs: at most %{x:.3g}<extra></extra>`}));
      show(div, traces, {xaxis: {type: "log", title: {text: quantity === "wait_h" ? "hours waited (0.01 and less at the left edge)" : "bounded slowdown"}}, yaxis: {title: {text: "share of the jobs"}, range: [0, 1.01], tickformat: ".0%"}, legend: {orientation: "v", x: 1.02, y: 1}});
    }
    return draw;
  });

/* ---------- flows ---------- */
section("flows", "Who lends to whom, who is stopped for whom", "Means over traces. Left: GPU-hours of a tenant's own quota that others used. Right: GPUs taken from preempted jobs, by who got them next (within a minute).",
  node => {
    let group = DATA.groups.find(g => (at(DATA.flows, state.load, g, "stopped") || []).flat().some(v => v > 0)) || DATA.groups[0];
    const [label] = choice("scheduler", DATA.groups.map(g => [g, g]), group, name => { group = name; draw(); });
    node.append(element("div", {class: "controls"}, label));
    const div = figure(node, "flow-matrices", 460);
    function draw() {
      const run = at(DATA.flows, state.load, group);
      if (!run || !run.tenants.length) return nothing(div, "no run of this scheduler was recorded here.");
      const names = run.tenants.map(esc);
      const amount = v => v === 0 ? "" : v < 0.1 ? "<0.1" : v < 10 ? v.toFixed(1) : Math.round(v).toLocaleString("en");
      const matrix = (z, n, unit, from, to) => ({type: "heatmap", z, x: names, y: names, xaxis: "x" + n, yaxis: "y" + n, colorscale: "Cividis", showscale: false, xgap: 1, ygap: 1,
        zmin: 0, zmax: Math.max(1, ...z.flat()), text: z.map(row => row.map(amount)), texttemplate: names.length <= 20 ? "%{text}" : "", textfont: {size: 9}, hovertemplate: `${from} %{y}, ${to} %{x}: %{z:,.1f} ${unit}<extra></extra>`});
      const axis = (title, domain, anchor, more) => Object.assign({title: {text: title}, domain, anchor, type: "category", tickfont: {size: 10}}, more);
      show(div, [matrix(run.lent, "", "GPU-h", "from", "to"), matrix(run.stopped, "2", "GPUs", "from", "to")], {
        xaxis: axis("borrower", [0, 0.44], "y", {tickangle: -40}), yaxis: axis("lender", [0, 1], "x", {autorange: "reversed"}),
        xaxis2: axis("got the GPUs", [0.56, 1], "y2", {tickangle: -40}), yaxis2: axis("was stopped", [0, 1], "x2", {autorange: "reversed"}),
        annotations: [["borrowed, GPU-h", 0], ["preempted, GPUs", 0.56]].map(([text, x]) => ({text, x, y: 1.02, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false}))}, 190 + 24 * names.length);
    }
    return draw;
  });

/* ---------- fragmentation ---------- */
section("fragmentation", "Fragmentation", "One trace. Top: GPUs that are idle where the usual jobs cannot use them (FGD measure), share of the cluster. Middle: idle GPUs. Bottom: jobs waiting.",
  node => {
    const div = figure(node, "fragments", 560);
    return () => {
      const traces = [], how = {legend: {orientation: "h", y: -0.1}};
      [["fragmented", "fragmented", [0.7, 1]], ["idle", "idle GPUs", [0.36, 0.66]], ["waiting", "jobs waiting", [0, 0.3]]].forEach(([name, title, domain], i) => {
        const n = i ? i + 1 : "";
        how["yaxis" + n] = {domain, title: {text: title}, rangemode: "tozero", anchor: "x"};
        for (const group of DATA.groups) {
          const run = at(DATA.series, state.load, group);
          if (!run || !run.hours.length) continue;
          const gpus = Math.max(...run.cluster.up, 1e-9);
          traces.push({type: "scatter", mode: "lines", x: run.hours, y: run.cluster[name].map(v => name === "fragmented" ? v / gpus : v), yaxis: "y" + n, legendgroup: group, showlegend: i === 0, name: esc(group),
            line: {color: color(group), dash: dash(group), width: 1.4, shape: "hv"}, hovertemplate: `${esc(group)}, %{x:.1f} h: %{y:.4g}<extra></extra>`});
        }
      });
      how.xaxis = {title: {text: "hours since the window began"}, anchor: "y3"};
      show(div, traces, how);
    };
  });

/* ---------- decisions ---------- */
section("decisions", "What a decision costs", "Wall time on the machine that played, means over traces: of an instant of a scheduler (events, decisions, recording, some 20 us of overhead), of a choice of a policy. " +
  "The one part of this page that differs from run to run.",
  node => {
    const scroll = element("div", {class: "scroll"});
    node.append(scroll);
    return () => {
      const found = DATA.groups.filter(group => at(DATA.timings, state.load, group));
      if (!found.length) return scroll.replaceChildren(element("p", {class: "note"}, "Nothing to show: no times are there."));
      const head = element("tr");
      for (const [name, unit] of [["scheduler", ""], ["p50", "ms"], ["p99", "ms"], ["a run", "s"], ["jobs", "1/s"]]) head.append(element("th", {scope: "col"}, name, element("small", {}, unit)));
      const body = element("tbody");
      for (const group of found) {
        const row = element("tr", {}, element("td", {}, group));
        for (const value of DATA.timings[state.load][group]) row.append(element("td", {}, short(value)));
        body.append(row);
      }
      scroll.replaceChildren(element("table", {}, element("thead", {}, head), body));
    };
  });

/* ---------- Gantt ---------- */
section("gantt", "Who held which GPU", "One trace, two schedulers on one clock. A row is a GPU, a block is a job's pods, its colour the tenant; hatched: no progress (x), suspended (.), releasing (/). " +
  "Drag or scroll to zoom, double-click for the whole; blocks thinner than a pixel are left out until you zoom in.",
  node => {
    const spanOf = group => at(DATA.gantt, state.load, group);
    const byScore = [...DATA.groups].sort((a, b) => (interval("score", b) || [-Infinity])[0] - (interval("score", a) || [-Infinity])[0]).filter(spanOf);
    let first = byScore[0] || DATA.groups[0];
    let second = [DATA.baseline, ...byScore].find(group => group !== first && spanOf(group)) || "";
    const controls = element("div", {class: "controls"});
    const options = DATA.groups.map(g => [g, g]);
    const [a, selectA] = choice("above", options, first, v => { first = v; draw(true); });
    const [b, selectB] = choice("below", [["", "(none)"], ...options], second, v => { second = v; draw(true); });
    const slider = element("input", {type: "range", min: "0", max: "1000", value: "0", id: "gantt-time", "aria-label": "time"});
    const clock = element("output", {id: "gantt-clock"});
    const zooms = [["all", Infinity], ["2 days", 48], ["12 h", 12], ["2 h", 2]].map(([name, hours]) => {
      const button = element("button", {type: "button", "data-hours": String(hours)}, name);
      button.addEventListener("click", () => { zoom(hours); });
      return button;
    });
    controls.append(a, b, ...zooms, slider, clock);
    node.append(controls);
    const div = figure(node, "gantt-figure", 700);
    const tenants = element("p", {class: "note", id: "gantt-note"});
    node.append(tenants);
    let range = null, end = 1, timer = 0, listening = false;

    function zoom(hours) {
      const width = Math.min(hours, end), middle = range ? (range[0] + range[1]) / 2 : width / 2;
      const begin = Math.min(Math.max(0, middle - width / 2), end - width);
      range = [begin, begin + width];
      draw(false);
    }
    slider.addEventListener("input", () => {
      const width = range[1] - range[0];
      const begin = (end - width) * Number(slider.value) / 1000;
      range = [begin, begin + width];
      draw(false);
    });

    function blocks(run, axis, traces, seen) {
      const thinnest = (range[1] - range[0]) / Math.max(600, div.clientWidth || 1000);
      const byStyle = new Map();
      for (let i = 0; i < run.begin.length; i++) {
        const begin = run.begin[i], length = run.length[i];
        if (begin + length < range[0] || begin > range[1] || length < thinnest) continue;
        const key = run.tenant[i] * 4 + run.kind[i];
        if (!byStyle.has(key)) byStyle.set(key, {x: [], base: [], y: [], width: [], customdata: []});
        const to = byStyle.get(key);
        to.x.push(length); to.base.push(begin); to.y.push(run.gpu[i] + run.count[i] / 2); to.width.push(run.count[i]);
        to.customdata.push([esc(run.names ? run.names[run.job[i]] : "job-" + run.job[i]), short(run.gang[i]), begin + length, esc(run.nodes[run.node[i]])]);
      }
      for (const [key, data] of [...byStyle].sort((p, q) => p[0] - q[0])) {
        const tenant = key >> 2, kind = key & 3, name = esc(run.tenants[tenant]);
        traces.push(Object.assign(data, {type: "bar", orientation: "h", xaxis: "x", yaxis: axis, name, legendgroup: name, showlegend: kind === 0 && !seen.has(name),
          marker: {color: COLORS[tenant % COLORS.length], line: {width: 0.4, color: css("--back")}, pattern: {shape: HATCH[kind], fillmode: "overlay", fgcolor: css("--text"), fgopacity: 0.8, size: 5}},
          hovertemplate: `<b>%{customdata[0]}</b>, ${name}<br>gang of %{customdata[1]} GPUs, ${KINDS[kind]}<br>%{base:.2f} h to %{customdata[2]:.2f} h on %{customdata[3]}<extra></extra>`}));
        if (kind === 0) seen.add(name);
      }
    }

    function draw(anew) {
      if (!spanOf(first)) {  // a load where this scheduler has not played yet
        first = DATA.groups.find(spanOf) || first;
        selectA.value = first;
      }
      const shown = [first, second].filter(group => group && spanOf(group));
      if (!shown.length) return nothing(div, "no run was recorded here.");
      end = Math.max(...shown.map(group => spanOf(group).hours), 0.001);
      if (anew !== false && range == null) range = [0, end];
      range = [Math.max(0, Math.min(range[0], end * 0.999)), Math.min(range[1], end)];
      const traces = [], seen = new Set();
      const how = {barmode: "overlay", bargap: 0, dragmode: "zoom", annotations: [], margin: {l: 60, r: 20, t: 24, b: 50}, legend: {orientation: "h", y: -0.09},
        xaxis: {range: [...range], title: {text: "hours since the window began"}, anchor: shown.length > 1 ? "y2" : "y"}};
      shown.forEach((group, i) => {
        const run = spanOf(group), domain = shown.length === 1 ? [0, 1] : i === 0 ? [0.53, 1] : [0, 0.47];
        how["yaxis" + (i ? 2 : "")] = {domain, range: [run.gpus, 0], fixedrange: true, title: {text: "GPU"}, anchor: "x", zeroline: false};
        how.annotations.push({text: esc(group), x: 0, y: domain[1], xref: "paper", yref: "paper", yanchor: "bottom", xanchor: "left", showarrow: false, font: {size: 13}});
        blocks(run, i ? "y2" : "y", traces, seen);
      });
      const left = shown.map(group => spanOf(group).left_out).reduce((x, y) => x + y, 0);
      tenants.textContent = `Trace ${DATA.drawn_trace}.` + (left ? ` ${left.toLocaleString("en")} of the shortest blocks are left out to keep the file small.` : "");
      if (!traces.length) traces.push({type: "bar", orientation: "h", x: [0], y: [0], hoverinfo: "skip", showlegend: false});
      slider.value = String(end - (range[1] - range[0]) > 1e-9 ? Math.round(1000 * range[0] / (end - (range[1] - range[0]))) : 0);
      clock.textContent = `${range[0].toFixed(1)} to ${range[1].toFixed(1)} h`;
      if (!div.querySelector(".plot-container")) div.replaceChildren();
      div.style.height = (shown.length === 1 ? 480 : 820) + "px";
      Plotly.react(div, traces, layout(how), Object.assign({}, CONFIG, {scrollZoom: true}));
      if (!listening) {
        listening = true;
        div.on("plotly_relayout", change => {
          const asked = change["xaxis.range"] || ("xaxis.range[0]" in change ? [change["xaxis.range[0]"], change["xaxis.range[1]"]] : null);
          if (!asked && !change["xaxis.autorange"]) return;
          const next = asked ? [Math.max(0, asked[0]), Math.min(end, asked[1])] : [0, end];
          if (Math.abs(next[0] - range[0]) + Math.abs(next[1] - range[1]) < 1e-9 || next[1] <= next[0]) return;
          range = next;
          clearTimeout(timer);
          timer = setTimeout(() => draw(false), 120);
        });
      }
    }
    return () => draw(true);
  });

/* ---------- page ---------- */
function redraw(onlyDrawn = true) {
  for (const entry of sections) {
    if (entry.drawn || !onlyDrawn) { entry.drawn = true; entry.draw(); }
  }
}

function setTheme(theme) {
  state.theme = theme;
  document.documentElement.dataset.theme = theme;
  redraw();
}

document.getElementById("title").textContent = DATA.title;
const status = document.getElementById("status");
status.textContent = DATA.status;
if (!DATA.complete) status.className = "incomplete";
const loadSelect = document.getElementById("load");
for (const load of DATA.loads) loadSelect.append(element("option", {value: load}, load));
loadSelect.addEventListener("change", () => { state.load = loadSelect.value; redraw(); });
if (DATA.loads.length < 2) loadSelect.parentElement.style.display = "none";
document.getElementById("theme").addEventListener("click", () => setTheme(state.theme === "dark" ? "light" : "dark"));
document.getElementById("print").addEventListener("click", () => window.print());
const about = document.getElementById("about");
about.append(element("p", {}, "Made by:"), element("pre", {}, DATA.command), element("p", {}, DATA.versions), element("p", {}, DATA.hashes));

let themeBefore = "light";
window.addEventListener("beforeprint", () => {
  themeBefore = state.theme;
  state.theme = "light";
  document.documentElement.dataset.theme = "light";
  redraw(false);
});
window.addEventListener("afterprint", () => setTheme(themeBefore));
document.documentElement.dataset.theme = state.theme = window.matchMedia && matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
if (!DATA.runs) {
  document.getElementById("sections").replaceChildren(element("p", {}, "No run has been played yet: give the command below again."));
  sections.length = 0;
} else {
  const sight = new IntersectionObserver(entries => {
    for (const seen of entries) {
      const entry = sections.find(one => one.node === seen.target);
      if (seen.isIntersecting && !entry.drawn) { entry.drawn = true; entry.draw(); }
    }
  }, {rootMargin: "400px"});
  for (const entry of sections) sight.observe(entry.node);
}
