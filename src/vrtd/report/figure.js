"use strict";
// Interactive figures, tables and state pickers of a report. A page is complete without this script: it replaces the
// image of a figure by a drawing of the data that the figure contains as JSON. It loads nothing and sends nothing.
(() => {
  const SVG = "http://www.w3.org/2000/svg", MINUS = "\u2212", FONT = 12, MOST_ROWS = 2000, NEAR = 40;
  const DRAWN = new Set(["svg", "g", "path", "line", "rect", "text", "clipPath", "defs", "pattern"]);
  let nFigures = 0;

  // Elements. Attributes that begin with "on" are listeners; those that are null or false are left out.
  function make(name, attributes = {}, ...children) {
    const made = DRAWN.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }
  const button = (text, label, onclick, pressed = null) =>
    make("button", { type: "button", "aria-label": label, title: label, onclick, "aria-pressed": pressed }, text);

  // Numbers, as the package writes them.
  const superscript = (n) => String(n).replace(/[-\d]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  function number(value, digits = 4) {
    if (value === null || !Number.isFinite(value)) return "unknown";
    if (value === 0) return "0";
    const [mantissa, power] = value.toExponential(digits - 1).split("e"), exponent = Number(power);
    const decimals = Math.max(digits - 1 - exponent, 0);
    const text = exponent < -4 || exponent >= 7 ? `${mantissa}×10${superscript(exponent)}`
      : Number(`${mantissa}e${power}`).toLocaleString("en-US", fixed(decimals));
    return text.replace("-", MINUS);
  }
  // An estimate with its interval, to two digits of the half-width.
  function interval(value, low, high) {
    const half = (high - low) / 2, decimals = half > 0 ? Math.max(0, 1 - Math.floor(Math.log10(half))) : -1;
    const isPlain = decimals >= 0 && decimals <= 6 && Math.max(Math.abs(low), Math.abs(high)) < 1e7;
    return [value, low, high].map((v) => (isPlain ? v.toLocaleString("en-US", fixed(decimals)).replace("-", MINUS) : number(v)));
  }
  const fixed = (n) => ({ minimumFractionDigits: n, maximumFractionDigits: n });
  const exactly = (value) => Number.isInteger(value) && Math.abs(value) < 1e9
    ? value.toLocaleString("en-US").replace("-", MINUS) : number(value);

  // Scales and their ticks.
  function makeScale(log, [from, to], start, end) {
    const f = log ? Math.log10 : (v) => v, [a, b] = [f(from), f(to)];
    const at = (v) => v === null || (log && v <= 0) ? null : start + (end - start) * (f(v) - a) / (b - a);
    const back = (p) => { const v = a + (b - a) * (p - start) / (end - start); return log ? 10 ** v : v; };
    return { log, at, back, low: Math.min(from, to), high: Math.max(from, to) };
  }
  function findTicks({ log, low, high }, most) {
    if (log && high / low >= 10) {
      const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
      const step = Math.max(1, Math.ceil((last - first + 1) / most)), ticks = [];
      const asPower = first < -3 || last > 4;
      for (let n = first; n <= last; n += step) ticks.push([10 ** n, asPower ? `10${superscript(n)}` : plain(10 ** n)]);
      if (ticks.length > 2) return ticks;
      const some = [];
      for (let n = first - 1; n <= last; n++) for (const k of [1, 2, 5]) some.push(k * 10 ** n);
      return some.filter((v) => v >= low && v <= high).map((v) => [v, plain(v)]);
    }
    const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw)), ticks = [];
    const step = power * [1, 2, 5, 10].find((k) => k * power >= raw * 0.999);
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) {
      ticks.push([v, plain(Math.abs(v) < 1e-9 * step ? 0 : v, step)]);
    }
    return ticks;
  }
  function plain(value, step = value) {
    if (value !== 0 && (Math.abs(value) >= 1e7 || Math.abs(step) < 1e-4)) return number(value, 2);
    const decimals = Math.max(0, -Math.floor(Math.log10(Math.abs(step) || 1) + 1e-9));
    return value.toLocaleString("en-US", { maximumFractionDigits: decimals }).replace("-", MINUS);
  }
  const nearestTick = (ticks, value) => ticks.reduce((a, b) => (Math.abs(b[0] - value) < Math.abs(a[0] - value) ? b : a));
  const tell = (axis, value) => (axis.ticks?.length ? nearestTick(axis.ticks, value)[1] : exactly(value));

  // Symbols of points, around 0, with the radius 1.
  const round = "M-1 0A1 1 0 1 0 1 0A1 1 0 1 0 -1 0Z";
  const SYMBOLS = { o: round, ".": round, s: "M-.9-.9H.9V.9H-.9Z", D: "M0-1.2L1.2 0L0 1.2L-1.2 0Z",
    "^": "M0-1.1L1 .8H-1Z", v: "M0 1.1L1-.8H-1Z", x: "M-1-1L1 1M-1 1L1-1", "+": "M-1 0H1M0-1V1", _: "M-1 0H1", "|": "M0-1V1" };
  const OPEN = "x+_|";

  function save(name, content) {
    const address = URL.createObjectURL(content);
    make("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }
  function asCsv(rows) {
    const quote = (v) => (/[",\n]/.test(v ?? "") ? `"${String(v).replaceAll('"', '""')}"` : v ?? "");
    return rows.map((row) => row.map(quote).join(",")).join("\n") + "\n";
  }
  function swatch(series) {
    const style = `stroke:${series.colour};stroke-width:${series.width ? 2.5 : 0};stroke-dasharray:${series.dash ?? "none"}`;
    return make("svg", { class: "swatch", viewBox: "0 0 26 10", width: 26, height: 10, "aria-hidden": "true" },
      make("path", { d: "M1 5H25", style }),
      series.marker ? make("path", { d: SYMBOLS[series.marker] ?? round, transform: "translate(13 5) scale(3.5)", style: symbolStyle(series) }) : null);
  }
  const symbolStyle = ({ colour, hollow, marker, alpha }) =>
    `fill:${hollow || OPEN.includes(marker) ? "none" : colour};stroke:${colour};stroke-width:1.4;vector-effect:non-scaling-stroke;opacity:${alpha ?? 1}`;

  class Figure {
    constructor(figure, data) {
      this.data = data;
      this.name = figure.dataset.name;
      this.id = `plot-${++nFigures}`;
      this.hidden = new Set();
      this.options = data.views[0].options;
      const names = new Set(data.styles.map((style) => style.name));
      if (data.shown) for (const name of names) if (!data.shown.includes(name)) this.hidden.add(name);
      this.caption = figure.querySelector("figcaption").firstChild?.textContent.trim() ?? "";
      this.choosers = (data.choices ?? []).map((label, i) => make("select", { "aria-label": label, onchange: (e) => this.choose(i, e.target.value) },
        ...[...new Set(data.views.map((view) => view.options[i]))].map((option) => make("option", { value: option }, option))));
      this.plot = make("div", {
        class: "plot", tabindex: 0, role: "application", "aria-roledescription": "interactive figure",
        "aria-label": `${this.caption} Arrow keys read values, plus and minus zoom, 0 shows everything.`,
        onpointermove: (e) => this.point(e), onpointerleave: () => this.clear(), onpointerdown: (e) => this.press(e),
        onpointerup: (e) => this.release(e), ondblclick: () => this.reset(), onkeydown: (e) => this.key(e), onblur: () => this.clear(),
      });
      this.legend = make("div", { class: "legend", role: "group", "aria-label": "Curves" });
      this.logs = ["x", "y"].map((axis) => button(`log ${axis}`, `Logarithmic ${axis === "x" ? "horizontal" : "vertical"} axis`, () => this.toggleLog(axis), "false"));
      this.tools = make("div", { class: "tools", role: "group", "aria-label": "Tools" }, ...this.logs,
        button("+", "Zoom in", () => this.zoom(0.5)), button(MINUS, "Zoom out", () => this.zoom(2)), button("reset", "Show everything", () => this.reset()),
        button("SVG", "Download as SVG", () => this.saveSvg()), button("PNG", "Download as PNG", () => this.savePng()),
        button("CSV", "Download the values as CSV", () => save(`${this.name}.csv`, new Blob([asCsv(this.rows())], { type: "text/csv" }))));
      this.table = make("div", { class: "values", hidden: true });
      const shower = button("table", "Show the values as a table", () => {
        this.table.hidden = !this.table.hidden;
        shower.setAttribute("aria-expanded", String(!this.table.hidden));
        this.fillTable();
      });
      shower.setAttribute("aria-expanded", "false");
      this.tools.append(shower);
      this.told = make("output", { class: "unseen", "aria-live": "polite" });
      const chosen = this.choosers.map((chooser, i) => make("label", {}, data.choices[i], chooser));
      figure.prepend(make("div", { class: "live" }, chosen.length ? make("div", { class: "choosers" }, ...chosen) : null,
        this.plot, this.legend, this.tools, this.table, this.told));
      figure.classList.add("is-live");
      this.show(data.views[0]);
      new ResizeObserver(() => { if (this.plot.clientWidth !== this.width) this.draw(); }).observe(this.plot);
    }

    // Views and what is visible of them

    choose(i, option) {
      const wanted = this.options.map((each, j) => (j === i ? option : each));
      const matches = (view) => view.options.reduce((n, each, j) => n + (each === wanted[j] ? (j === i ? 100 : 10 - j) : 0), 0);
      this.show(this.data.views.reduce((a, b) => (matches(b) > matches(a) ? b : a)));
    }
    show(view) {
      this.options = view.options;
      const array = (i) => (i === undefined ? undefined : this.data.arrays[i]);
      const series = (view.series ?? []).map((each) => ({ ...this.data.styles[each.style], x: array(each.x), y: array(each.y), low: array(each.low), high: array(each.high) }));
      this.view = { lines: [], bars: [], gaps: [], texts: [], ...view, series };
      if (view.map) this.view.map = { ...view.map, values: array(view.map.values) };
      this.choosers.forEach((chooser, i) => {
        chooser.value = view.options[i];
        const others = this.data.views.filter((each) => each.options.every((option, j) => j >= i || option === view.options[j]));
        for (const option of chooser.options) option.disabled = !others.some((each) => each.options[i] === option.value);
      });
      this.scales = { x: view.x.log, y: view.y.log };
      this.named = series.filter((each) => each.name && !each.of);
      this.legend.replaceChildren(...(this.named.length > 1 ? this.named.map((each) => this.chip(each)) : []));
      if (this.named.length > 8) this.legend.append(button("all", "Show all curves", () => this.showOnly(this.named)), button("none", "Hide all curves", () => this.showOnly([])));
      this.logs.forEach((log, i) => { log.hidden = !this.canBeLog("xy"[i]); });
      this.reset();
      this.fillTable();
    }
    chip(series) {
      const chip = make("button", { type: "button", "aria-pressed": String(!this.hidden.has(series.name)), "data-name": series.name }, swatch(series), series.name);
      chip.addEventListener("click", () => {
        if (!this.hidden.delete(series.name)) this.hidden.add(series.name);
        this.showOnly(this.named.filter((each) => !this.hidden.has(each.name)));
      });
      return chip;
    }
    showOnly(some) {
      const kept = new Set(some.map((each) => each.name));
      for (const { name } of this.named) if (kept.has(name)) this.hidden.delete(name); else this.hidden.add(name);
      for (const chip of this.legend.querySelectorAll("[data-name]")) chip.setAttribute("aria-pressed", String(!this.hidden.has(chip.dataset.name)));
      this.draw();
      this.fillTable();
    }
    get visible() { return this.view.series.filter((each) => !this.hidden.has(each.of ?? each.name ?? "")); }

    // Limits

    numbers(axis, isLog) {
      const ends = (each) => (each[axis] ?? []).concat(axis === (each.bars ?? "y") ? [...(each.low ?? []), ...(each.high ?? [])] : []);
      return this.visible.flatMap(ends).filter((v) => v !== null && (!isLog || v > 0));
    }
    canBeLog(axis) {
      if (this.view.map || this.view.bars.length || this.view[axis].ticks) return false;
      return this.view[axis].log || this.numbers(axis, false).some((v) => v > 0);
    }
    reset() {
      this.limits = { x: this.limitsOf("x"), y: this.limitsOf("y") };
      this.draw();
    }
    limitsOf(axis) {
      const [from, to] = this.view[axis].limits, isLog = this.scales[axis];
      if (isLog === this.view[axis].log) return [from, to];
      const numbers = this.numbers(axis, isLog), some = numbers.filter((v) => v >= Math.min(from, to) && v <= Math.max(from, to));
      let low = Infinity, high = -Infinity;
      for (const v of some.length ? some : numbers) { low = Math.min(low, v); high = Math.max(high, v); }
      if (!(low < high)) return isLog ? [0.1, 10] : [from, to];
      const ends = isLog ? [low / (high / low) ** 0.03, high * (high / low) ** 0.03] : [low - 0.03 * (high - low), high + 0.03 * (high - low)];
      return from > to ? ends.reverse() : ends;
    }
    toggleLog(axis) {
      this.scales[axis] = !this.scales[axis];
      this.limits[axis] = this.limitsOf(axis);
      this.draw();
    }
    zoom(factor) {
      for (const axis of "xy") {
        const { back } = makeScale(this.scales[axis], this.limits[axis], 0, 1);
        this.limits[axis] = [back(0.5 - factor / 2), back(0.5 + factor / 2)];
      }
      this.draw();
    }

    // Drawing

    draw() {
      const { view } = this, width = this.width = this.plot.clientWidth;
      if (!width) return;
      this.clear();
      this.logs.forEach((log, i) => log.setAttribute("aria-pressed", String(this.scales["xy"[i]])));
      const yTicks = view.y.ticks, labels = yTicks ?? findTicks(makeScale(this.scales.y, this.limits.y, 0, 1), 6);
      const letters = Math.max(3, ...labels.map(([, text]) => text.length));
      const left = yTicks && !yTicks.length ? 10 : Math.min(24 + 6.6 * letters, 0.42 * width), right = view.map ? 74 : 14;
      const bottom = view.x.ticks && !view.x.ticks.length && !view.x.label ? 10 : 46;
      let height = Math.max(240, Math.min(0.56 * width, 440), 22 * (yTicks?.length ?? 0) + 60);
      if (view.map?.equal) height = Math.min((width - left - right) * view.map.shape[0] / view.map.shape[1] + bottom + 10, 620);
      const inner = { left, top: 10, right: width - right, bottom: height - bottom };
      if (view.map?.equal) inner.right = Math.min(inner.right, left + (inner.bottom - 10) * view.map.shape[1] / view.map.shape[0]);
      this.inner = inner;
      this.x = makeScale(this.scales.x, this.limits.x, inner.left, inner.right);
      this.y = makeScale(this.scales.y, this.limits.y, inner.bottom, inner.top);
      const clip = `${this.id}-clip`, hatch = `${this.id}-hatch`;
      const root = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", style: `font:${FONT}px system-ui,sans-serif;fill:var(--ink)` },
        make("defs", {},
          make("clipPath", { id: clip }, make("rect", { x: inner.left, y: inner.top, width: inner.right - inner.left, height: inner.bottom - inner.top })),
          make("pattern", { id: hatch, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
            make("line", { x1: 0, y1: 0, x2: 0, y2: 8, style: "stroke:var(--grid);stroke-width:1.2" }))));
      const inside = make("g", { "clip-path": `url(#${clip})` });
      this.drawAxes(root);
      root.append(inside);
      for (const [from, to] of view.gaps) {
        const a = this.x.at(from), b = this.x.at(to);
        inside.append(make("rect", { x: a, y: inner.top, width: Math.max(b - a, 0), height: inner.bottom - inner.top, style: `fill:url(#${hatch})` }));
      }
      if (view.map) this.drawMap(root, inside, hatch);
      for (const bar of view.bars) {
        const a = this.x.at(0), b = this.x.at(bar.value), h = Math.abs(this.y.at(bar.size) - this.y.at(0));
        inside.append(make("rect", { x: Math.min(a, b), y: this.y.at(bar.at) - h / 2, width: Math.abs(b - a), height: h, style: `fill:${bar.colour}` }));
      }
      for (const each of view.lines) {
        const p = this[each.axis].at(each.at), ends = each.axis === "x" ? `M${p} ${inner.top}V${inner.bottom}` : `M${inner.left} ${p}H${inner.right}`;
        inside.append(make("path", { d: ends, style: `fill:none;stroke:${each.colour};stroke-width:${each.width};stroke-dasharray:${each.dash ?? "none"}` }));
      }
      for (const each of this.visible) this.drawSeries(inside, each);
      for (const text of view.texts) this.drawText(root, text);
      this.cursor = make("g", { style: "pointer-events:none" });
      root.append(this.cursor);
      this.tip = make("div", { class: "tip", hidden: true, "aria-hidden": "true" });
      this.plot.replaceChildren(root, this.tip);
    }
    drawAxes(root) {
      const { inner, view } = this, grid = "stroke:var(--grid);stroke-opacity:.4", text = (content, attributes) => root.append(make("text", attributes, content));
      const visible = (axis, most) => (view[axis].ticks ?? findTicks(this[axis], most)).filter(([v]) => v >= this[axis].low - 1e-9 && v <= this[axis].high + 1e-9);
      const xTicks = visible("x", Math.max(2, Math.floor((inner.right - inner.left) / 75)));
      const longest = Math.max(0, ...xTicks.map(([, label]) => label.length)), every = Math.max(1, Math.ceil(xTicks.length * 7 * longest / (inner.right - inner.left)));
      xTicks.forEach(([v, label], i) => {
        const p = this.x.at(v);
        if (!view.map) root.append(make("path", { d: `M${p} ${inner.top}V${inner.bottom}`, style: grid }));
        if (i % every === 0) text(label, { x: p, y: inner.bottom + 16, "text-anchor": "middle" });
      });
      const space = inner.left - 22;
      for (const [v, label] of visible("y", Math.max(2, Math.floor((inner.bottom - inner.top) / 45)))) {
        const p = this.y.at(v), short = 6.6 * label.length > space ? `${label.slice(0, Math.floor(space / 6.6) - 1)}…` : label;
        if (!view.map) root.append(make("path", { d: `M${inner.left} ${p}H${inner.right}`, style: grid }));
        text(short, { x: inner.left - 6, y: p + 4, "text-anchor": "end" });
      }
      root.append(make("rect", { x: inner.left, y: inner.top, width: inner.right - inner.left, height: inner.bottom - inner.top, style: "fill:none;stroke:var(--grid)" }));
      text(view.x.label, { x: (inner.left + inner.right) / 2, y: inner.bottom + 36, "text-anchor": "middle" });
      const middle = (inner.top + inner.bottom) / 2;
      const size = Math.max(8, Math.min(FONT, FONT * (inner.bottom + 30) / (6.8 * view.y.label.length)));
      const centre = Math.max(middle, 3.4 * view.y.label.length * size / FONT);
      text(view.y.label, { x: 13, y: centre, "text-anchor": "middle", transform: `rotate(-90 13 ${centre})`, style: `font-size:${size}px` });
    }
    drawSeries(inside, series) {
      const far = (p) => Math.max(-1e5, Math.min(p, 1e5));
      const place = (xs, ys) => xs.map((v, i) => { const a = this.x.at(v), b = this.y.at(ys[i]); return a === null || b === null ? null : [far(a), far(b)]; });
      const points = series.points = place(series.x, series.y), group = make("g", { "data-series": series.of ?? series.name ?? "" });
      const join = (some) => some.reduce((d, p, i) => d + (p === null ? "" : `${i && some[i - 1] !== null ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`), "");
      if (series.low && !series.bars) {
        const low = place(series.x, series.low.map((v) => (v !== null && this.y.log && v <= 0 ? this.y.low : v))), high = place(series.x, series.high);
        let first = 0;
        const area = (end) => { if (end - first > 1) group.append(make("path", { d: `${join(high.slice(first, end))}${join(low.slice(first, end).reverse()).replace("M", "L")}Z`, style: `fill:${series.colour};fill-opacity:.2` })); first = end + 1; };
        low.forEach((p, i) => { if (p === null || high[i] === null) area(i); });
        area(low.length);
      }
      if (series.bars) points.forEach((p, i) => {
        if (p === null) return;
        const across = series.bars === "x", scale = across ? this.x : this.y, ends = [series.low[i], series.high[i]].map((v) => scale.at(v) ?? (across ? this.inner.left : this.inner.bottom));
        if (series.low[i] === null || series.high[i] === null) return;
        const d = across ? `M${ends[0]} ${p[1]}H${ends[1]}M${ends[0]} ${p[1] - 3}v6M${ends[1]} ${p[1] - 3}v6` : `M${p[0]} ${ends[0]}V${ends[1]}M${p[0] - 3} ${ends[0]}h6M${p[0] - 3} ${ends[1]}h6`;
        group.append(make("path", { d, style: `fill:none;stroke:${series.colour};stroke-width:1.3` }));
      });
      if (series.width) group.append(make("path", { d: join(points), style: `fill:none;stroke:${series.colour};stroke-width:${Math.max(series.width * 1.2, 1)};stroke-dasharray:${series.dash ?? "none"};stroke-linejoin:round;opacity:${series.alpha ?? 1}` }));
      if (series.marker) {
        const size = (series.size ?? 6) * (series.marker === "." ? 0.3 : 0.55);
        for (const p of points) if (p !== null) group.append(make("path", { d: SYMBOLS[series.marker] ?? round, transform: `translate(${p[0].toFixed(1)} ${p[1].toFixed(1)}) scale(${size})`, style: symbolStyle(series) }));
      }
      inside.append(group);
    }
    drawMap(root, inside, hatch) {
      const { map } = this.view, [rows, columns] = map.shape, [low, high] = map.range, span = high - low || 1;
      const ends = (from, to, n) => Array.from({ length: n + 1 }, (_, i) => from + (to - from) * i / n);
      const xs = ends(...map.x, columns).map(this.x.at), ys = ends(...map.y, rows).map(this.y.at);
      const rgb = map.colours.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
      const colour = (v) => {
        const t = Math.max(0, Math.min((v - low) / span, 1)) * (rgb.length - 1), k = Math.min(Math.floor(t), rgb.length - 2);
        return `rgb(${rgb[k].map((c, i) => Math.round(c + (rgb[k + 1][i] - c) * (t - k))).join(",")})`;
      };
      inside.append(make("rect", { x: this.inner.left, y: this.inner.top, width: this.inner.right - this.inner.left, height: this.inner.bottom - this.inner.top, style: `fill:url(#${hatch})` }));
      map.values.forEach((v, i) => {
        const r = Math.floor(i / columns), c = i % columns;
        if (v !== null) inside.append(make("rect", { x: xs[c], y: Math.min(ys[r], ys[r + 1]), width: xs[c + 1] - xs[c] + 0.6, height: Math.abs(ys[r + 1] - ys[r]) + 0.6, style: `fill:${colour(v)}` }));
      });
      const { top, bottom, right } = this.inner, n = 40, h = (bottom - top) / n, scale = makeScale(false, map.range, bottom, top);
      for (let i = 0; i < n; i++) root.append(make("rect", { x: right + 12, y: bottom - (i + 1) * h, width: 12, height: h + 0.6, style: `fill:${colour(low + span * (i + 0.5) / n)}` }));
      for (const [v, label] of findTicks(scale, 5)) root.append(make("text", { x: right + 28, y: scale.at(v) + 4 }, label));
      this.cell = (px, py) => {
        const c = xs.findIndex((x, i) => px >= x && px < xs[i + 1]), r = ys.findIndex((y, i) => py <= Math.max(y, ys[i + 1]) && py > Math.min(y, ys[i + 1]));
        return c < 0 || r < 0 ? null : r * columns + c;
      };
      this.corners = (i) => { const r = Math.floor(i / columns), c = i % columns; return [xs[c], Math.min(ys[r], ys[r + 1]), xs[c + 1] - xs[c], Math.abs(ys[r + 1] - ys[r])]; };
    }
    drawText(root, { x, y, dx, dy, text, size, colour, middle, align, share }) {
      const px = share ? this.inner.left + x * (this.inner.right - this.inner.left) : this.x.at(x), lines = text.split("\n"), height = size * 1.2;
      const first = this.y.at(y) - dy + (align === "center" ? -(lines.length - 1) * height / 2 + size / 3 : align === "top" ? size : align === "bottom" ? -(lines.length - 1) * height : 0);
      lines.forEach((line, i) => root.append(make("text", { x: px + dx, y: first + i * height, "text-anchor": middle ? "middle" : "start", style: `font-size:${size}px;fill:${colour};pointer-events:none` }, line)));
    }

    // Reading values

    point(event) {
      const box = this.plot.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
      if (this.drag) return this.frame(px, py);
      if (this.view.map) {
        const i = this.cell(px, py);
        return i === null ? this.clear() : this.tellCell(i);
      }
      const bar = this.view.bars.findIndex((each) => Math.abs(this.y.at(each.at) - py) < Math.abs(this.y.at(each.size) - this.y.at(0)) / 2 + 3);
      if (bar >= 0) return this.tellBar(bar);
      let best = null, least = Infinity;
      for (const series of this.visible) series.points.forEach((p, i) => {
        if (p === null || p[0] < this.inner.left - 1 || p[0] > this.inner.right + 1) return;
        const d = this.isCurve(series) ? Math.abs(p[0] - px) + 0.02 * Math.abs(p[1] - py) : Math.hypot(p[0] - px, p[1] - py);
        if (d < least) [best, least] = [[series, i], d];
      });
      return best && least < NEAR ? this.tellPoint(...best) : this.clear();
    }
    isCurve(series) { return Boolean(series.width) && series.x.length > 4; }
    labelOf(series) { return series.of ? `${series.of}${series.name ? ` (${series.name})` : ""}` : series.name ?? ""; }
    valueOf(series, i) {
      const at = series.bars === "x" ? series.x[i] : series.y[i], axis = series.bars === "x" ? this.view.x : this.view.y;
      const value = axis.ticks?.length ? tell(axis, at) : number(at), low = series.low?.[i] ?? null, high = series.high?.[i] ?? null;
      if (low === null || high === null || high - low <= 1e-5 * Math.abs(at)) return value;
      const isEven = Math.abs(high - at - (at - low)) < 0.02 * (high - low) || low === at / 10;  // a band ends there on logarithmic axes
      return isEven ? `${value} ± ${number(high - at, 2)}` : `${value} [${number(low, 3)}, ${number(high, 3)}]`;
    }
    tellPoint(series, i) {
      const { view } = this, [px, py] = series.points[i], isAcross = series.bars === "x", main = isAcross ? "y" : "x", rows = [];
      if (this.isCurve(series)) for (const other of this.visible) {
        if (!this.isCurve(other)) continue;
        let j = 0;
        other.points.forEach((p, k) => { if (p !== null && (other.points[j] === null || Math.abs(p[0] - px) < Math.abs(other.points[j][0] - px))) j = k; });
        if (other.points[j] !== null && Math.abs(other.points[j][0] - px) < 12) rows.push([other, j]);
      } else rows.push([series, i]);
      const marks = rows.map(([s, j]) => make("path", { d: round, transform: `translate(${s.points[j].join(" ")}) scale(4)`, style: `fill:${s.colour};stroke:var(--paper);stroke-width:1.5;vector-effect:non-scaling-stroke` }));
      this.cursor.replaceChildren(make("path", { d: `M${px} ${this.inner.top}V${this.inner.bottom}`, style: "stroke:var(--ink);stroke-opacity:.4" }), ...marks);
      this.at = [series, i];
      const head = `${view[main].label ? `${view[main].label}: ` : ""}${tell(view[main], series[main][i])}`;
      this.say(head, rows.map(([s, j]) => [s, this.labelOf(s), this.valueOf(s, j), s === series]), px, py);
    }
    tellBar(i) {
      const bar = this.view.bars[i];
      this.atBar = i;
      this.cursor.replaceChildren();
      this.say(tell(this.view.y, bar.at), [[{ ...bar, width: 3 }, this.view.x.label, number(bar.value), true]], this.x.at(bar.value), this.y.at(bar.at));
    }
    tellCell(i) {
      const { map } = this.view, [x, y, width, height] = this.corners(i);
      this.atCell = i;
      this.cursor.replaceChildren(make("rect", { x, y, width, height, style: "fill:none;stroke:var(--ink);stroke-width:2" }));
      const [rows, columns] = map.shape, c = i % columns, r = Math.floor(i / columns);
      const middle = ([from, to], k, n) => from + (to - from) * (k + 0.5) / n, where = (axis, v) => `${this.view[axis].label || axis} ${tell(this.view[axis], v)}`;
      const head = map.equal ? `row ${r + 1}, column ${c + 1}` : `${where("x", Number(middle(map.x, c, columns).toPrecision(6)))}, ${where("y", Number(middle(map.y, r, rows).toPrecision(6)))}`;
      this.say(head, [[null, map.label, map.values[i] === null ? "no rows" : number(map.values[i]), true]], x + width / 2, y);
    }
    say(head, rows, px, py) {
      const shown = rows.slice(0, 14), more = rows.length - shown.length;
      this.tip.replaceChildren(make("b", {}, head), ...shown.map(([series, name, value, isMain]) => make("div", { class: isMain ? "main" : null }, series ? swatch(series) : null, make("span", {}, name), make("span", {}, value))),
        more > 0 ? `and ${more} more` : null ?? "");
      this.tip.hidden = false;
      const { offsetWidth: w, offsetHeight: h } = this.tip;
      this.tip.style.left = `${Math.max(0, px + 14 + w > this.width ? px - w - 14 : px + 14)}px`;
      this.tip.style.top = `${Math.max(0, Math.min(py - h / 2, this.inner.bottom - h))}px`;
      this.text = `${head}. ${rows.map(([, name, value]) => `${name} ${value}`).join("; ")}`;
    }
    clear() {
      this.at = this.atCell = this.atBar = undefined;
      this.cursor?.replaceChildren();
      if (this.tip) this.tip.hidden = true;
    }

    // Zooming with the mouse, and everything with the keyboard

    press(event) {
      if (event.pointerType === "touch" || event.button) return;
      const box = this.plot.getBoundingClientRect();
      this.drag = [event.clientX - box.left, event.clientY - box.top];
      this.plot.setPointerCapture(event.pointerId);
    }
    frame(px, py) {
      const [x, y] = this.drag;
      if (Math.hypot(px - x, py - y) < 6) return;
      this.tip.hidden = true;
      this.cursor.replaceChildren(make("rect", { x: Math.min(x, px), y: Math.min(y, py), width: Math.abs(px - x), height: Math.abs(py - y), style: "fill:var(--blue);fill-opacity:.12;stroke:var(--blue)" }));
    }
    release(event) {
      if (!this.drag) return;
      const box = this.plot.getBoundingClientRect(), [x, y] = this.drag, px = event.clientX - box.left, py = event.clientY - box.top;
      this.drag = null;
      if (Math.abs(px - x) < 6 || Math.abs(py - y) < 6) return;
      const inside = (v, a, b) => Math.max(a, Math.min(v, b)), { left, right, top, bottom } = this.inner;
      this.limits = {
        x: [x, px].sort((a, b) => a - b).map((p) => this.x.back(inside(p, left, right))),
        y: [y, py].sort((a, b) => b - a).map((p) => this.y.back(inside(p, top, bottom))),
      };
      this.draw();
    }
    key(event) {
      const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (move) { this.step(...move); this.told.textContent = this.text; }
      else if (event.key === "+" || event.key === "=") this.zoom(0.5);
      else if (event.key === "-") this.zoom(2);
      else if (event.key === "0") this.reset();
      else if (event.key === "Escape") this.clear();
      else return;
      event.preventDefault();
    }
    step(dx, dy) {
      const { map, bars } = this.view, cycle = (i, n) => (i + n) % n;
      if (map) {
        const [rows, columns] = map.shape, up = map.y[0] < map.y[1] === this.limits.y[0] < this.limits.y[1] ? -1 : 1, i = this.atCell;
        if (i === undefined) return this.tellCell(0);
        return this.tellCell(cycle(Math.floor(i / columns) + up * dy, rows) * columns + cycle(i % columns + dx, columns));
      }
      if (bars.length) return this.tellBar(this.atBar === undefined ? 0 : cycle(this.atBar + dx + dy, bars.length));
      const isSeen = (p) => p !== null && p[0] >= this.inner.left - 1 && p[0] <= this.inner.right + 1;
      const some = this.visible.filter((each) => each.points.some(isSeen));
      if (!some.length) return;
      const now = this.at ?? [some[0], some[0].points.findIndex(isSeen)];
      if (!this.at) return this.tellPoint(...now);
      const series = some[cycle(Math.max(some.indexOf(now[0]), 0) + dy, some.length)], seen = series.points.map((p, i) => [p, i]).filter(([p]) => isSeen(p)).sort((a, b) => a[0][0] - b[0][0]);
      const px = now[0].points[now[1]][0];
      let k = seen.findIndex(([, i]) => series === now[0] && i === now[1]);
      if (k < 0) k = seen.reduce((best, [p], j) => (Math.abs(p[0] - px) < Math.abs(seen[best][0][0] - px) ? j : best), 0);
      this.tellPoint(series, seen[Math.max(0, Math.min(k + dx, seen.length - 1))][1]);
    }

    // Files and the table

    rows() {
      const { map, bars, series } = this.view, names = [this.view.x.label || "x", this.view.y.label || "y"];
      if (map) {
        const [rows, columns] = map.shape, middle = ([from, to], k, n) => Number((from + (to - from) * (k + 0.5) / n).toPrecision(7));
        return [[...names, map.label], ...map.values.map((v, i) => [middle(map.x, i % columns, columns), middle(map.y, Math.floor(i / columns), rows), v])];
      }
      if (bars.length) return [[names[1], names[0]], ...bars.map((bar) => [tell(this.view.y, bar.at), bar.value])];
      const some = series.filter((each) => this.visible.includes(each));
      const place = (axis, v) => (this.view[axis].ticks?.length ? tell(this.view[axis], v) : v);
      return [["curve", ...names, "low", "high"], ...some.flatMap((each) => each.x.map((x, i) => [this.labelOf(each), place("x", x), place("y", each.y[i]), each.low?.[i], each.high?.[i]]))];
    }
    fillTable() {
      this.table.replaceChildren();
      if (this.table.hidden) return;
      const [heads, ...rows] = this.rows(), shown = rows.slice(0, MOST_ROWS);
      const cell = (v) => (v === null || v === undefined ? "" : typeof v === "number" ? exactly(v) : v);
      this.table.append(make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Values" }, make("table", {},
        make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
        make("tbody", {}, ...shown.map((row) => make("tr", {}, ...row.map((v) => make("td", {}, cell(v)))))))));
      if (rows.length > shown.length) this.table.append(make("p", { class: "quiet" }, `The first ${MOST_ROWS} of ${rows.length} rows; the CSV has all.`));
    }
    picture() {
      this.clear();
      const copy = this.plot.querySelector("svg").cloneNode(true), style = getComputedStyle(document.documentElement);
      const rows = this.named.length > 1 ? this.named.filter((each) => !this.hidden.has(each.name)) : [], height = Number(copy.getAttribute("height"));
      rows.forEach((series, i) => {
        const key = swatch(series);
        key.setAttribute("x", 12); key.setAttribute("y", height + 6 + 18 * i);
        copy.append(key, make("text", { x: 46, y: height + 15 + 18 * i }, series.name));
      });
      const whole = height + 18 * rows.length + (rows.length ? 10 : 0);
      copy.setAttribute("height", whole);
      copy.setAttribute("viewBox", `0 0 ${this.width} ${whole}`);
      copy.setAttribute("xmlns", SVG);
      copy.prepend(make("rect", { width: this.width, height: whole, style: "fill:var(--paper)" }));
      const text = new XMLSerializer().serializeToString(copy).replace(/var\((--\w+)\)/g, (_, name) => style.getPropertyValue(name).trim());
      return { text, width: this.width, height: whole };
    }
    saveSvg() { save(`${this.name}.svg`, new Blob([this.picture().text], { type: "image/svg+xml" })); }
    savePng() {
      const { text, width, height } = this.picture(), image = new Image(), canvas = make("canvas", { width: 2 * width, height: 2 * height });
      image.onload = () => { canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height); canvas.toBlob((blob) => save(`${this.name}.png`, blob)); };
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    }
  }

  // A table whose columns sort, and whose rows can be searched.
  function enlivenTable(box) {
    const table = box.querySelector("table"), body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    const told = make("output", { "aria-live": "polite" }), wanted = make("select", { "aria-label": heads[0].textContent, onchange: filter });
    const search = make("input", { type: "search", placeholder: "Search", "aria-label": "Search", oninput: filter });
    const kind = (row) => row.cells[0].textContent.trim();
    wanted.append(make("option", { value: "" }, "all"), ...[...new Set(rows.map(kind))].sort().map((each) => make("option", { value: each }, each)));
    function filter() {
      const words = search.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = (wanted.value && kind(row) !== wanted.value) || !words.every((word) => row.textContent.toLowerCase().includes(word));
      told.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    }
    const key = (row, i) => row.cells[i].dataset.sort ?? row.cells[i].textContent.trim();
    heads.forEach((head, i) => head.replaceChildren(make("button", { type: "button", onclick: () => {
      const down = head.getAttribute("aria-sort") === "ascending", isNumber = rows.some((row) => row.cells[i].dataset.sort !== undefined);
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = (a, b) => (isNumber ? Number(key(a, i)) - Number(key(b, i)) : key(a, i).localeCompare(key(b, i), "en", { numeric: true }));
      body.append(...rows.sort((a, b) => (down ? -1 : 1) * compare(a, b)));
    } }, head.textContent)));
    box.before(make("div", { class: "choosers" }, make("label", {}, heads[0].textContent, wanted), make("label", {}, "Search", search), told));
    filter();
  }

  // Inputs for a state, which show the value of the nearest state of the report.
  function enlivenPicker(box, { columns, value, low, high, rows, is_known: isKnown, level }) {
    const ranges = columns.map(({ values }) => (typeof values[0] === "string" ? null : values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity])));
    const first = Math.max(isKnown.indexOf(true), 0), told = make("output", { class: "picked", "aria-live": "polite" });
    const inputs = columns.map(({ name, values }, j) => {
      const some = [...new Set(values)].sort((a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(b)));
      const input = some.length <= 16
        ? make("select", { onchange: pick }, ...some.map((each) => make("option", { value: each, selected: each === values[first] }, typeof each === "number" ? exactly(each) : each)))
        : make("input", { type: "number", step: "any", min: ranges[j][0], max: ranges[j][1], value: values[first], oninput: pick });
      input.dataset.column = name;
      return input;
    });
    function pick() {
      const wanted = inputs.map((input, j) => (ranges[j] ? Number(input.value) : input.value));
      const distance = (i) => columns.reduce((sum, { values }, j) => sum + (ranges[j] ? ((values[i] - wanted[j]) / (ranges[j][1] - ranges[j][0] || 1)) ** 2 : Number(values[i] !== wanted[j])), 0);
      let best = 0, least = Infinity;
      for (let i = 0; i < value.length; i++) { const d = distance(i); if (d < least) [best, least] = [i, d]; }
      const ends = low[best] === null || high[best] === null ? null : interval(value[best], low[best], high[best]);
      const text = ends ? `${ends[0]} (${level} interval ${ends[1]} to ${ends[2]})` : number(value[best]);
      const where = columns.map(({ name, values }) => `${name} ${typeof values[best] === "number" ? exactly(values[best]) : values[best]}`).join(", ");
      const near = rows ? ` Rows of the log near it: ${exactly(rows[best])}.` : "";
      const nearest = least > 1e-12 ? `Nearest state of the report: ${where}.` : `State: ${where}.`;
      told.replaceChildren(make("b", {}, isKnown[best] ? `Value ${text}.` : "Not visited: the value is not known."), make("span", {}, ` ${nearest}${near}`));
    }
    box.append(make("div", { class: "choosers" }, ...columns.map(({ name }, j) => make("label", {}, name, inputs[j]))), told);
    box.hidden = false;
    pick();
  }

  const json = (box) => JSON.parse(box.querySelector("script[type='application/json']").textContent);
  for (const figure of document.querySelectorAll("figure[data-name]")) new Figure(figure, json(figure));
  for (const box of document.querySelectorAll(".sortable")) enlivenTable(box);
  for (const box of document.querySelectorAll(".picker")) enlivenPicker(box, json(box));
  const open = () => { const target = document.getElementById(decodeURIComponent(location.hash.slice(1))); if (target?.tagName === "DETAILS") target.open = true; };
  addEventListener("hashchange", open);
  open();
})();
