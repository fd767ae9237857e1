// Trade-off: candidates, the best blend, and a slider for each guardrail that solves the problem again.
"use strict";

const Tradeoff = (() => {
  const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
  const WIDTH = 560, HEIGHT = 380, LEFT = 64, RIGHT = 16, TOP = 14, BOTTOM = 44;
  const { createElement, createLegendItem } = Charts;
  const { formatNumber, formatPercent } = Formatting;
  const state = { limits: {}, across: 0, requests: 0 };

  function createShape(tag, attributes, text) {
    const element = document.createElementNS(SVG_NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text != null) element.textContent = text;
    return element;
  }

  async function load(container) {
    const query = new URLSearchParams({ across: state.across });
    for (const [at, value] of Object.entries(state.limits)) query.set(`at${at}`, value);
    const request = ++state.requests;
    let data;
    try {
      const response = await fetch(`${container.dataset.source}?${query}`, { headers: { accept: "application/json" } });
      if (!response.ok) return;
      data = (await response.json()).tradeoff;
    } catch {
      return;
    }
    if (request !== state.requests) return;  // a later request was sent
    container.closest("section").hidden = !data || !data.rails.length;
    if (!data || !data.rails.length) return;
    if (!container.firstChild) createControls(container, data);
    update(container, data);
  }

  function createControls(container, data) {
    const plotArea = createElement("div", null, { class: "plot-area" });
    const controls = createElement("div", null, { class: "sliders" });
    if (data.rails.length > 1) {
      const label = createElement("label", "Across", { for: "across" });
      const choice = createElement("select", null, { id: "across" });
      data.rails.forEach((rail, at) => choice.append(createElement("option", rail.name, { value: at })));
      choice.addEventListener("change", () => { state.across = Number(choice.value); load(container); });
      controls.append(label, choice);
    }
    data.rails.forEach((rail, at) => {
      const label = createElement("label", `${rail.name} ${rail.side === "at_least" ? "at least" : "at most"} `, { for: `limit${at}` });
      const value = createElement("output", "", { for: `limit${at}`, id: `value${at}` });
      label.append(value);
      const slider = createElement("input", null, { type: "range", id: `limit${at}`, min: rail.low, max: rail.high, step: (rail.high - rail.low) / 200 });
      slider.value = rail.at;
      let timer;
      slider.addEventListener("input", () => {
        state.limits[at] = slider.value;
        value.textContent = formatNumber(Number(slider.value)) + rail.unit;
        clearTimeout(timer);
        timer = setTimeout(() => load(container), 60);
      });
      controls.append(label, slider);
    });
    const reset = createElement("button", "As the study states them", { class: "plain", type: "button" });
    reset.addEventListener("click", () => { state.limits = {}; load(container); });
    controls.append(reset, createElement("div", null, { class: "result", role: "status" }));
    container.append(plotArea, controls);
  }

  function update(container, data) {
    data.rails.forEach((rail, at) => {
      const slider = container.querySelector(`#limit${at}`);
      if (document.activeElement !== slider || !(at in state.limits)) slider.value = rail.at;
      container.querySelector(`#value${at}`).textContent = formatNumber(rail.at) + rail.unit;
      slider.setAttribute("aria-valuetext", formatNumber(rail.at) + rail.unit);
    });
    drawPlot(container.querySelector(".plot-area"), data);
    const result = container.querySelector(".result");
    result.replaceChildren();
    const blend = data.blend;
    if (!blend) return result.append(createElement("p", "Nothing can be computed at these limits.", { class: "notice warning" }));
    if (!blend.feasible) result.append(createElement("p", "No blend meets every hard limit; this is the nearest miss.", { class: "notice warning" }));
    const list = createElement("dl", null, { class: "facts stacked" });
    const addFact = (name, text) => { const pair = createElement("div"); pair.append(createElement("dt", name), createElement("dd", text)); list.append(pair); };
    const shares = Object.entries(blend.probabilities).sort((a, b) => b[1] - a[1]);
    addFact("Best blend", shares.slice(0, 6).map(([name, share]) => `${formatPercent(share)} ${name}`).join(" + ") + (shares.length > 6 ? ` + ${shares.length - 6} more` : ""));
    addFact(`Its ${data.goal.name}`, formatNumber(blend.y) + data.goal.unit + (data.goal.unit ? " over the baseline" : ""));
    addFact("Best single", blend.best_single ?? "none meets every limit");
    result.append(list);
  }

  function drawPlot(container, data) {
    const rail = data.rails[data.across], blend = data.blend;
    const points = [...data.singles, ...data.curve, ...[blend, data.current].filter(Boolean).map((each) => ({ x: each.x[data.across], y: each.y }))];
    const xs = [...points.map((point) => point.x), rail.low, rail.high, rail.at], ys = points.map((point) => point.y);
    const [left, right] = addMargin(xs), [bottom, top] = addMargin(ys);
    const x = (value) => LEFT + ((value - left) / (right - left)) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - ((value - bottom) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);
    const svg = createShape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img" });
    svg.append(createShape("title", {}, `${data.goal.name} against ${rail.name}: ${data.candidates} single candidates and the best blend`));
    const beyond = rail.side === "at_least" ? [LEFT, x(rail.at)] : [x(rail.at), WIDTH - RIGHT];
    svg.append(createShape("rect", { class: "forbidden", x: beyond[0], y: TOP, width: Math.max(0, beyond[1] - beyond[0]), height: HEIGHT - BOTTOM - TOP }));
    for (const at of ticks(left, right)) svg.append(createShape("line", { class: "axis", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM }), createShape("text", { x: x(at), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, formatNumber(at) + rail.unit));
    for (const at of ticks(bottom, top)) svg.append(createShape("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at) }), createShape("text", { x: LEFT - 6, y: y(at) + 4, "text-anchor": "end" }, formatNumber(at) + data.goal.unit));
    svg.append(createShape("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, rail.name), createShape("text", { x: 14, y: (TOP + HEIGHT - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(TOP + HEIGHT - BOTTOM) / 2})` }, data.goal.name));
    svg.append(createShape("line", { class: "limit", x1: x(rail.at), x2: x(rail.at), y1: TOP, y2: HEIGHT - BOTTOM }));
    for (const point of data.singles.filter((each) => !each.role)) addDot(svg, x(point.x), y(point.y), 4, candidateClass(point, "candidate"), describePoint(point));
    if (data.curve.length > 1) svg.append(createShape("polyline", { class: "curve", points: data.curve.map((point) => `${x(point.x)},${y(point.y)}`).join(" ") }));
    for (const point of data.singles.filter((each) => each.role)) addDot(svg, x(point.x), y(point.y), 6, candidateClass(point, point.role === "best_single" ? "best-single" : "baseline"), describePoint(point));
    if (data.current) addDot(svg, x(data.current.x[data.across]), y(data.current.y), 6, "current", "the blend so far");
    if (blend) addDot(svg, x(blend.x[data.across]), y(blend.y), 8, "blend", "the best blend");
    const legend = createElement("ul", null, { class: "legend" });
    const legendItems = [["series-0", "best blend at these limits, and at others"], ["series-3", "the blend so far"], ["series-1", "best single"], ["text", "baseline"], ["other-candidates", "other candidates"]];
    if (data.singles.some((point) => point.broken.length)) legendItems.push(["hollow", "hollow: breaks a limit, named when pointed at"]);
    for (const [colourClass, text] of legendItems) {
      if (colourClass !== "series-3" || data.current) legend.append(createLegendItem(colourClass, text));
    }
    container.replaceChildren(svg, legend);
  }

  const candidateClass = (point, name) => point.broken.length ? `${name} hollow` : name;

  // Return a candidate's name, with the limits that it breaks: those of guardrails that are not drawn, too.
  function describePoint(point) {
    const reasons = point.broken.map((each) => `${each.name} ${formatNumber(each.level)}${each.unit}, limit ${formatNumber(each.limit)}${each.unit}`);
    return [point.name, ...reasons].join("\n");
  }

  function addDot(svg, cx, cy, r, className, name) {
    const circle = createShape("circle", { cx, cy, r, class: className });
    circle.append(createShape("title", {}, name));
    svg.append(circle);
  }

  function addMargin(values) {
    const low = Math.min(...values), high = Math.max(...values), margin = 0.05 * (high - low || Math.abs(high) || 1);
    return [low - margin, high + margin];
  }

  function ticks(low, high) {
    const minStep = (high - low) / 5, size = 10 ** Math.floor(Math.log10(minStep));
    const step = [1, 2, 5, 10].map((part) => part * size).find((part) => part >= minStep);
    const positions = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) positions.push(Number(at.toPrecision(12)));
    return positions;
  }

  return { load };
})();
