"use strict";
// The page of `mile serve`: a row and its prediction, which follows every change, and predictions of a CSV file.

const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
const state = { model: "", schema: null, token: "", asked: 0, answered: 0, planned: false, under: false };

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function shown(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return value.toExponential(digits - 1);
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
}

async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  const prefix = state.model ? `models/${encodeURIComponent(state.model)}/` : "";
  const reply = await fetch(prefix + path, { ...options, headers });
  if (reply.ok) return reply;
  if (reply.status === 401) at("token-form").hidden = false;
  let message = `The service answered ${reply.status}.`;
  try { message = (await reply.json()).error || message; } catch { /* no JSON */ }
  throw new Error(message);
}

const post = (path, body) =>
  ask(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

function complain(error) {
  const box = at("error");
  box.hidden = !error;
  if (error) box.textContent = error.message;
}

// The row

function bounds(column) {
  const center = column.center ?? 0, spread = column.spread || Math.abs(center) || 1;
  const low = column.low ?? center - 4 * spread, high = column.high ?? center + 4 * spread;
  const width = high - low || 1;
  return [low - 0.15 * width, high + 0.15 * width];  // beyond the range, to see the uncertainty grow
}

function numberField(column, value, id) {
  const [low, high] = bounds(column), step = (high - low) / 400;
  const slider = element("input", { type: "range", min: low, max: high, step, id: `${id}-slider`, "aria-label": `${column.name}, slider` });
  const box = element("input", { type: "number", step: "any", id, name: column.name, inputmode: "decimal" });
  slider.value = value ?? (low + high) / 2;
  box.value = value === null ? "" : Number(Number(value).toPrecision(6));
  slider.addEventListener("input", () => { box.value = Number(Number(slider.value).toPrecision(4)); changed(); });
  box.addEventListener("input", () => { if (box.value !== "") slider.value = box.value; changed(); });
  return element("div", {}, slider, box);
}

function choiceField(column, value, id) {
  if (column.n_levels > column.levels.length) {
    const box = element("input", { type: "text", id, name: column.name, list: `${id}-levels` });
    box.value = value ?? "";
    box.addEventListener("input", changed);
    const list = element("datalist", { id: `${id}-levels` }, ...column.levels.map((level) => element("option", { value: level })));
    return element("div", { class: "wide" }, box, list);
  }
  const box = element("select", { id, name: column.name });
  for (const level of column.levels) box.append(element("option", { value: level }, level));
  box.append(element("option", { value: "" }, "(missing)"));
  box.value = value ?? "";
  box.addEventListener("change", changed);
  return element("div", { class: "wide" }, box);
}

function otherField(column, value, id) {
  const box = element("input", { type: column.kind === "date" ? "date" : "text", id, name: column.name });
  box.value = value ?? "";
  box.addEventListener("input", changed);
  return element("div", { class: "wide" }, box);
}

function fillRow(schema) {
  const fields = schema.columns.filter((column) => column.used).map((column, place) => {
    const id = `field-${place}`, value = schema.typical_row[column.name] ?? null;
    const make = column.kind === "number" ? numberField : column.levels ? choiceField : otherField;
    return element("div", { class: "field" }, element("label", { for: id }, column.name), make(column, value, id));
  });
  at("row").replaceChildren(...fields);
  const left = schema.columns.filter((column) => !column.used).map((column) => column.name);
  at("ignored").textContent = left.length ? `The model does not use: ${left.join(", ")}.` : "";
}

function row() {
  const found = {};
  for (const column of state.schema.columns.filter((one) => one.used)) {
    const text = at("row").elements.namedItem(column.name).value.trim();
    found[column.name] = text === "" ? null : column.kind === "number" ? Number(text) : text;
  }
  return found;
}

// Pictures

function room() {
  return Math.max(280, Math.min(640, at("picture").clientWidth || 560));  // so that text keeps its size on a phone
}

function picture(width, height, label) {
  return drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

function ticks(low, high) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) found.push(Number(tick.toPrecision(10)));
  return found;
}

function densityPicture(curve, lower, upper, center) {
  const width = room(), height = 240, base = 205, top = 12, side = 14;
  const first = curve.y[0], last = curve.y[curve.y.length - 1], most = Math.max(...curve.density) || 1;
  const x = (y) => side + ((y - first) / (last - first || 1)) * (width - 2 * side);
  const h = (density) => base - (density / most) * (base - top);
  const points = curve.y.map((y, place) => [x(y), h(curve.density[place])]);
  const svg = picture(width, height, `Density of ${state.schema.target}: most of it between ${shown(lower)} and ${shown(upper)}`);
  if (curve.y.length < 40 && curve.y.every(Number.isInteger)) {
    const bar = Math.max(3, Math.min(24, (width - 2 * side) / curve.y.length - 3));
    curve.y.forEach((y, place) => svg.append(drawn("rect", {
      class: y >= lower && y <= upper ? "bar" : "track", x: points[place][0] - bar / 2, y: points[place][1], width: bar,
      height: base - points[place][1],
    })));
  } else {
    const inside = points.filter((_, place) => curve.y[place] >= lower && curve.y[place] <= upper);
    if (inside.length > 1) {
      const path = inside.map((point) => point.join(",")).join(" L");
      svg.append(drawn("path", { class: "inside", d: `M${inside[0][0]},${base} L${path} L${inside[inside.length - 1][0]},${base} Z` }));
    }
    svg.append(drawn("path", { class: "curve", d: `M${points.map((point) => point.join(",")).join(" L")}` }));
  }
  svg.append(drawn("line", { class: "axis", x1: side, x2: width - side, y1: base, y2: base }));
  if (center !== null && center !== undefined) {
    svg.append(drawn("line", { class: "center", x1: x(center), x2: x(center), y1: top, y2: base }));
  }
  for (const tick of ticks(first, last)) {
    svg.append(drawn("line", { class: "axis", x1: x(tick), x2: x(tick), y1: base, y2: base + 5 }));
    const anchor = x(tick) < 40 ? "start" : x(tick) > width - 40 ? "end" : "middle";
    svg.append(drawn("text", { x: x(tick), y: base + 22, "text-anchor": anchor }, shown(tick)));
  }
  return svg;
}

function classPicture(prediction) {
  const found = state.schema.classes.map((label) => [String(label), prediction[`p_${label}`] ?? 0]);
  found.sort((a, b) => b[1] - a[1]);
  const rows = found.slice(0, 10), width = room(), line = 34;
  const svg = picture(width, rows.length * line, rows.map(([label, p]) => `${label}: ${(100 * p).toFixed(1)} %`).join(", "));
  rows.forEach(([label, p], place) => {
    const y = place * line;
    svg.append(drawn("text", { x: 0, y: y + 14 }, label.slice(0, 40)));
    svg.append(drawn("text", { x: width, y: y + 14, "text-anchor": "end" }, `${(100 * p).toFixed(1)} %`));
    svg.append(drawn("rect", { class: "track", x: 0, y: y + 20, width, height: 8, rx: 3 }));
    svg.append(drawn("rect", { class: "bar", x: 0, y: y + 20, width: Math.max(1, width * p), height: 8, rx: 3 }));
  });
  return svg;
}

function effectTable(explained) {
  const names = Object.keys(explained.values), first = names[0], second = names[1];
  const least = 1e-4 * Math.abs(explained.values[first] ?? 0);  // less is rounding
  const most = Math.max(...explained.effects.map((one) => Math.abs(one.change[first] ?? 0)), 10 * least, 1e-300);
  const head = element("tr", {}, ...["column", "value", first, "", second === "standard deviation" ? "std. dev." : second].map((text) => element("th", { scope: "col" }, text)));
  const lines = explained.effects.slice(0, 12).map((one) => {
    const change = one.change[first] ?? 0, share = 50 * (change / most);
    const svg = drawn("svg", { viewBox: "0 0 100 12", "aria-hidden": "true" });
    svg.append(drawn("rect", { class: "track", x: 0, y: 5, width: 100, height: 2 }));
    svg.append(drawn("rect", { class: change < 0 ? "down" : "up", x: 50 + Math.min(0, share), y: 1, width: Math.abs(share), height: 10 }));
    const signed = (value) => Math.abs(value) < least ? "0" : (value > 0 ? "+" : "") + shown(value, 3);
    return element("tr", {}, element("th", { scope: "row" }, one.column), element("td", {}, shown(one.value)),
      element("td", {}, signed(change)), element("td", { class: "picture" }, svg), element("td", {}, signed(one.change[second] ?? 0)));
  });
  at("effects").replaceChildren(element("thead", {}, head), element("tbody", {}, ...lines));
}

// Asking

function changed() {
  state.asked += 1;
  at("prediction-section").setAttribute("aria-busy", "true");
  if (state.planned || state.under) return;
  state.planned = true;
  requestAnimationFrame(() => { state.planned = false; follow(); });
}

async function follow() {
  state.under = true;
  while (state.answered !== state.asked) {
    const asked = state.asked;
    try {
      const given = row(), level = Number(at("level").value) / 100, schema = state.schema;
      const wanted = { row: given, interval: level, count: false, ...(schema.has_density ? { density: 160 } : {}) };
      const [predicted, explained] = await Promise.all([post("predict", wanted), post("explain", { row: given })]);
      const [prediction, explanation] = [await predicted.json(), await explained.json()];
      if (schema === state.schema) show(prediction, explanation, level);
      complain(null);
    } catch (error) { complain(error); }
    state.answered = asked;
  }
  state.under = false;
  at("prediction-section").setAttribute("aria-busy", "false");
}

function show(answer, explained, level) {
  const prediction = answer.predictions[0], name = `${Number((100 * level).toPrecision(6))}`;
  at("level-text").textContent = `${name} %`;
  const target = state.schema.target;
  if (state.schema.classes) {
    at("answer").replaceChildren(`${target}: `, element("strong", {}, String(prediction.label)), ` with probability ${(100 * prediction.probability).toFixed(1)} %`);
    at("picture-title").textContent = "Probability of each class";
    at("picture").replaceChildren(at("picture-title"), classPicture(prediction));
  } else {
    const lower = prediction[`lower_${name}`], upper = prediction[`upper_${name}`];
    const center = prediction.mean ?? prediction.median, word = prediction.mean === undefined || prediction.mean === null ? "median" : "mean";
    at("answer").replaceChildren(`${target}: `, element("strong", {}, shown(center ?? prediction.median)), ` (${word}), between `,
      element("strong", {}, shown(lower)), " and ", element("strong", {}, shown(upper)), ` with probability ${name} %`);
    at("picture-title").textContent = `Predictive density of ${target}; shaded: the ${name} % interval`;
    at("picture").replaceChildren(at("picture-title"), densityPicture(prediction.density, lower, upper, center));
  }
  const parts = ["noise", "ignorance"].filter((part) => explained.values[part] !== undefined && explained.values[part] !== null);
  at("parts").textContent = parts.length === 2
    ? `Noise ${shown(explained.values.noise, 3)}, which more data would not remove; ignorance ${shown(explained.values.ignorance, 3)}, which it would.` : "";
  at("effects-help").textContent = "Each line: this prediction less the one with a typical value in that column.";
  effectTable(explained);
  at("remarks").textContent = (answer.remarks || []).join(" ");
}

// A table

async function predictFile(file) {
  at("table-note").textContent = `Predicting ${file.name}…`;
  at("download").hidden = true;
  at("predictions").replaceChildren();
  try {
    const level = Number(at("level").value) / 100;
    const query = state.schema.classes ? "" : `?interval=${level}`;
    const reply = await ask(`predict${query}`, { method: "POST", body: file, headers: { "Content-Type": "text/csv" } });
    const text = await reply.text(), lines = text.trimEnd().split("\n");
    at("table-note").textContent = `${(lines.length - 1).toLocaleString("en")} rows predicted${lines.length > 21 ? "; the first 20:" : "."}`;
    const cells = lines.slice(0, 21).map((line) => line.split(","));
    const head = element("tr", {}, ...["row", ...cells[0]].map((name) => element("th", { scope: "col" }, name)));
    const body = cells.slice(1).map((line, place) => element("tr", {}, element("th", { scope: "row" }, String(place)),
      ...line.map((cell) => element("td", {}, cell !== "" && Number.isFinite(Number(cell)) ? shown(Number(cell)) : cell))));
    at("predictions").replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
    const link = at("download");
    if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = file.name.replace(/\.csv$/i, "") + "-predictions.csv";
    link.hidden = false;
    complain(null);
  } catch (error) {
    at("table-note").textContent = "";
    complain(error);
  }
}

// The beginning

async function choose(name) {
  state.model = name;
  const schema = await (await ask("schema")).json();
  state.schema = schema;
  at("title").textContent = `Predictions of ${schema.target}`;
  at("about").textContent = `Model ${schema.model}, ${schema.draws.toLocaleString("en")} draws, version ${schema.version}.`;
  at("level-box").hidden = Boolean(schema.classes);
  fillRow(schema);
  at("predictions").replaceChildren();
  at("table-note").textContent = "";
  at("download").hidden = true;
  at("work").hidden = false;
  changed();
}

async function begin() {
  try {
    state.model = "";
    const found = await (await ask("models")).json();
    at("token-form").hidden = true;
    at("model").replaceChildren(...found.models.map((one) => element("option", { value: one.name }, one.name)));
    at("model-choice").hidden = found.models.length < 2;
    at("model").value = found.default;
    await choose(found.default);
    complain(null);
  } catch (error) {
    at("about").textContent = "";
    complain(error);
  }
}

at("model").addEventListener("change", () => choose(at("model").value).catch(complain));
at("level").addEventListener("input", changed);
at("row").addEventListener("submit", (event) => event.preventDefault());
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = at("token").value;
  begin();
});
at("file").addEventListener("change", () => { if (at("file").files.length) predictFile(at("file").files[0]); });
for (const kind of ["dragenter", "dragover"]) {
  at("drop").addEventListener(kind, (event) => { event.preventDefault(); at("drop").classList.add("over"); });
}
at("drop").addEventListener("dragleave", () => at("drop").classList.remove("over"));
at("drop").addEventListener("drop", (event) => {
  event.preventDefault();
  at("drop").classList.remove("over");
  if (event.dataTransfer.files.length) predictFile(event.dataTransfer.files[0]);
});
begin();
