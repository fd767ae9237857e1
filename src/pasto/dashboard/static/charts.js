// Charts of a study's rounds. All text is inserted as text, never as markup.
"use strict";

const Charts = (() => {
  const cssVariable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const { formatConfidence, formatLift, formatNumber, formatPercent } = Formatting;

  function createElement(tag, text, attributes = {}) {
    const element = document.createElement(tag);
    if (text != null) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  function createLegendItem(colourClass, text) {
    const item = createElement("li");
    const namespace = "http://www.w3.org/2000/svg";
    const mark = document.createElementNS(namespace, "svg");
    const box = document.createElementNS(namespace, "rect");
    mark.setAttribute("viewBox", "0 0 10 10");
    mark.setAttribute("aria-hidden", "true");
    for (const [name, value] of [["width", 10], ["height", 10], ["rx", 2], ["class", colourClass]]) box.setAttribute(name, value);
    mark.append(box);
    item.append(mark, document.createTextNode(text));
    return item;
  }

  // Return a table of the chart's numbers, for screen readers and for exact values.
  function createTable(caption, headers, rows) {
    const details = createElement("details");
    details.append(createElement("summary", "The numbers"));
    const frame = createElement("div", null, { class: "table-scroll", tabindex: "0", role: "region", "aria-label": caption });
    const table = createElement("table");
    table.append(createElement("caption", caption));
    const head = createElement("thead").appendChild(createElement("tr")).parentNode;
    headers.forEach((text) => head.firstChild.append(createElement("th", text, { scope: "col", class: "number" })));
    const body = createElement("tbody");
    rows.forEach((row) => {
      const line = createElement("tr");
      row.forEach((text) => line.append(createElement("td", text, { class: "number" })));
      body.append(line);
    });
    table.append(head, body);
    frame.append(table);
    details.append(frame);
    return details;
  }

  const newestFirst = (rows, count = 30) => rows.slice(-count).reverse();

  function createAxes(format) {
    const line = { stroke: cssVariable("--muted"), grid: { stroke: cssVariable("--line"), width: 1 }, ticks: { stroke: cssVariable("--line") } };
    const wholeNumbers = (_, splits) => splits.map((value) => (Number.isInteger(value) ? formatNumber(value) : ""));
    return [{ ...line, values: wholeNumbers, size: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 100000, 1000000] }, { ...line, values: (_, splits) => splits.map(format), size: 58 }];
  }

  function drawPlot(container, label, options, data) {
    const isTableOpen = container.querySelector("details")?.open;
    container.plot?.destroy();
    container.replaceChildren();
    container.setAttribute("aria-label", label);
    const target = createElement("div", null, { role: "img", "aria-label": label });
    container.append(target);
    container.plot = new uPlot({ width: Math.max(200, container.clientWidth), cursor: { drag: { x: false, y: false } }, legend: { show: false }, ...options }, data, target);
    return isTableOpen;
  }

  const withOpacity = (colour, opacity) => {
    const parts = colour.match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
    return `rgba(${parts.join(",")},${opacity})`;
  };

  // A candidate has the same colour as long as it is among the leaders.
  const colourByName = new Map();
  function orderByColour(names) {
    for (const name of [...colourByName.keys()]) if (!names.includes(name)) colourByName.delete(name);
    for (const name of names) {
      const used = new Set(colourByName.values());
      if (!colourByName.has(name)) colourByName.set(name, [0, 1, 2, 3, 4, 5, 6].find((number) => !used.has(number)));
    }
    return names.map((_, index) => index).sort((a, b) => colourByName.get(names[a]) - colourByName.get(names[b]));
  }

  function drawPolicy(container, data) {
    const { versions, others, count } = data.policy;
    const order = orderByColour(data.policy.names);
    const names = order.map((index) => data.policy.names[index]), shares = order.map((index) => data.policy.shares[index]);
    const colourClasses = names.map((name) => `series-${colourByName.get(name)}`);
    if (!versions.length) return container.replaceChildren(createElement("p", "No policy was served yet.", { class: "muted" }));
    const parts = others ? [...shares, others.shares] : shares;
    const labels = others ? [...names, others.name] : names;
    const colours = labels.map((_, index) => (others && index === labels.length - 1 ? cssVariable("--other-candidates") : cssVariable(`--${colourClasses[index]}`)));
    // A policy is constant in its round; the last one is served until now.
    const x = [...versions, versions[versions.length - 1] + 1];
    const sums = [];
    parts.forEach((part, index) => {
      const steps = [...part, part[part.length - 1]];
      sums.push(steps.map((share, number) => share + (index ? sums[index - 1][number] : 0)));
    });
    const stepped = uPlot.paths.stepped({ align: 1 });
    const series = sums.map((_, index) => ({ label: labels[index], stroke: colours[index], fill: withOpacity(colours[index], 0.85), width: 0, paths: stepped, points: { show: false } }));
    const description = `Shares of ${count} candidates by round. Now: ` + labels.map((name, index) => `${name} ${formatPercent(parts[index].at(-1))}`).join(", ");
    const isTableOpen = drawPlot(container, description, {
      height: 260,
      scales: { x: { time: false, range: (_, low, high) => [low, high] }, y: { range: [0, 1] } },
      axes: createAxes((value) => Math.round(100 * value) + "%"),
      series: [{}, ...series.reverse()],
    }, [x, ...sums.slice().reverse()]);
    const legend = createElement("ul", null, { class: "legend" });
    labels.forEach((name, index) => {
      const colourClass = others && index === labels.length - 1 ? "other-candidates" : colourClasses[index];
      legend.append(createLegendItem(colourClass, `${name} ${formatPercent(parts[index].at(-1))}`));
    });
    container.append(legend, describeStride(data));
    const rows = newestFirst(versions.map((version, index) => [version, data.policy.states[index], ...parts.map((part) => formatPercent(part[index]))]));
    container.append(createTable("Shares by policy, the newest first", ["Policy", "State", ...labels], rows));
    if (isTableOpen) container.querySelector("details").open = true;
  }

  function describeStride(data) {
    return createElement("p", data.stride > 1 ? `Rounds ${formatNumber(data.first)} to ${formatNumber(data.last)}; every ${formatNumber(data.stride)}th is drawn.` : "", { class: "muted" });
  }

  function drawMetric(container, metric) {
    const unit = metric.relative ? "%" : "";
    const formatValue = metric.relative ? formatLift : formatNumber;
    const title = createElement("h3", metric.name + " ");
    title.append(createElement("span", metric.role === "goal" ? "goal" : `${metric.side === "at_least" ? "≥" : "≤"} ${metric.limit}, stop level ${metric.floor_written} judged ${metric.judged}`, { class: "muted" }));
    let figure = container.querySelector("figure");
    if (!figure) {
      figure = createElement("figure", null, { class: "chart" });
      container.append(figure);
    }
    container.querySelector("h3")?.remove();
    container.prepend(title);
    if (!metric.rounds.length) return figure.replaceChildren(createElement("p", "No round has been learned yet.", { class: "muted" }));
    if (metric.value.every((value) => value == null)) return figure.replaceChildren(createElement("p", "Nothing was measured yet: no round had units both here and in the control with events of this metric.", { class: "muted" }));
    const last = metric.rounds.length - 1;
    const measured = [...metric.value, ...metric.low, ...metric.high, metric.at, metric.floor].filter((value) => value != null);
    const [low, high] = computeRange(metric, measured);
    const lines = [];
    if (metric.at != null) lines.push([metric.at, cssVariable("--muted"), [6, 4]]);
    if (metric.floor != null && metric.floor !== metric.at) lines.push([metric.floor, cssVariable("--bad"), [6, 4]]);
    if (metric.relative) lines.push([0, cssVariable("--line"), []]);
    const colour = cssVariable(metric.role === "goal" ? "--series-0" : "--series-2");
    const description = `${metric.name} by round${metric.relative ? ", in percent over the control" : ""}. Last: ${formatValue(metric.value[last])}, between ${formatValue(metric.low[last])} and ${formatValue(metric.high[last])}`;
    const isTableOpen = drawPlot(figure, description, {
      height: 200,
      scales: { x: { time: false, range: (_, from, to) => (from === to ? [from - 1, to + 1] : [from, to]) }, y: { range: [low, high] } },
      axes: createAxes((value) => formatNumber(value) + unit),
      series: [
        {},
        { stroke: "transparent", points: { show: false } },
        { stroke: "transparent", points: { show: false } },
        { label: metric.name, stroke: colour, width: 2, points: { show: metric.rounds.length < 40, size: 5, fill: colour } },
      ],
      bands: [{ series: [2, 1], fill: withOpacity(colour, 0.2) }],
      hooks: { draw: [(plot) => {
        lines.forEach(([value, stroke, dash]) => drawLevel(plot, value, stroke, dash));
        if (metric.rounds.length === 1) drawInterval(plot, metric, colour);  // a band needs two rounds
      }] },
    }, [metric.rounds, clamp(metric.low, low, high), clamp(metric.high, low, high), metric.value]);
    figure.append(createElement("p", `Last: ${formatValue(metric.value[last])} (${formatValue(metric.low[last])} to ${formatValue(metric.high[last])}, ${formatConfidence(metric.confidence)}${metric.relative ? " over the control" : ""})`, { class: "muted" }));
    const rows = newestFirst(metric.rounds.map((round, index) => [
      round, formatNumber(metric.units[index]), formatNumber(metric.control[index]), formatNumber(metric.served[index]),
      formatValue(metric.value[index]), formatValue(metric.low[index]), formatValue(metric.high[index]),
    ]));
    figure.append(createTable(`${metric.name} by round, the newest first`, ["Round", "Units", "Control", "Served", metric.relative ? "Lift" : "Level", "Low", "High"], rows));
    if (isTableOpen) figure.querySelector("details").open = true;
  }

  // Early rounds with few units have wide intervals. The range therefore contains the middle 90 % of interval ends.
  function computeRange(metric, measured) {
    const ends = [...metric.low, ...metric.high].filter((value) => value != null).sort((a, b) => a - b);
    const cut = Math.floor(ends.length / 20);
    const chosen = [...ends.slice(cut, ends.length - cut), ...metric.value.filter((value) => value != null), ...[metric.at, metric.floor].filter((value) => value != null)];
    const from = Math.min(...(chosen.length ? chosen : measured.length ? measured : [0])), to = Math.max(...(chosen.length ? chosen : measured.length ? measured : [1]));
    const margin = 0.06 * (to - from || Math.abs(to) || 1);
    return [from - margin, to + margin];
  }

  const clamp = (values, low, high) => values.map((value) => (value == null ? null : Math.min(high, Math.max(low, value))));

  function drawLevel(plot, value, stroke, dash) {
    const y = plot.valToPos(value, "y", true);
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

  function drawInterval(plot, metric, stroke) {
    if (metric.low[0] == null || metric.high[0] == null) return;
    const x = plot.valToPos(metric.rounds[0], "x", true);
    plot.ctx.save();
    plot.ctx.strokeStyle = stroke;
    plot.ctx.lineWidth = devicePixelRatio * 2;
    plot.ctx.beginPath();
    plot.ctx.moveTo(x, plot.valToPos(metric.low[0], "y", true));
    plot.ctx.lineTo(x, plot.valToPos(metric.high[0], "y", true));
    plot.ctx.stroke();
    plot.ctx.restore();
  }

  function drawMetrics(container, data) {
    container.querySelector(".loading")?.remove();
    while (container.children.length < data.metrics.length) container.append(createElement("div"));  // create all of them first, because they share the width
    data.metrics.forEach((metric, index) => drawMetric(container.children[index], metric));
  }

  return { drawPolicy, drawMetrics, createElement, createLegendItem };
})();
