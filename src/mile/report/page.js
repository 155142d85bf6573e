"use strict";
(() => {
  const box = document.getElementById("explorer"), SVG = "http://www.w3.org/2000/svg";
  if (!box) return;
  const data = JSON.parse(box.dataset.rows), rows = data.rows, numbers = data.levels.length > 0;
  const chart = box.querySelector(".chart"), detail = box.querySelector(".density"), said = box.querySelector(".said");
  const slider = box.querySelector("input"), chosen = box.querySelector("output"), told = box.querySelector(".told");
  const W = 720, H = 260, L = 62, R = 10, T = 10, B = 24, half = data.quantiles.length >> 1;
  let picked = 0, hovered = -1;
  const make = (name, at, inside, text) => {
    const made = document.createElementNS(SVG, name);
    for (const key in at) made.setAttribute(key, at[key]);
    if (text !== undefined) made.textContent = text;
    inside.append(made);
    return made;
  };
  const show = value => value === null ? "–" : Number(value.toPrecision(4)).toLocaleString("en-US", {maximumSignificantDigits: 4});
  const percent = value => Math.round(100 * value) + "\u00a0%";
  const ends = (row, k) => [row.q[half - 1 - k], row.q[half + 1 + k]];
  const values = numbers ? rows.flatMap(row => [...ends(row, data.usual), row.y]).filter(value => value !== null) : [0, 1];
  let low = Math.min(...values), high = Math.max(...values);
  if (high <= low) { low -= 1; high += 1; }
  const x = place => L + (place + 0.5) * (W - L - R) / rows.length;
  const y = value => T + (high - Math.max(low, Math.min(high, value))) / (high - low) * (H - T - B);
  const axis = (svg, at, from, to, wide, tall) => {
    for (let k = 0; k <= 4; k++) {
      const value = from + k * (to - from) / 4;
      if (at === "y") make("text", {x: L - 6, y: y(value) + 4, "text-anchor": "end"}, svg, numbers ? show(value) : percent(value));
      else make("text", {x: L + k * (wide - L - R) / 4, y: tall - 6, "text-anchor": k === 4 ? "end" : k ? "middle" : "start"}, svg, show(value));
    }
  };
  const inside = (row, k) => { const [a, b] = ends(row, k); return row.y >= a && row.y <= b; };
  function draw() {
    chart.replaceChildren();
    axis(chart, "y", low, high);
    make("text", {x: L, y: H - 6}, chart, data.axis);
    const k = Number(slider.value);
    rows.forEach((row, place) => {
      const good = numbers ? row.y === null || inside(row, k) : row.right;
      const faint = !numbers && row.value < k / 100;
      const group = make("g", {class: "row" + (place === picked ? " picked" : ""), opacity: faint ? 0.2 : 1}, chart);
      if (numbers) {
        const [a, b] = ends(row, k);
        make("line", {x1: x(place), x2: x(place), y1: y(a), y2: y(b), class: "bar"}, group);
        if (row.y !== null) make("circle", {cx: x(place), cy: y(row.y), r: 3, class: good ? "in" : "out"}, group);
      } else make("circle", {cx: x(place), cy: y(row.value), r: 3.5, class: good ? "in" : "out"}, group);
    });
    if (!numbers) make("line", {x1: L, x2: W - R, y1: y(k / 100), y2: y(k / 100), class: "limit"}, chart);
    if (numbers) {
      chosen.textContent = percent(data.levels[k]);
      const known = rows.filter(row => row.y !== null), held = known.filter(row => inside(row, k)).length;
      told.textContent = known.length ? percent(held / known.length) + " of these " + known.length + " rows lie inside their " + percent(data.levels[k]) + " intervals." : "";
    } else {
      chosen.textContent = percent(k / 100);
      const sure = rows.filter(row => row.value >= k / 100), right = sure.filter(row => row.right).length;
      told.textContent = sure.length ? percent(right / sure.length) + " of the " + sure.length + " rows that are at least so sure are right." : "No row is so sure.";
    }
    tell();
  }
  function tell() {
    const row = rows[hovered < 0 ? picked : hovered], k = Number(slider.value);
    let text = "Row " + row.id + ": observed " + row.seen + ", predicted " + (numbers ? show(row.value) : row.point + " (" + percent(row.value) + ")");
    if (numbers) text += ", " + percent(data.levels[k]) + " interval " + ends(row, k).map(show).join(" to ");
    said.textContent = text;
  }
  function density() {
    const row = rows[picked], wide = 720, tall = 150;
    detail.replaceChildren();
    if (!numbers) {
      const step = (tall - 10) / row.p.length;
      row.p.forEach(([name, value], place) => {
        make("rect", {x: 200, y: 5 + place * step, width: 440 * value, height: 0.7 * step, class: name === row.seen ? "in" : "area"}, detail);
        make("text", {x: 194, y: 5 + (place + 0.55) * step, "text-anchor": "end"}, detail, name.length > 20 ? name.slice(0, 19) + "…" : name);
        make("text", {x: 206 + 440 * value, y: 5 + (place + 0.55) * step}, detail, percent(value));
      });
      return;
    }
    const q = row.q, p = data.quantiles, from = Math.min(q[0], row.y ?? q[0]), to = Math.max(q[q.length - 1], row.y ?? q[q.length - 1]);
    const least = (to - from || 1) / 150, across = value => L + (value - from) / (to - from || 1) * (wide - L - R);
    const heights = q.slice(1).map((value, place) => (p[place + 1] - p[place]) / Math.max(value - q[place], least));
    const most = Math.max(...heights), up = value => tall - B - value / most * (tall - B - 12);
    let path = "M" + across(q[0]) + " " + up(0);
    heights.forEach((value, place) => { path += "L" + across((q[place] + q[place + 1]) / 2) + " " + up(value); });
    make("path", {d: path + "L" + across(q[q.length - 1]) + " " + up(0) + "Z", class: "area"}, detail);
    if (row.y !== null) make("line", {x1: across(row.y), x2: across(row.y), y1: 6, y2: tall - B, class: "seen"}, detail);
    axis(detail, "x", from, to, wide, tall);
  }
  const at = event => {
    const frame = chart.getBoundingClientRect(), across = (event.clientX - frame.left) / frame.width * W;
    return Math.max(0, Math.min(rows.length - 1, Math.floor((across - L) / (W - L - R) * rows.length)));
  };
  const pick = place => { picked = Math.max(0, Math.min(rows.length - 1, place)); draw(); density(); };
  chart.addEventListener("pointermove", event => { hovered = at(event); tell(); });
  chart.addEventListener("pointerleave", () => { hovered = -1; tell(); });
  chart.addEventListener("click", event => pick(at(event)));
  chart.addEventListener("keydown", event => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (step) { hovered = -1; pick(picked + step); event.preventDefault(); }
  });
  slider.addEventListener("input", draw);
  box.hidden = false;
  pick(rows.length >> 1);
})();
