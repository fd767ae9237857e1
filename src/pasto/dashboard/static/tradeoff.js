// The trade-off: single candidates, the best blend, and a slider for each guardrail that solves again at once.
"use strict";

const Tradeoff = (() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const WIDTH = 560, HEIGHT = 380, LEFT = 64, RIGHT = 16, TOP = 14, BOTTOM = 44;
  const { make, key } = Charts;
  const { formatNumber, formatPercent } = Formatting;
  const state = { limits: {}, across: 0, asked: 0 };

  function shape(tag, attributes, text) {
    const found = document.createElementNS(SPACE, tag);
    for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
    if (text != null) found.textContent = text;
    return found;
  }

  async function load(place) {
    const query = new URLSearchParams({ across: state.across });
    for (const [at, value] of Object.entries(state.limits)) query.set(`at${at}`, value);
    const number = ++state.asked;
    let told;
    try {
      const response = await fetch(`${place.dataset.source}?${query}`, { headers: { accept: "application/json" } });
      if (!response.ok) return;
      told = (await response.json()).tradeoff;
    } catch {
      return;
    }
    if (number !== state.asked) return;
    place.closest("section").hidden = !told || !told.rails.length;
    if (!told || !told.rails.length) return;
    if (!place.firstChild) build(place, told);
    show(place, told);
  }

  function build(place, told) {
    const picture = make("div", null, { class: "picture" });
    const side = make("div", null, { class: "sliders" });
    if (told.rails.length > 1) {
      const label = make("label", "Across", { for: "across" });
      const choice = make("select", null, { id: "across" });
      told.rails.forEach((rail, at) => choice.append(make("option", rail.name, { value: at })));
      choice.addEventListener("change", () => { state.across = Number(choice.value); load(place); });
      side.append(label, choice);
    }
    told.rails.forEach((rail, at) => {
      const label = make("label", `${rail.name} ${rail.side === "at_least" ? "at least" : "at most"} `, { for: `limit${at}` });
      const value = make("output", "", { for: `limit${at}`, id: `value${at}` });
      label.append(value);
      const slider = make("input", null, { type: "range", id: `limit${at}`, min: rail.low, max: rail.high, step: (rail.high - rail.low) / 200 });
      slider.value = rail.at;
      let timer;
      slider.addEventListener("input", () => {
        state.limits[at] = slider.value;
        value.textContent = formatNumber(Number(slider.value)) + rail.unit;
        clearTimeout(timer);
        timer = setTimeout(() => load(place), 60);
      });
      side.append(label, slider);
    });
    const back = make("button", "As the study states them", { class: "plain", type: "button" });
    back.addEventListener("click", () => { state.limits = {}; load(place); });
    side.append(back, make("div", null, { class: "found", role: "status" }));
    place.append(picture, side);
  }

  function show(place, told) {
    told.rails.forEach((rail, at) => {
      const slider = place.querySelector(`#limit${at}`);
      if (document.activeElement !== slider || !(at in state.limits)) slider.value = rail.at;
      place.querySelector(`#value${at}`).textContent = formatNumber(rail.at) + rail.unit;
      slider.setAttribute("aria-valuetext", formatNumber(rail.at) + rail.unit);
    });
    drawn(place.querySelector(".picture"), told);
    const found = place.querySelector(".found");
    found.replaceChildren();
    const blend = told.blend;
    if (!blend) return found.append(make("p", "Nothing can be computed at these limits.", { class: "notice warning" }));
    if (!blend.feasible) found.append(make("p", "No blend meets every hard limit; this is the nearest miss.", { class: "notice warning" }));
    const list = make("dl", null, { class: "facts tall" });
    const fact = (name, text) => { const pair = make("div"); pair.append(make("dt", name), make("dd", text)); list.append(pair); };
    const shares = Object.entries(blend.probabilities).sort((a, b) => b[1] - a[1]);
    fact("Best blend", shares.slice(0, 6).map(([name, share]) => `${formatPercent(share)} ${name}`).join(" + ") + (shares.length > 6 ? ` + ${shares.length - 6} more` : ""));
    fact(`Its ${told.goal.name}`, formatNumber(blend.y) + told.goal.unit + (told.goal.unit ? " over the baseline" : ""));
    fact("Best single", blend.best_single ?? "none meets every limit");
    found.append(list);
  }

  function drawn(place, told) {
    const rail = told.rails[told.across], blend = told.blend;
    const points = [...told.singles, ...told.curve, ...[blend, told.current].filter(Boolean).map((each) => ({ x: each.x[told.across], y: each.y }))];
    const xs = [...points.map((point) => point.x), rail.low, rail.high, rail.at], ys = points.map((point) => point.y);
    const [left, right] = padded(xs), [bottom, top] = padded(ys);
    const x = (value) => LEFT + ((value - left) / (right - left)) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - ((value - bottom) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img" });
    svg.append(shape("title", {}, `${told.goal.name} against ${rail.name}: ${told.candidates} single candidates and the best blend`));
    for (const at of ticks(left, right)) svg.append(shape("line", { class: "axis", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }), shape("text", { x: x(at), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, formatNumber(at) + rail.unit));
    for (const at of ticks(bottom, top)) svg.append(shape("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at) }), shape("text", { x: LEFT - 6, y: y(at) + 4, "text-anchor": "end" }, formatNumber(at) + told.goal.unit));
    svg.append(shape("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, rail.name), shape("text", { x: 14, y: (TOP + HEIGHT - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(TOP + HEIGHT - BOTTOM) / 2})` }, told.goal.name));
    svg.append(shape("line", { class: "limit", x1: x(rail.at), x2: x(rail.at), y1: TOP, y2: HEIGHT - BOTTOM }));
    for (const point of told.singles.filter((each) => !each.role)) dot(svg, x(point.x), y(point.y), 4, "single", point.name);
    if (told.curve.length > 1) svg.append(shape("polyline", { class: "curve", points: told.curve.map((point) => `${x(point.x)},${y(point.y)}`).join(" ") }));
    for (const point of told.singles.filter((each) => each.role)) dot(svg, x(point.x), y(point.y), 6, point.role === "best_single" ? "best" : "baseline", point.name);
    if (told.current) dot(svg, x(told.current.x[told.across]), y(told.current.y), 6, "current", "the blend so far");
    if (blend) dot(svg, x(blend.x[told.across]), y(blend.y), 8, "blend", "the best blend");
    const keys = make("ul", null, { class: "keys" });
    const kinds = [["c0", "best blend at these limits, and at others"], ["c3", "the blend so far"], ["c1", "best single"], ["text", "baseline"], ["others", "other singles"]];
    for (const [kind, text] of kinds) if (kind !== "c3" || told.current) keys.append(key(kind, text));
    place.replaceChildren(svg, keys);
  }

  function dot(svg, cx, cy, r, kind, name) {
    const found = shape("circle", { cx, cy, r, class: kind });
    found.append(shape("title", {}, name));
    svg.append(found);
  }

  function padded(values) {
    const low = Math.min(...values), high = Math.max(...values), margin = 0.05 * (high - low || Math.abs(high) || 1);
    return [low - margin, high + margin];
  }

  function ticks(low, high) {
    const rough = (high - low) / 5, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((part) => part * size).find((part) => part >= rough);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(Number(at.toPrecision(12)));
    return found;
  }

  return { load };
})();
