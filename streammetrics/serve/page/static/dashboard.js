"use strict";
// One stream says that there is something new; then the sections that changed are swapped for those of the same address.
// Focus, scroll, sorting, open parts and what was typed stay. Everything reads without it.
const main = document.querySelector("main"), said = document.getElementById("said"), sign = document.getElementById("live");
const sources = new Map([...main.children].map((part) => [part.id, part.outerHTML])); // as they came, before anything is sorted

const ages = () => {
  for (const one of document.querySelectorAll(".age[data-at]")) {
    const minutes = Math.max(0, Math.floor(Date.now() / 60000 - Number(one.dataset.at) / 60)), hours = Math.floor(minutes / 60);
    one.textContent = hours >= 48 ? `${Math.floor(hours / 24)} days ago` : hours ? `${hours} h ${minutes % 60} min ago` : `${minutes} min ago`;
  }
};

// What a reader did to a section, to be done to the one that takes its place.
const done = (part) => ({
  values: [...part.querySelectorAll("input:not([type=hidden]), select")].map((one) => [one.value, one.checked]),
  open: [...part.querySelectorAll("details")].map((one) => one.open),
  sorted: [...part.querySelectorAll("thead th")].map((one) => one.getAttribute("aria-sort")),
  scrolled: [...part.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]),
  focus: [...part.querySelectorAll("a, button, input, select, summary, [tabindex]")].indexOf(document.activeElement),
});
const redo = (part, was) => {
  [...part.querySelectorAll("input:not([type=hidden]), select")].forEach((one, i) => {
    if (!was.values[i] || (one.value === was.values[i][0] && one.checked === was.values[i][1])) return;
    [one.value, one.checked] = was.values[i];
    if (one.tagName === "INPUT") one.dispatchEvent(new Event(one.type === "search" ? "input" : "change"));
  });
  [...part.querySelectorAll("details")].forEach((one, i) => { one.open = was.open[i] ?? one.open; });
  [...part.querySelectorAll("thead th")].forEach((one, i) => {
    for (let n = 0; n < 2 && was.sorted[i] && one.getAttribute("aria-sort") !== was.sorted[i]; n++) one.querySelector("button")?.click();
  });
  [...part.querySelectorAll(".scroll")].forEach((one, i) => { [one.scrollLeft, one.scrollTop] = was.scrolled[i] ?? [0, 0]; });
  if (was.focus >= 0) [...part.querySelectorAll("a, button, input, select, summary, [tabindex]")][was.focus]?.focus({ preventScroll: true });
};

const swap = (text) => {
  const fresh = new DOMParser().parseFromString(`<main>${text}</main>`, "text/html").querySelector("main");
  const before = document.getElementById("verdict")?.textContent;
  const seen = [...main.children].find((part) => part.getBoundingClientRect().bottom > 0), at = seen?.getBoundingClientRect().top;
  const kept = new Set([...fresh.children].map((part) => part.id));
  for (const part of [...main.children]) if (!kept.has(part.id)) part.remove();
  let last = null;
  for (const part of [...fresh.children]) {
    const old = document.getElementById(part.id), source = part.outerHTML;
    if (old && sources.get(part.id) === source) { last = old; continue; }
    const was = old && done(old);
    if (old) old.replaceWith(part); else if (last) last.after(part); else main.prepend(part);
    sources.set(part.id, source);
    part.dispatchEvent(new Event("swapped", { bubbles: true }));
    if (was) redo(part, was);
    last = part;
  }
  const now = seen && document.getElementById(seen.id);
  if (now && scrollY > 0) scrollBy(0, now.getBoundingClientRect().top - at); // what is read stays where it is
  ages();
  const after = document.getElementById("verdict")?.textContent;
  if (after !== before) { said.textContent = after; document.title = after; }
};

let shown = Number(main.dataset.at), wanted = shown, busy = false, stream = null;
const look = async () => {
  if (busy || wanted <= shown) return;
  busy = true;
  const target = wanted, address = new URL(location.href);
  address.searchParams.set("fragment", "1");
  try {
    const answer = await fetch(address, { credentials: "same-origin", redirect: "error" });
    if (!answer.ok) throw new Error(answer.status);
    swap(await answer.text());
    shown = target;
  } catch { sign.textContent = "Not live: load the page again."; }
  busy = false;
  setTimeout(look, 1000);
};
const open = () => {
  if (stream || document.visibilityState === "hidden") return;
  stream = new EventSource(main.dataset.live);
  stream.addEventListener("open", () => { sign.textContent = "Live."; });
  stream.addEventListener("look", (event) => { wanted = Number(event.data); look(); });
  stream.addEventListener("error", () => {
    sign.textContent = stream?.readyState === EventSource.CLOSED ? "Not live: load the page again." : "Not live: reconnecting.";
  });
};
const close = () => { stream?.close(); stream = null; };
document.addEventListener("visibilitychange", () => { document.visibilityState === "hidden" ? close() : open(); });
addEventListener("pagehide", close);
addEventListener("pageshow", open);
ages();
setInterval(ages, 30000);
open();
