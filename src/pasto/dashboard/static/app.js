// Page updates: htmx reloads the parts of a page, and this file its charts, if the study has changed.
"use strict";

(() => {
  const connectionLost = document.getElementById("connection-lost");
  const announcement = document.getElementById("announcement");
  let rounds = null;  // data of the charts

  const readStudy = () => document.querySelector("#head [data-generation]")?.dataset;
  let study = readStudy() && { ...readStudy() };

  // Return the query for the selected rounds: all of them, or the latest ones of a long study.
  function roundQuery() {
    const latest = Number(document.getElementById("round-range")?.value ?? 0), count = rounds?.rounds ?? 0;
    return latest && count > latest ? `?first=${count - latest + 1}` : "";
  }

  async function loadCharts() {
    const container = document.getElementById("policy");
    if (!container) return;
    try {
      const response = await fetch(container.dataset.series + roundQuery(), { headers: { accept: "application/json" } });
      if (!response.ok) throw new Error(String(response.status));
      rounds = await response.json();
    } catch {
      if (!rounds) for (const placeholder of document.querySelectorAll("#policy .loading, #metrics .loading")) placeholder.textContent = "The rounds could not be read; trying again.";
      setTimeout(loadCharts, 5000);
      return;
    }
    drawCharts();
    const tradeoff = document.getElementById("tradeoff");
    if (tradeoff) Tradeoff.load(tradeoff);
  }

  function drawCharts() {
    if (!rounds || !document.getElementById("policy")) return;
    Charts.drawPolicy(document.getElementById("policy"), rounds);
    Charts.drawMetrics(document.getElementById("metrics"), rounds);
  }

  document.addEventListener("htmx:afterSwap", (event) => {
    connectionLost.hidden = true;
    if (event.detail.target.id !== "head") return;
    const now = readStudy();
    if (!now || now.generation === study?.generation) return;
    const before = study;
    study = { ...now };
    if (before && before.state !== now.state) {
      announcement.textContent = `Study ${now.name} is now ${now.state}.`;
      if (before.state === "draft") return location.reload();
      htmx.trigger(document.body, "pasto:state");
    } else if (before && before.held !== now.held) {
      htmx.trigger(document.body, "pasto:state");
    }
    htmx.trigger(document.body, "pasto:changed");
    loadCharts();
  });
  for (const failure of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    document.addEventListener(failure, (event) => {
      connectionLost.hidden = false;
      const target = event.detail.target;
      if (target?.querySelector(".loading")) target.querySelector(".loading").textContent = "This could not be read; trying again.";
    });
  }

  let timer;
  window.addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(drawCharts, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);

  document.addEventListener("change", async (event) => {
    const fills = event.target.dataset?.fills;
    if (fills && event.target.files.length) document.getElementById(fills).value = await event.target.files[0].text();
  });
  document.getElementById("round-range")?.addEventListener("change", loadCharts);
  // A button opens the dialog of its action; the facts in it are read when it opens.
  document.addEventListener("click", (event) => {
    const opener = event.target.closest?.("[data-dialog]");
    const menu = document.querySelector(".study-actions .menu[open]");
    if (menu && !menu.contains(event.target)) menu.open = false;
    if (event.target.closest?.("[data-cancel]")) return event.target.closest("dialog").close();
    if (!opener) return;
    if (menu) menu.open = false;
    const dialog = document.getElementById(opener.dataset.dialog);
    dialog.showModal();
    for (const facts of dialog.querySelectorAll(".action-facts")) htmx.trigger(facts, "open-dialog");
  });
  document.querySelector("[data-focus]")?.focus();
  loadCharts();
})();
