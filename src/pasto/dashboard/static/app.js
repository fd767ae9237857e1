// Keeps pages up to date: parts are asked for by htmx, pictures here; both only when a study really changed.
"use strict";

(() => {
  const lost = document.getElementById("lost");
  const said = document.getElementById("said");
  let told = null;

  const standing = () => document.querySelector("#head [data-generation]")?.dataset;
  let known = standing() && { ...standing() };

  // All rounds, or the latest ones: of a long study those are drawn one by one.
  function span() {
    const latest = Number(document.getElementById("span")?.value ?? 0), rounds = told?.rounds ?? 0;
    return latest && rounds > latest ? `?first=${rounds - latest + 1}` : "";
  }

  async function draw() {
    const place = document.getElementById("policy");
    if (!place) return;
    try {
      const response = await fetch(place.dataset.series + span(), { headers: { accept: "application/json" } });
      if (!response.ok) throw new Error(String(response.status));
      told = await response.json();
    } catch {
      if (!told) for (const each of document.querySelectorAll("#policy .loading, #metrics .loading")) each.textContent = "The rounds could not be read; trying again.";
      setTimeout(draw, 5000);
      return;
    }
    picture();
    const tradeoff = document.getElementById("tradeoff");
    if (tradeoff) Tradeoff.load(tradeoff);
  }

  function picture() {
    if (!told || !document.getElementById("policy")) return;
    Charts.policy(document.getElementById("policy"), told);
    Charts.metrics(document.getElementById("metrics"), told);
  }

  document.addEventListener("htmx:afterSwap", (event) => {
    lost.hidden = true;
    if (event.detail.target.id !== "head") return;
    const now = standing();
    if (!now || now.generation === known?.generation) return;
    const before = known;
    known = { ...now };
    if (before && before.state !== now.state) {
      said.textContent = `Study ${now.name} is now ${now.state}.`;
      if (before.state === "draft") return location.reload();
      htmx.trigger(document.body, "pasto:state");
    } else if (before && before.held !== now.held) {
      htmx.trigger(document.body, "pasto:state");
    }
    htmx.trigger(document.body, "pasto:changed");
    draw();
  });
  for (const trouble of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    document.addEventListener(trouble, (event) => {
      lost.hidden = false;
      const target = event.detail.target;
      if (target?.querySelector(".loading")) target.querySelector(".loading").textContent = "This could not be read; trying again.";
    });
  }

  let timer;
  window.addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(picture, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", picture);

  document.addEventListener("change", async (event) => {
    const fills = event.target.dataset?.fills;
    if (fills && event.target.files.length) document.getElementById(fills).value = await event.target.files[0].text();
  });
  document.getElementById("span")?.addEventListener("change", draw);
  document.querySelector("[data-focus]")?.focus();
  draw();
})();
