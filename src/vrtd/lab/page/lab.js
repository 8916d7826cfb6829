"use strict";
// The page of the lab. It asks the server for runs, exact means and the map, and draws them on canvases.
// A page of the gallery has the answers for its presets inside and asks no server.

const $ = (id) => document.getElementById(id);
const embedded = $("answers") ? JSON.parse($("answers").textContent) : null;
const VIEWS = { axis: ["linear", "log"], plane: ["ends", "whole"], hide: [] };  // what only this page needs to know
const PARTS = { runs: "single runs", bands: "bands", bounds: "bounds" };
const LABELS = {
  chain: "Chain", chain_seed: "Seed of the chain", n_features: "Features", discount: "Discount γ", sampling: "Samples",
  algorithm: "Algorithm", also: "Also show the mean of", step_size: "Step size α", batch_size: "Batch size M",
  growth: "Growth of batches", n_gradients: "Pseudo-gradients per run", radius: "Radius R in the bounds",
  seed: "Seed of the runs",
};
const USES = { batch_size: ["vrtd", "vrtd_growing"], growth: ["vrtd_growing"] };
const DASHES = [[], [2, 3], [9, 3, 2, 3]];  // printed, corrected, sharpened
const SLIDER_STEPS = 1000;

let setup, state = {}, view = {}, inputs = {};
let wanted = 0, busy = false, movedAt = 0, typing = 0;
let shown = { runs: {}, exact: {}, map: null, version: 0 }, mapKey = "", hover = {};
const lab = window.lab = { latencies: [], idle: false, get state() { return state; }, get shown() { return shown; } };

// Numbers and texts

const number = (x, digits = 4) => {
  if (x === null || x === undefined) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
    return `${mantissa}·10${superscript(Number(exponent))}`;
  }
  return x.toPrecision(digits);
};
const superscript = (n) => String(n).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻");
const count = (n) => Number(n).toLocaleString("en-GB");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const names = () => [state.algorithm, ...state.also.split(",").filter((name) => name && name !== state.algorithm)];

// The state and the address

const query = (extra = {}) => new URLSearchParams({ ...state, ...extra }).toString();
const writeAddress = () => {
  const given = Object.entries({ ...state, ...view }).filter(([, value]) => value !== "");
  history.replaceState(null, "", "#" + new URLSearchParams(given));
};
const readAddress = () => {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const preset = setup.presets[given.preset];
  state = { ...(preset ? preset.settings : setup.first) };
  view = { axis: "linear", plane: "ends", hide: "", preset: "", ...(preset ? preset.view : {}) };
  if (!Object.keys(given).length) {
    const first = Object.entries(setup.presets).find(([, each]) => sameState(each.settings));
    if (first) Object.assign(view, first[1].view, { preset: first[0] });
  }
  for (const [name, value] of Object.entries(given)) {
    if (name in view) view[name] = value; else state[name] = value;
  }
};
const sameState = (settings) => Object.entries(settings).every(([name, value]) => state[name] === value);

// Controls

const toValue = (name, slider) => {
  const { least, most, whole, logarithmic } = setup.ranges[name];
  const share = slider / SLIDER_STEPS;
  const x = logarithmic ? least * (most / least) ** share : least + (most - least) * share;
  return whole ? String(Math.round(x)) : String(Number(x.toPrecision(3)));
};
const toSlider = (name, value) => {
  const { least, most, logarithmic } = setup.ranges[name];
  const x = Math.min(Math.max(Number(value), least), most);
  return SLIDER_STEPS * (logarithmic ? Math.log(x / least) / Math.log(most / least) : (x - least) / (most - least));
};
const addNumber = (name, sliding) => {
  const box = make("div", { class: "control", "data-name": name });
  const text = make("input", { type: "text", id: name, inputmode: "decimal", autocomplete: "off" });
  box.append(make("label", { for: name }, LABELS[name]));
  if (sliding) {
    const { least, most, whole, logarithmic } = setup.ranges[name];
    const few = whole && !logarithmic && most - least < 20;
    const slider = make("input", { type: "range", "aria-label": `${LABELS[name]}, slider`, id: `${name}-slider` });
    Object.assign(slider, { min: 0, max: SLIDER_STEPS, step: few ? SLIDER_STEPS / (most - least) : 5 });
    slider.addEventListener("input", () => move({ [name]: toValue(name, Number(slider.value)) }));
    box.append(slider);
    inputs[name] = () => {
      if (document.activeElement !== text) text.value = state[name];
      if (document.activeElement !== slider || !few) slider.value = toSlider(name, state[name]);
      slider.setAttribute("aria-valuetext", state[name]);
    };
  } else {
    inputs[name] = () => { if (document.activeElement !== text) text.value = state[name]; };
    box.append(make("span", { class: "quiet" }, name === "radius" ? "empty: the least possible" : ""));
  }
  text.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => move({ [name]: text.value.trim() }), 400);
  });
  text.addEventListener("blur", () => inputs[name]());
  box.append(text);
  return box;
};
const addChoice = (name, choices) => {
  const select = make("select", { id: name }, ...Object.entries(choices).map(([key, label]) => make("option", { value: key }, label)));
  select.addEventListener("change", () => move({ [name]: select.value }));
  inputs[name] = () => { select.value = state[name]; };
  return make("div", { class: "control", "data-name": name }, make("label", { for: name }, LABELS[name]), select);
};
const check = (label, id, changed) => {
  const box = make("input", { type: "checkbox", id });
  box.addEventListener("change", () => changed(box.checked));
  return [box, make("label", { class: "check", for: id }, box, label)];
};
const addAlso = () => {
  const boxes = {}, group = make("div", { class: "checks", role: "group", "aria-label": LABELS.also });
  for (const [name, label] of Object.entries(setup.algorithms)) {
    const [box, shownLabel] = check(label, `also-${name}`, () => {
      move({ also: Object.keys(boxes).filter((each) => boxes[each].checked).join(",") });
    });
    boxes[name] = box;
    group.append(shownLabel);
  }
  inputs.also = () => {
    const chosen = state.also.split(",");
    for (const [name, box] of Object.entries(boxes)) {
      box.checked = chosen.includes(name);
      box.parentElement.hidden = name === state.algorithm;
    }
  };
  return make("div", { class: "control", "data-name": "also" }, make("span", { class: "name" }, LABELS.also), group);
};
const buildControls = () => {
  const chains = Object.fromEntries(Object.entries(setup.chains).map(([name, chain]) => [name, chain.label]));
  $("settings").append(
    addNumber("step_size", true), addNumber("batch_size", true), addNumber("growth", true), addChoice("algorithm", setup.algorithms),
    addAlso(), addChoice("sampling", setup.samplings), addNumber("discount", true), addChoice("chain", chains),
    addNumber("n_features", true), addNumber("chain_seed", false), addNumber("n_gradients", true), addNumber("radius", false),
    addNumber("seed", false),
  );
  for (const [name, preset] of Object.entries(setup.presets)) $("preset").append(make("option", { value: name }, preset.title));
  $("preset").append(make("option", { value: "" }, "your own settings"));
  $("preset").addEventListener("change", () => {
    const preset = setup.presets[$("preset").value];
    if (!preset) return;
    Object.assign(view, { axis: "linear", plane: "ends", hide: "" }, preset.view, { preset: $("preset").value });
    move(preset.settings, true);
  });
  for (const [name, label] of Object.entries(PARTS)) {
    const [box, shownLabel] = check(label, `view-${name}`, (checked) => {
      const hidden = new Set(view.hide.split(",").filter(Boolean));
      if (checked) hidden.delete(name); else hidden.add(name);
      look({ hide: [...hidden].join(",") });
    });
    inputs[`view-${name}`] = () => { box.checked = !view.hide.split(",").includes(name); };
    $("views").append(shownLabel);
  }
  const [logBox, logLabel] = check("logarithmic axis", "view-axis", (checked) => look({ axis: checked ? "log" : "linear" }));
  const [wholeBox, wholeLabel] = check("whole paths in the plane", "view-plane", (checked) => look({ plane: checked ? "whole" : "ends" }));
  inputs["view-axis"] = () => { logBox.checked = view.axis === "log"; };
  inputs["view-plane"] = () => { wholeBox.checked = view.plane === "whole"; };
  $("views").append(logLabel, wholeLabel);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText($("code").textContent);
    $("copy").textContent = "Copied";
    setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
  });
};
const showState = () => {
  for (const update of Object.values(inputs)) update();
  const uses = setup.chains[state.chain]?.uses ?? [];
  for (const box of document.querySelectorAll(".control[data-name]")) {
    const name = box.dataset.name;
    const ofChain = ["chain_seed", "n_features", "discount"].includes(name);
    const used = ofChain ? uses.includes(name) : !(name in USES) || names().some((each) => USES[name].includes(each));
    box.classList.toggle("unused", !used);
    for (const input of box.querySelectorAll("input")) input.disabled = !used;
  }
  $("preset").value = view.preset in setup.presets ? view.preset : "";
  $("story").textContent = setup.presets[view.preset]?.text ?? "Move anything. The address of this page holds the settings.";
};
const move = (changes, isPreset = false) => {
  Object.assign(state, changes);
  if (!isPreset) view.preset = "";
  movedAt = performance.now();
  writeAddress();
  showState();
  refresh();
};
const look = (changes) => {
  Object.assign(view, changes);
  writeAddress();
  showState();
  draw();
};

// Questions and answers. Only the latest settings matter: while one answer is awaited, further moves wait.

const ask = async (question, of = "") => {
  if (embedded) {
    const answers = embedded.answers[view.preset];
    return of ? answers[question][of] : answers[question];
  }
  const response = await fetch(`${question}?${query(of ? { of } : {})}`);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
};
const refresh = async () => {
  wanted += 1;
  if (busy) return;
  busy = true;
  lab.idle = false;
  let done = 0;
  while (done < wanted) {
    done = wanted;
    try {
      await update(done);
      $("alert").textContent = "";
      document.body.classList.remove("stale");
    } catch (error) {
      $("alert").textContent = error instanceof TypeError ? "The server does not answer. Start vrtd lab again, and open its new address." : error.message;
      document.body.classList.add("stale");
    }
  }
  busy = false;
  lab.idle = true;
};
const update = async (version) => {
  const began = movedAt, [main, ...others] = names();
  const askExact = () => ask("exact", main).catch((error) => ({ algorithm: main, values: null, reason: error.message }));
  const exact = ["td_averaged", "richardson_td"].includes(main) ? null : askExact();  // slow ones wait for the runs
  const runs = await ask("runs", main);
  const fresh = { runs: { [main]: runs }, exact: {}, map: shown.map, version };
  for (const name of others) if (shown.runs[name] && sameLength(shown.runs[name], runs)) fresh.runs[name] = { ...shown.runs[name], old: true };
  shown = fresh;
  const quick = exact && await Promise.race([exact, new Promise((resolve) => setTimeout(resolve, 5))]);
  if (quick) shown.exact[main] = quick;
  draw();
  lab.latencies.push(performance.now() - began);
  const current = () => version === wanted;
  if (!current()) return;
  shown.exact[main] = await (exact ?? askExact());
  draw();
  for (const name of others) {
    const answer = await ask("runs", name);
    if (!current()) return;
    shown.runs[name] = answer;
    draw();
  }
  for (const name of Object.keys(shown.runs)) if (!names().includes(name)) delete shown.runs[name];
  const key = ["chain", "chain_seed", "n_features", "discount", "sampling", "n_gradients"].map((name) => state[name]).join();
  if (key !== mapKey) {
    const map = await ask("map");
    shown.map = map;
    mapKey = key;
    draw();
    if (!current()) return;
  }
  for (const name of others) {
    shown.exact[name] = await ask("exact", name);
    if (!current()) return;
    draw();
  }
  $("code").textContent = (await ask("code")).code;
};
const sameLength = (a, b) => a.n_gradients.at(-1) === b.n_gradients.at(-1);

// Drawing

const open = (canvas) => {
  const ratio = window.devicePixelRatio || 1, { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "13px system-ui, sans-serif";
  pen.lineJoin = "round";
  return { pen, width, height };
};
const scale = (low, high, start, end, logarithmic) => {
  const f = logarithmic ? Math.log10 : (x) => x;
  const [a, b] = [f(low), f(high)];
  const to = (x) => start + (end - start) * (f(x) - a) / (b - a || 1);
  to.back = (pixel) => { const y = a + (b - a) * (pixel - start) / (end - start); return logarithmic ? 10 ** y : y; };
  Object.assign(to, { low, high, logarithmic });
  return to;
};
const ticks = (to, most) => {
  if (to.logarithmic) {
    const [low, high] = [Math.log10(to.low), Math.log10(to.high)];
    const every = Math.max(1, Math.ceil((high - low) / most)), found = [];
    for (let k = Math.ceil(low - 1e-9); k <= high + 1e-9; k += 1) if (k % every === 0) found.push([10 ** k, `10${superscript(k)}`]);
    if (high - low < 1.5) {
      for (let k = Math.floor(low); k <= high; k += 1) for (const m of [1, 2, 5]) {
        const x = m * 10 ** k;
        if (x >= to.low && x <= to.high && !found.some(([y]) => Math.abs(y / x - 1) < 1e-6)) found.push([x, number(x, 1)]);
      }
    }
    return found;
  }
  const span = to.high - to.low, rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough), found = [];
  for (let x = Math.ceil(to.low / step) * step; x <= to.high + step * 1e-6; x += step) {
    const rounded = Number(x.toPrecision(10));
    found.push([rounded, Math.abs(rounded) >= 1000 ? count(rounded) : String(rounded)]);
  }
  return found;
};
const frame = (pen, x, y, box, labels) => {
  const { left, right, top, bottom } = box;
  pen.strokeStyle = colour("line");
  pen.fillStyle = colour("quiet");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const [value, label] of ticks(y, Math.max(3, (bottom - top) / 45))) {
    const at = y(value);
    pen.beginPath(); pen.moveTo(left, at); pen.lineTo(right, at); pen.stroke();
    pen.fillText(label, left - 6, at);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const [value, label] of ticks(x, Math.max(3, (right - left) / 90))) {
    const at = x(value);
    pen.beginPath(); pen.moveTo(at, top); pen.lineTo(at, bottom); pen.stroke();
    const half = pen.measureText(label).width / 2;
    pen.fillText(label, Math.min(at, right + 14 - half), bottom + 5);
  }
  pen.fillText(labels[0], (left + right) / 2, bottom + 22);
  if (labels[1]) {
    pen.save();
    pen.translate(12, (top + bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(labels[1], 0, -6);
    pen.restore();
  }
};
const clip = (pen, { left, right, top, bottom }) => { pen.save(); pen.beginPath(); pen.rect(left, top, right - left, bottom - top); pen.clip(); };
const line = (pen, points, style, width = 1.5, dash = []) => {
  pen.strokeStyle = style;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  let down = false;
  for (const [x, y] of points) {
    if (x === null || y === null || !Number.isFinite(x + y)) { down = false; continue; }
    if (down) pen.lineTo(x, y); else pen.moveTo(x, y);
    down = true;
  }
  pen.stroke();
  pen.setLineDash([]);
};
const star = (pen, x, y, size, fill, edge) => {
  pen.beginPath();
  for (let k = 0; k < 10; k += 1) {
    const r = k % 2 ? size * 0.42 : size, angle = Math.PI * (k / 5 - 0.5);
    pen.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
  }
  pen.closePath();
  pen.fillStyle = fill; pen.strokeStyle = edge; pen.lineWidth = 1.2;
  pen.fill(); pen.stroke();
};
const lost = (runs) => { const k = runs.n_diverged.findIndex((n) => n > 0); return k < 0 ? runs.mean.length : k; };
const isShown = (part) => !view.hide.split(",").includes(part);
const usable = (y) => y !== null && y > 0 && Number.isFinite(y);

const drawCurves = () => {
  const canvas = $("curves"), { pen, width, height } = open(canvas), main = shown.runs[state.algorithm];
  if (!main) return;
  const box = { left: width < 500 ? 46 : 64, right: width - 14, top: 10, bottom: height - 42 };
  const n = main.n_gradients, total = n.at(-1), alive = lost(main), start = main.mean[0] || main.mean[1] || 1;
  const exact = shown.exact[state.algorithm];
  const values = [];
  const take = (list, until = list.length) => { for (let k = 0; k < until; k += 1) if (usable(list[k])) values.push(list[k]); };
  for (const runs of Object.values(shown.runs)) take(runs.mean, lost(runs));
  take(main.q05, alive); take(main.q95, alive);
  let low = Math.min(...values), high = Math.max(...values);
  if (!values.length) { low = start / 10; high = start * 10; }
  for (const e of exact?.values ?? []) if (usable(e) && e < high * 1e3) { high = Math.max(high, e); low = Math.min(low, e); }
  high = Math.min(high, 1e300);
  low = Math.max(low, Math.min(high, start) * 1e-12);
  if (isShown("bounds")) {
    for (const { values: bound, floor } of main.bounds ?? []) for (const y of bound ?? []) {
      if (floor !== null && usable(y) && y < high * 1e3 && y > low / 1e3) { high = Math.max(high, y); low = Math.min(low, y); }
    }
  }
  const x = scale(view.axis === "log" ? Math.max(n[1] ?? 1, 1) : 0, total, box.left, box.right, view.axis === "log");
  const y = scale(low / 1.3, high * 1.3, box.bottom, box.top, true);
  frame(pen, x, y, box, ["pseudo-gradients", width < 500 ? "" : "|θ − θ*|²"]);
  clip(pen, box);
  const points = (list, until = list.length) => n.slice(0, until).map((each, k) => [x(Math.max(each, x.logarithmic ? x.low : 0)), usable(list[k]) ? y(list[k]) : null]);
  const main_colour = colour(state.algorithm);
  const band = (lower, upper, alpha) => {
    const down = points(lower, alive).filter(([, v]) => v !== null), up = points(upper, alive).filter(([, v]) => v !== null).reverse();
    pen.globalAlpha = alpha;
    pen.fillStyle = main_colour;
    pen.beginPath();
    for (const [px, py] of [...down, ...up]) pen.lineTo(px, py);
    pen.fill();
    pen.globalAlpha = 1;
  };
  if (isShown("bands")) { band(main.q05, main.q95, 0.14); band(main.q25, main.q75, 0.2); }
  if (isShown("runs")) {
    pen.globalAlpha = 0.4;
    for (const curve of main.curves) line(pen, points(curve), main_colour, 0.8);
    pen.globalAlpha = 1;
  }
  for (const [name, runs] of Object.entries(shown.runs)) {
    pen.globalAlpha = runs.old ? 0.35 : 1;
    line(pen, points(runs.mean, lost(runs)), colour(name), name === state.algorithm ? 2.6 : 2);
    pen.globalAlpha = 1;
    const settles = shown.exact[name]?.settles_error;
    if (usable(settles)) line(pen, [[box.left, y(settles)], [box.right, y(settles)]], colour(name), 1.4, [2, 4]);
  }
  if (exact?.values) line(pen, points(exact.values), colour("ink"), 1.6, [5, 4]);
  if (isShown("bounds")) (main.bounds ?? []).forEach(({ values: bound, floor, conditions }, k) => { if (floor !== null) { pen.globalAlpha = conditions ? 1 : 0.45; line(pen, points(bound), colour("ink"), 1.4, DASHES[k]); pen.globalAlpha = 1; } });
  if (alive < n.length) {
    const at = x(Math.max(n[alive], x.low));
    line(pen, [[at, box.top], [at, box.bottom]], colour("bad"), 1.5);
    pen.fillStyle = colour("bad");
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    const text = `${count(main.n_diverged.at(-1))} of ${count(setup.n_runs)} runs diverged`;
    pen.fillText(text, Math.min(at + 6, box.right - pen.measureText(text).width - 4), box.bottom - 6);
  }
  if (hover.curves !== undefined) {
    const at = points(main.mean)[hover.curves]?.[0];
    if (at !== undefined) line(pen, [[at, box.top], [at, box.bottom]], colour("quiet"), 1);
  }
  pen.restore();
  canvas.places = n.map((each) => x(Math.max(each, x.logarithmic ? x.low : 0)));
  canvas.setAttribute("aria-label", `Curves of the squared error. ${names().map(describeEnd).join(" ")}`);
  $("caption").textContent = `mean of ${count(setup.n_runs)} runs, bands with 50 and 90 % of the runs` + (lab.latencies.length && !embedded ? `; redrawn in ${Math.round(lab.latencies.at(-1))} ms` : "");
};
const describeEnd = (name) => {
  const runs = shown.runs[name];
  if (!runs) return "";
  const dead = runs.n_diverged.at(-1);
  if (dead) return `${setup.algorithms[name]}: ${count(dead)} of ${count(setup.n_runs)} runs diverged.`;
  return `${setup.algorithms[name]} ends at ${number(runs.mean.at(-1))}.`;
};
const readCurves = () => {
  const main = shown.runs[state.algorithm], k = hover.curves;
  if (!main || k === undefined || k >= main.n_gradients.length) return "";
  const parts = names().filter((name) => shown.runs[name]).map((name) => {
    const runs = shown.runs[name], dead = runs.n_diverged[k];
    return `${setup.algorithms[name]} ${dead ? `${count(dead)} runs diverged` : number(runs.mean[k])}`;
  });
  if (!main.n_diverged[k]) parts.push(`half of the runs ${number(main.q25[k])} to ${number(main.q75[k])}`);
  const exact = shown.exact[state.algorithm]?.values;
  if (exact) parts.push(`exact ${number(exact[k])}`);
  for (const { label, values } of main.bounds ?? []) if (values && values[k] !== null) parts.push(`${label} ${number(values[k])}`);
  return `${count(main.n_gradients[k])} pseudo-gradients: ${parts.join("; ")}.`;
};

const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
const shade = (share) => {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1), k = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return `rgb(${CIVIDIS[k].map((c, i) => Math.round(c + (CIVIDIS[k + 1][i] - c) * (at - k))).join()})`;
};
const edges = (list) => {
  const inner = list.slice(1).map((value, k) => Math.sqrt(value * list[k]));
  return [list[0] ** 2 / (inner[0] ?? list[0]), ...inner, list.at(-1) ** 2 / (inner.at(-1) ?? list.at(-1))];
};
const currentBatch = () => ["vrtd", "vrtd_growing"].includes(state.algorithm) ? Number(state.batch_size) : 1;
const drawMap = () => {
  const canvas = $("map"), { pen, width, height } = open(canvas), map = shown.map;
  canvas.cells = null;
  if (!map) return;
  if (!map.error) {
    $("map-readout").textContent = `There is no map here: ${map.reason}`;
    return;
  }
  const box = { left: 58, right: width - 14, top: 10, bottom: height - 62 };
  const across = edges(map.batch_sizes), up = edges(map.step_sizes);
  const x = scale(across[0], across.at(-1), box.left, box.right, true);
  const y = scale(Math.max(up[0], up.at(-1) * 1e-7), up.at(-1), box.bottom, box.top, true);
  const stable = map.error.flatMap((row, i) => row.filter((e, j) => e !== null && map.step_sizes[i] < map.stability[j]));
  const high = map.initial_error > 0 ? map.initial_error : Math.max(...stable);
  const finite = stable.filter((e) => e > 0 && e <= high);
  const lowest = Math.max(Math.min(...(finite.length ? finite : [high / 10])), high * 1e-6);
  const share = (e) => (Math.log(Math.max(e, 1e-300)) - Math.log(lowest)) / (Math.log(high) - Math.log(lowest) || 1);
  clip(pen, box);
  map.error.forEach((row, i) => row.forEach((e, j) => {
    const [l, r, b, t] = [x(across[j]), x(across[j + 1]), y(up[i]), y(up[i + 1])];
    pen.fillStyle = e === null || e > high * 1.0001 ? colour("line") : shade(1 - share(e));
    pen.fillRect(l, t, r - l + 0.6, b - t + 0.6);
  }));
  const limit = map.batch_sizes.map((M, j) => [x(M), y(map.stability[j])]);
  line(pen, limit.slice(1), "#000", 4); line(pen, limit.slice(1), "#fff", 2);
  const first = [[box.left, limit[0][1]], [x(across[1]), limit[0][1]]];
  line(pen, first, "#000", 4); line(pen, first, "#fff", 2);
  if (map.initial_error > 0) star(pen, x(map.best.batch_size), y(map.best.step_size), 8, "#fff", "#000");
  const [px, py] = [x(Math.min(Math.max(currentBatch(), across[0]), across.at(-1))), y(Number(state.step_size))];
  const inside = (value, a, b) => Math.min(Math.max(value, a), b);
  const at = [inside(px, box.left + 6, box.right - 6), inside(py, box.top + 6, box.bottom - 6)];
  for (const [style, w] of [["#000", 5.5], ["#fff", 3]]) {
    pen.strokeStyle = style; pen.lineWidth = w; pen.beginPath(); pen.arc(...at, 7, 0, 7); pen.stroke();
  }
  if (hover.map) {
    const [i, j] = hover.map;
    pen.strokeStyle = "#fff"; pen.lineWidth = 2;
    pen.strokeRect(x(across[j]), y(up[i + 1]), x(across[j + 1]) - x(across[j]), y(up[i]) - y(up[i + 1]));
  }
  pen.restore();
  frameTicks(pen, x, y, box);
  const barTop = height - 16, bar = [box.left + 74, box.right - 74];
  for (let k = 0; k < 60; k += 1) { pen.fillStyle = shade(1 - k / 59); pen.fillRect(bar[0] + (bar[1] - bar[0]) * k / 60, barTop, (bar[1] - bar[0]) / 60 + 1, 9); }
  pen.fillStyle = colour("quiet"); pen.textBaseline = "middle";
  pen.textAlign = "right"; pen.fillText(number(lowest, 2), bar[0] - 6, barTop + 4);
  pen.textAlign = "left"; pen.fillText(number(high, 2), bar[1] + 6, barTop + 4);
  canvas.cells = { x, y, across, up };
  if (!hover.map) $("map-readout").textContent = readMap();
};
const frameTicks = (pen, x, y, box) => {
  pen.fillStyle = colour("quiet");
  pen.textAlign = "right"; pen.textBaseline = "middle";
  for (const [value, label] of ticks(y, 6)) pen.fillText(label, box.left - 6, y(value));
  pen.textAlign = "center"; pen.textBaseline = "top";
  for (const [value, label] of ticks(x, 6)) if (value >= 1) pen.fillText(label, x(value), box.bottom + 4);
  pen.fillText("batch size (1 is TD)", (box.left + box.right) / 2, box.bottom + 22);
  pen.save(); pen.translate(6, (box.top + box.bottom) / 2); pen.rotate(-Math.PI / 2); pen.fillText("step size", 0, 0); pen.restore();
};
const readMap = () => {
  const map = shown.map;
  if (!map?.error) return map ? `There is no map here: ${map.reason}` : "";
  if (!hover.map) {
    const best = map.initial_error > 0 ? ` Best (star): ${number(map.best.error)} with step size ${number(map.best.step_size, 3)} and batch size ${count(map.best.batch_size)}.` : "";
    return `Yellow is better, grey is worse than the start. Line: stability limit.${best}`;
  }
  const [i, j] = hover.map, e = map.error[i][j], holds = Object.entries(map.admissible).filter(([, cells]) => cells[i][j]).map(([name]) => name);
  return `Step size ${number(map.step_sizes[i], 3)}, batch size ${count(map.batch_sizes[j])}: error ${e === null ? "overflows" : number(e)}${holds.length ? `; ${holds.join(", ")} applies` : ""}.`;
};

const drawPlane = () => {
  const canvas = $("plane"), { pen, width, height } = open(canvas), main = shown.runs[state.algorithm];
  canvas.points = null;
  $("plane-caption").textContent = "of the first two features: paths of the mean and of 6 runs, ends of 300 runs, ★ solution";
  if (!main?.plane) {
    pen.fillStyle = colour("quiet"); pen.textAlign = "center";
    pen.fillText(main ? "Needs two features or more." : "", width / 2, height / 2);
    $("plane-readout").textContent = "";
    return;
  }
  const box = { left: 46, right: width - 12, top: 10, bottom: height - 42 }, sample = [main.plane.star];
  for (const [name, { plane }] of Object.entries(shown.runs)) {
    if (!plane) continue;
    const ends = plane.ends.filter(([a, b]) => a !== null && b !== null);
    for (const axis of [0, 1]) {  // 98 % of the ends on each axis, so that a few far ones do not hide the rest
      const sorted = ends.map((end) => end[axis]).sort((a, b) => a - b), other = main.plane.star[1 - axis];
      for (const q of [0.01, 0.99]) if (sorted.length) { const v = sorted[Math.floor(q * (sorted.length - 1))]; sample.push(axis ? [other, v] : [v, other]); }
    }
    const settles = shown.exact[name]?.settles;
    if (settles) sample.push(settles);
  }
  if (view.plane === "whole") for (const path of [main.plane.mean, ...main.plane.paths]) sample.push(...path.filter(([a]) => a !== null));
  const span = (axis) => {
    const list = sample.map((p) => p[axis]).filter((v) => Math.abs(v) < 1e6);
    return [Math.min(...list), Math.max(...list)];
  };
  const [[x0, x1], [y0, y1]] = [span(0), span(1)];
  const unit = 1.12 * Math.max((x1 - x0) / (box.right - box.left), (y1 - y0) / (box.bottom - box.top), 1e-9);
  const [cx, cy] = [(x0 + x1) / 2, (y0 + y1) / 2], [w, h] = [unit * (box.right - box.left) / 2, unit * (box.bottom - box.top) / 2];
  const x = scale(cx - w, cx + w, box.left, box.right, false), y = scale(cy - h, cy + h, box.bottom, box.top, false);
  frame(pen, x, y, box, ["θ₁", "θ₂"]);
  clip(pen, box);
  const place = (p) => [p[0] === null ? null : x(p[0]), p[1] === null ? null : y(p[1])];
  const order = [...names().slice(1), state.algorithm].filter((name) => shown.runs[name]?.plane);
  for (const name of order) {
    const { plane, old } = shown.runs[name];
    pen.globalAlpha = old ? 0.15 : 0.4;
    pen.fillStyle = colour(name);
    for (const end of plane.ends) if (end[0] !== null) { pen.beginPath(); pen.arc(...place(end), 1.9, 0, 7); pen.fill(); }
    pen.globalAlpha = old ? 0.2 : 0.45;
    if (name === state.algorithm && isShown("runs")) for (const path of plane.paths) line(pen, path.map(place), colour(name), 0.9);
    pen.globalAlpha = old ? 0.3 : 1;
    line(pen, plane.mean.map(place), colour("paper"), 4.6);
    line(pen, plane.mean.map(place), colour(name), 2.6);
    pen.globalAlpha = 1;
  }
  for (const name of order) {
    const settles = shown.exact[name]?.settles;
    if (!settles) continue;
    const [sx, sy] = place(settles);
    for (const [style, thick] of [[colour("paper"), 6], [colour(name), 3]]) {
      line(pen, [[sx - 6, sy - 6], [sx + 6, sy + 6]], style, thick); line(pen, [[sx - 6, sy + 6], [sx + 6, sy - 6]], style, thick);
    }
  }
  star(pen, ...place(main.plane.star), 9, colour("ink"), colour("paper"));
  if (hover.plane) { pen.strokeStyle = colour("ink"); pen.lineWidth = 1.5; pen.beginPath(); pen.arc(...place(hover.plane.at), 6, 0, 7); pen.stroke(); }
  pen.restore();
  const labelled = [{ at: main.plane.star, text: "solution θ*" }];
  for (const name of order) {
    const { plane } = shown.runs[name], settles = shown.exact[name]?.settles, label = setup.algorithms[name];
    if (settles) labelled.push({ at: settles, text: `${label}: its mean settles here` });
    plane.mean.forEach((at, k) => { if (at[0] !== null) labelled.push({ at, text: `${label}: mean after ${count(shown.runs[name].n_gradients[k])} pseudo-gradients` }); });
    plane.ends.forEach((at, k) => { if (at[0] !== null) labelled.push({ at, text: `${label}: end of run ${k}` }); });
  }
  canvas.points = labelled.map((each) => ({ ...each, place: place(each.at) }));
  if (!hover.plane) $("plane-readout").textContent = order.some((name) => shown.exact[name]?.settles) ? "× where the mean of an algorithm settles in the long run." : "";
};
const readPlane = () => hover.plane ? `${hover.plane.text}: θ₁ = ${number(hover.plane.at[0])}, θ₂ = ${number(hover.plane.at[1])}.` : "";

const swatch = (name, width, dash = []) => {
  const canvas = make("canvas", { width: 60, height: 26, "aria-hidden": "true" }), pen = canvas.getContext("2d");
  pen.scale(2, 2);
  line(pen, [[0, 6.5], [30, 6.5]], colour(name), width, dash);
  return canvas;
};
const drawLegend = () => {
  const main = shown.runs[state.algorithm], entries = [];
  for (const name of names()) entries.push([swatch(name, 3), setup.algorithms[name]]);
  const exact = shown.exact[state.algorithm];
  if (exact?.values) entries.push([swatch("ink", 2, [5, 4]), exact.method?.startsWith("approx") ? "expected error (approximation)" : "exact mean"]);
  if (isShown("bounds")) (main?.bounds ?? []).forEach(({ label, floor, conditions }, k) => { if (floor !== null) entries.push([swatch("ink", 1.4, DASHES[k]), conditions ? label : `${label} (does not apply)`]); });
  for (const name of names()) if (usable(shown.exact[name]?.settles_error)) entries.push([swatch(name, 2, [2, 4]), `where ${setup.algorithms[name]} settles`]);
  $("legend").replaceChildren(...entries.map(([picture, label]) => make("li", {}, picture, label)));
};
const drawTables = () => {
  const head = ["", "mean of the runs", "± standard error", "exact mean", "settles at", "diverged"];
  $("numbers").tHead.replaceChildren(make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text))));
  $("numbers").tBodies[0].replaceChildren(...names().filter((name) => shown.runs[name]).map((name) => {
    const runs = shown.runs[name], exact = shown.exact[name], dead = runs.n_diverged.at(-1);
    const cells = dead ? ["–", "–"] : [number(runs.mean.at(-1)), number(runs.standard_error.at(-1), 2)];
    cells.push(exact ? number(exact.values?.at(-1)) : "…", exact ? number(exact.settles_error) : "…", count(dead));
    const row = make("tr", { "data-name": name }, make("th", { scope: "row" }, setup.algorithms[name]), ...cells.map((text) => make("td", {}, text)));
    if (dead) row.lastChild.classList.add("bad");
    if (exact?.reason) row.children[3].title = exact.reason;
    return row;
  }));
  const bounds = shown.runs[state.algorithm]?.bounds ?? [];
  $("bounds-part").hidden = !bounds.length;
  $("bounds").tBodies[0].replaceChildren(...bounds.map((bound) => {
    const exact = shown.exact[state.algorithm]?.values;
    const broken = bound.conditions && bound.values && exact && exact.some((value, k) => value !== null && bound.values[k] !== null && value > bound.values[k] * (1 + 1e-9));
    const status = make("td", {}, bound.holds ? "proven, all conditions hold" : bound.conditions ? "all conditions hold, but the proof fails" : "does not apply here");
    if (broken) status.prepend(make("span", { class: "bad" }, "The exact error is above it. "));
    if (bound.reasons.length) status.append(make("ul", {}, ...bound.reasons.map((reason) => make("li", {}, reason))));
    return make("tr", {}, make("th", { scope: "row" }, bound.label), make("td", {}, bound.floor === null ? "none" : number(bound.floor)), status);
  }));
};
const draw = () => {
  drawCurves();
  drawMap();
  drawPlane();
  drawLegend();
  drawTables();
  readouts();
};
const readouts = () => {
  $("curves-readout").textContent = readCurves() || "Point at the curves, or focus them and use the arrow keys, to read values.";
  if (hover.map) $("map-readout").textContent = readMap();
  if (hover.plane) $("plane-readout").textContent = readPlane();
};

// Pointer and keys

const nearest = (list, distance) => list.reduce((best, each, k) => (distance(each) < distance(list[best]) ? k : best), 0);
const cellAt = ({ x, y, across, up }, px, py) => {
  const [M, a] = [x.back(px), y.back(py)];
  const j = across.findIndex((edge) => edge > M) - 1, i = up.findIndex((edge) => edge > a) - 1;
  return i < 0 || j < 0 ? null : [i, j];
};
const takeCell = () => {
  if (!hover.map || embedded) return;
  const [i, j] = hover.map, M = shown.map.batch_sizes[j], most = setup.ranges.batch_size.most;
  const step_size = String(Number(shown.map.step_sizes[i].toPrecision(3)));
  if (M === 1) move({ algorithm: "td", step_size });
  else move({ algorithm: state.algorithm === "vrtd_growing" ? "vrtd_growing" : "vrtd", step_size, batch_size: String(Math.min(M, most)) });
};
const listen = () => {
  const at = (event) => [event.offsetX, event.offsetY];
  $("curves").addEventListener("pointermove", (event) => {
    const places = $("curves").places;
    if (places) { hover.curves = nearest(places, (place) => Math.abs(place - event.offsetX)); drawCurves(); readouts(); }
  });
  $("map").addEventListener("pointermove", (event) => {
    if ($("map").cells) { hover.map = cellAt($("map").cells, ...at(event)); drawMap(); readouts(); }
  });
  $("map").addEventListener("click", (event) => {
    if ($("map").cells) { hover.map = cellAt($("map").cells, ...at(event)); takeCell(); }
  });
  $("plane").addEventListener("pointermove", (event) => {
    const points = $("plane").points, [px, py] = at(event);
    if (!points) return;
    const distance = ({ place }) => Math.hypot(place[0] - px, place[1] - py), best = points[nearest(points, distance)];
    hover.plane = distance(best) < 14 ? best : undefined;
    drawPlane(); readouts();
  });
  for (const name of ["curves", "map", "plane"]) {
    $(name).addEventListener("pointerleave", () => { if (document.activeElement !== $(name)) { delete hover[name]; draw(); } });
    $(name).addEventListener("blur", () => { delete hover[name]; draw(); });
    $(name).addEventListener("keydown", (event) => {
      const right = { ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0, up = { ArrowUp: 1, ArrowDown: -1 }[event.key] ?? 0;
      if (event.key === "Enter" && name === "map") takeCell();
      if (event.key === "Escape") { delete hover[name]; draw(); }
      if (!right && !up) return;
      event.preventDefault();
      const inside = (value, n) => Math.min(Math.max(value, 0), n - 1);
      if (name === "curves" && $("curves").places) hover.curves = inside((hover.curves ?? -1) + right + 10 * up, $("curves").places.length);
      if (name === "map" && $("map").cells) {
        const { x, y, across, up: steps } = $("map").cells;
        const from = hover.map ?? cellAt({ x, y, across, up: steps }, x(currentBatch()), y(Number(state.step_size))) ?? [0, 0];
        hover.map = [inside(from[0] + up, steps.length - 1), inside(from[1] + right, across.length - 1)];
      }
      if (name === "plane" && $("plane").points) {
        const points = $("plane").points, from = hover.plane ? points.findIndex((each) => each.text === hover.plane.text) : -1;
        hover.plane = points[inside(from + right + 10 * up, points.length)];
      }
      draw();
    });
  }
  window.addEventListener("resize", draw);
  window.addEventListener("hashchange", () => { readAddress(); showState(); refresh(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
};
const begin = async () => {
  setup = embedded ? embedded.setup : await (await fetch("setup")).json();
  buildControls();
  readAddress();
  if (embedded) {
    if (!(view.preset in setup.presets)) { const [name, preset] = Object.entries(setup.presets)[0]; state = { ...preset.settings }; Object.assign(view, preset.view, { preset: name }); }
    $("mode").textContent = "Stored pictures of the lab: choose a preset and point at the figures. Run vrtd lab to move the controls.";
    inputs.off = () => { $("settings").disabled = true; };
  }
  showState();
  listen();
  movedAt = performance.now();
  refresh();
};
begin();
