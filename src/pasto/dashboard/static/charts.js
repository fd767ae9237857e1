// Pictures of a study's rounds. Text goes into the page as text only, never as markup.
"use strict";

const Charts = (() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const { formatConfidence, formatLift, formatNumber, formatPercent } = Formatting;

  function make(tag, text, attributes = {}) {
    const found = document.createElement(tag);
    if (text != null) found.textContent = text;
    for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
    return found;
  }

  function key(kind, text) {
    const item = make("li");
    const space = "http://www.w3.org/2000/svg";
    const mark = document.createElementNS(space, "svg");
    const box = document.createElementNS(space, "rect");
    mark.setAttribute("viewBox", "0 0 10 10");
    mark.setAttribute("aria-hidden", "true");
    for (const [name, value] of [["width", 10], ["height", 10], ["rx", 2], ["class", kind]]) box.setAttribute(name, value);
    mark.append(box);
    item.append(mark, document.createTextNode(text));
    return item;
  }

  // The same numbers for those who cannot see the picture, or want them exactly.
  function table(caption, heads, rows) {
    const details = make("details");
    details.append(make("summary", "The numbers"));
    const frame = make("div", null, { class: "wide", tabindex: "0", role: "region", "aria-label": caption });
    const found = make("table");
    found.append(make("caption", caption));
    const head = make("thead").appendChild(make("tr")).parentNode;
    heads.forEach((text) => head.firstChild.append(make("th", text, { scope: "col", class: "num" })));
    const body = make("tbody");
    rows.forEach((row) => {
      const line = make("tr");
      row.forEach((text) => line.append(make("td", text, { class: "num" })));
      body.append(line);
    });
    found.append(head, body);
    frame.append(found);
    details.append(frame);
    return details;
  }

  const latest = (rows, count = 30) => rows.slice(-count).reverse();

  function axes(format) {
    const line = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
    const whole = (_, splits) => splits.map((value) => (Number.isInteger(value) ? formatNumber(value) : ""));
    return [{ ...line, values: whole, size: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000, 1000000] }, { ...line, values: (_, splits) => splits.map(format), size: 58 }];
  }

  function draw(place, label, options, data) {
    const open = place.querySelector("details")?.open;
    place.plot?.destroy();
    place.replaceChildren();
    place.setAttribute("aria-label", label);
    const target = make("div", null, { role: "img", "aria-label": label });
    place.append(target);
    place.plot = new uPlot({ width: Math.max(200, place.clientWidth), cursor: { drag: { x: false, y: false } }, legend: { show: false }, ...options }, data, target);
    return open;
  }

  const faded = (colour, strength) => {
    const parts = colour.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    return `rgba(${parts.join(",")},${strength})`;
  };

  // A candidate keeps its colour while it leads, however the order of the leaders changes.
  const coloured = new Map();
  function arranged(names) {
    for (const name of [...coloured.keys()]) if (!names.includes(name)) coloured.delete(name);
    for (const name of names) {
      const used = new Set(coloured.values());
      if (!coloured.has(name)) coloured.set(name, [0, 1, 2, 3, 4, 5, 6].find((number) => !used.has(number)));
    }
    return names.map((_, at) => at).sort((a, b) => coloured.get(names[a]) - coloured.get(names[b]));
  }

  function policy(place, told) {
    const { versions, others, count } = told.policy;
    const order = arranged(told.policy.names);
    const names = order.map((at) => told.policy.names[at]), shares = order.map((at) => told.policy.shares[at]);
    const kinds = names.map((name) => `c${coloured.get(name)}`);
    if (!versions.length) return place.replaceChildren(make("p", "No policy was served yet.", { class: "quiet" }));
    const parts = others ? [...shares, others.shares] : shares;
    const labels = others ? [...names, others.name] : names;
    const colours = labels.map((_, at) => (others && at === labels.length - 1 ? css("--others") : css(`--${kinds[at]}`)));
    // Steps, since a policy holds for its whole round; the last one holds until now.
    const x = [...versions, versions[versions.length - 1] + 1];
    const sums = [];
    parts.forEach((part, at) => {
      const held = [...part, part[part.length - 1]];
      sums.push(held.map((share, number) => share + (at ? sums[at - 1][number] : 0)));
    });
    const stepped = uPlot.paths.stepped({ align: 1 });
    const series = sums.map((_, at) => ({ label: labels[at], stroke: colours[at], fill: faded(colours[at], 0.85), width: 0, paths: stepped, points: { show: false } }));
    const text = `Shares of ${count} candidates by round. Now: ` + labels.map((name, at) => `${name} ${formatPercent(parts[at][parts[at].length - 1])}`).join(", ");
    const open = draw(place, text, {
      height: 260,
      scales: { x: { time: false, range: (_, low, high) => [low, high] }, y: { range: [0, 1] } },
      axes: axes((value) => Math.round(100 * value) + "%"),
      series: [{}, ...series.reverse()],
    }, [x, ...sums.slice().reverse()]);
    const keys = make("ul", null, { class: "keys" });
    labels.forEach((name, at) => keys.append(key(others && at === labels.length - 1 ? "others" : kinds[at], `${name} ${formatPercent(parts[at][parts[at].length - 1])}`)));
    place.append(keys, note(told));
    const rows = latest(versions.map((version, at) => [version, told.policy.states[at], ...parts.map((part) => formatPercent(part[at]))]));
    place.append(table("Shares by policy, the newest first", ["Policy", "State", ...labels], rows));
    if (open) place.querySelector("details").open = true;
  }

  function note(told) {
    return make("p", told.stride > 1 ? `Rounds ${formatNumber(told.first)} to ${formatNumber(told.last)}; every ${formatNumber(told.stride)}th is drawn.` : "", { class: "quiet" });
  }

  function metric(place, one) {
    const unit = one.relative ? "%" : "";
    const formatValue = one.relative ? formatLift : formatNumber;
    const title = make("h3", one.name + " ");
    title.append(make("span", one.role === "goal" ? "goal" : `${one.side === "at_least" ? "≥" : "≤"} ${one.limit}, floor ${one.floor_written} judged ${one.judged}`, { class: "quiet" }));
    let picture = place.querySelector("figure");
    if (!picture) {
      picture = make("figure", null, { class: "chart" });
      place.append(picture);
    }
    place.querySelector("h3")?.remove();
    place.prepend(title);
    if (!one.rounds.length) return picture.replaceChildren(make("p", "No round has been learned yet.", { class: "quiet" }));
    if (one.value.every((value) => value == null)) return picture.replaceChildren(make("p", "Nothing was measured yet: no round had units both here and in the control with events of this metric.", { class: "quiet" }));
    const last = one.rounds.length - 1;
    const measured = [...one.value, ...one.low, ...one.high, one.at, one.floor].filter((value) => value != null);
    const [low, high] = spread(one, measured);
    const lines = [];
    if (one.at != null) lines.push([one.at, css("--quiet"), [6, 4]]);
    if (one.floor != null && one.floor !== one.at) lines.push([one.floor, css("--bad"), [6, 4]]);
    if (one.relative) lines.push([0, css("--line"), []]);
    const colour = css(one.role === "goal" ? "--c0" : "--c2");
    const text = `${one.name} by round${one.relative ? ", in percent over the control" : ""}. Last: ${formatValue(one.value[last])}, between ${formatValue(one.low[last])} and ${formatValue(one.high[last])}`;
    const open = draw(picture, text, {
      height: 200,
      scales: { x: { time: false, range: (_, from, to) => (from === to ? [from - 1, to + 1] : [from, to]) }, y: { range: [low, high] } },
      axes: axes((value) => formatNumber(value) + unit),
      series: [
        {},
        { stroke: "transparent", points: { show: false } },
        { stroke: "transparent", points: { show: false } },
        { label: one.name, stroke: colour, width: 2, points: { show: one.rounds.length < 40, size: 5, fill: colour } },
      ],
      bands: [{ series: [2, 1], fill: faded(colour, 0.2) }],
      hooks: { draw: [(plot) => {
        lines.forEach(([at, stroke, dash]) => level(plot, at, stroke, dash));
        if (one.rounds.length === 1) whisker(plot, one, colour);  // a band needs two rounds
      }] },
    }, [one.rounds, clamp(one.low, low, high), clamp(one.high, low, high), one.value]);
    picture.append(make("p", `Last: ${formatValue(one.value[last])} (${formatValue(one.low[last])} to ${formatValue(one.high[last])}, ${formatConfidence(one.confidence)}${one.relative ? " over the control" : ""})`, { class: "quiet" }));
    const rows = latest(one.rounds.map((round, at) => [round, formatNumber(one.units[at]), formatNumber(one.control[at]), formatNumber(one.served[at]), formatValue(one.value[at]), formatValue(one.low[at]), formatValue(one.high[at])]));
    picture.append(table(`${one.name} by round, the newest first`, ["Round", "Units", "Control", "Served", one.relative ? "Lift" : "Level", "Low", "High"], rows));
    if (open) picture.querySelector("details").open = true;
  }

  // A few early rounds with hardly any units would flatten all others: the middle nine tenths of the ends decide.
  function spread(one, measured) {
    const ends = [...one.low, ...one.high].filter((value) => value != null).sort((a, b) => a - b);
    const cut = Math.floor(ends.length / 20);
    const chosen = [...ends.slice(cut, ends.length - cut), ...one.value.filter((value) => value != null), ...[one.at, one.floor].filter((value) => value != null)];
    const from = Math.min(...(chosen.length ? chosen : measured.length ? measured : [0])), to = Math.max(...(chosen.length ? chosen : measured.length ? measured : [1]));
    const margin = 0.06 * (to - from || Math.abs(to) || 1);
    return [from - margin, to + margin];
  }

  const clamp = (values, low, high) => values.map((value) => (value == null ? null : Math.min(high, Math.max(low, value))));

  function level(plot, at, stroke, dash) {
    const y = plot.valToPos(at, "y", true);
    const { left, top, width, height } = plot.bbox;
    if (y < top || y > top + height) return;
    plot.ctx.save();
    plot.ctx.strokeStyle = stroke;
    plot.ctx.lineWidth = devicePixelRatio * 1.5;
    plot.ctx.setLineDash(dash.map((part) => part * devicePixelRatio));
    plot.ctx.beginPath();
    plot.ctx.moveTo(left, y);
    plot.ctx.lineTo(left + width, y);
    plot.ctx.stroke();
    plot.ctx.restore();
  }

  function whisker(plot, one, stroke) {
    if (one.low[0] == null || one.high[0] == null) return;
    const x = plot.valToPos(one.rounds[0], "x", true);
    plot.ctx.save();
    plot.ctx.strokeStyle = stroke;
    plot.ctx.lineWidth = devicePixelRatio * 2;
    plot.ctx.beginPath();
    plot.ctx.moveTo(x, plot.valToPos(one.low[0], "y", true));
    plot.ctx.lineTo(x, plot.valToPos(one.high[0], "y", true));
    plot.ctx.stroke();
    plot.ctx.restore();
  }

  function metrics(place, told) {
    place.querySelector(".loading")?.remove();
    while (place.children.length < told.metrics.length) place.append(make("div"));  // all of them first: they share the width
    told.metrics.forEach((one, at) => metric(place.children[at], one));
  }

  return { policy, metrics, make, key };
})();
