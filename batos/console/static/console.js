"use strict";

/* Every page works without this file. It adds: rows and missions that move by themselves, the slider, keys. */

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const SETTLE_MS = 120; // after the last movement of the slider
const SAID_MS = 4000; // for which what was done is still said once it is over
const LOOK_MS = 2000; // between two looks at what is under way and tells no events
const GATHER_MS = 250; // over which events of a mission become one look

const main = document.getElementById("main");
const link = document.getElementById("link");

function span(seconds) {
  for (const [length, unit] of [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"]]) if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds)} s`;
}

function tellTimes() {
  for (const time of document.querySelectorAll("time")) {
    const passed = Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000);
    time.textContent = passed < 1 ? "now" : `${passed < MINUTE ? Math.max(1, Math.floor(passed)) + " s" : span(passed)} ago`;
  }
}

function tellLink(on) {
  link.hidden = false;
  link.toggleAttribute("data-on", on);
  link.textContent = on ? "live" : "not connected";
}

/* A stream of events that rests while nobody looks: a browser opens only a few connections to one address. */
function listen(address, hear, name) {
  let source = null;
  let over = false;
  function begin() {
    if (source || over || document.hidden) return;
    source = new EventSource(address);
    source.onopen = () => tellLink(true);
    source.onerror = () => tellLink(false);
    for (const kind of name) source.addEventListener(kind, (event) => hear(kind, JSON.parse(event.data)));
  }
  function end() {
    if (source) source.close();
    source = null;
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? end() : begin()));
  addEventListener("pagehide", end);
  addEventListener("pageshow", begin);
  begin();
  return () => { over = true; end(); };
}

/* HTML comes from this console only, which escapes all that is not its own. */
function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

function followRows(list) {
  const knownOnly = list.hasAttribute("data-known-only");
  listen(list.dataset.live, (_, { rows }) => {
    for (const [id, html] of rows.toReversed()) {
      const row = parsed(`<ol>${html}</ol>`).querySelector("li");
      const there = list.querySelector(`[data-id="${CSS.escape(id)}"]`);
      if (there) {
        const focused = there.contains(document.activeElement);
        there.replaceWith(row);
        if (focused) row.querySelector("a").focus();
      } else if (!knownOnly) {
        row.classList.add("fresh");
        list.prepend(row);
        list.parentElement.querySelector(".empty")?.remove();
      }
    }
    tellTimes();
  }, ["rows"]);
}

let looks = 0; // that were begun
let shown = 0; // number of the look that the page shows

/* Put the parts of a page in the place of those that are here, but for one that somebody is writing in. A look that a later one has
   overtaken shows nothing: it is older, and no event would come to mend that. */
async function refresh(address) {
  const look = ++looks;
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (answer.status === 401) { location.reload(); return; }
  const page = parsed(await answer.text());
  if (look < shown) return;
  shown = look;
  const fresh = page.querySelectorAll("[data-part]");
  if (!fresh.length) main.replaceChildren(...page.getElementById("main").childNodes);
  for (const part of fresh) {
    const there = document.getElementById(part.id);
    if (there && !there.contains(document.activeElement) && there.innerHTML !== part.innerHTML) there.replaceWith(part);
  }
  tellTimes();
}

function followMission(head) {
  const stream = document.getElementById("stream");
  let waiting = null;
  const look = () => { waiting = null; refresh(location.href); };
  const stop = listen(head.dataset.liveMission, (kind, event) => {
    if (kind === "token" || kind === "revised") {
      say(stream, event);
      return;
    }
    if (kind === "result") {
      setTimeout(() => main.querySelector(".done[role=status]")?.remove(), SAID_MS); // "accepted", of a mission that has ended
      stop();
      link.hidden = true;
      stream.remove();
    }
    if (!waiting) waiting = setTimeout(look, GATHER_MS);
  }, ["status", "state", "token", "revised", "tool", "needs_input", "result"]); // the status comes first: what happened since the page was made is in it
}

/* What a facet is saying, as it says it, or why that was refused and is said anew. As text, never as HTML. */
function say(stream, event) {
  stream.hidden = false;
  const who = `${event.cycle ?? ""} ${event.facet || "weaving"}`;
  let place = [...stream.children].find((one) => one.dataset.who === who);
  if (!place) {
    place = document.createElement("div");
    place.dataset.who = who;
    const name = document.createElement("h4");
    name.textContent = (event.facet || "weaving").replace(/(_facet)?_$/, "").replaceAll("_", " ");
    place.append(name, document.createElement("p"));
    stream.append(place);
  }
  if (event.type === "revised") {
    place.lastChild.className = "warn";
    place.lastChild.textContent += ` (refused, ${event.why})`;
    place.append(document.createElement("p"));
  } else place.lastChild.textContent += event.text;
}

function slide(slider) {
  const range = slider.querySelector("input");
  const links = [...slider.querySelectorAll("a")];
  const output = document.createElement("output");
  output.htmlFor = range.id;
  range.before(output);
  slider.querySelector("ol").hidden = true;
  range.hidden = false;
  const tell = () => {
    const words = links[range.value].dataset.words;
    output.textContent = words;
    range.setAttribute("aria-valuetext", words);
  };
  let waiting = null;
  range.addEventListener("input", () => {
    tell();
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const address = links[range.value].href;
      history.replaceState(null, "", address);
      refresh(address);
    }, SETTLE_MS);
  });
  tell();
}

function step(by) {
  const entries = [...main.querySelectorAll(".rows > li > a:first-child, .passages > li a:first-of-type, dl.slots dt a")];
  if (!entries.length) return;
  const at = entries.indexOf(document.activeElement);
  entries[at < 0 ? (by > 0 ? 0 : entries.length - 1) : Math.min(entries.length - 1, Math.max(0, at + by))].focus();
}

function go(address, field) {
  const there = document.getElementById(field);
  if (there) there.focus();
  else location.href = `${address}#${field}`;
}

/* What a page has for a key of its own: `data-press` names the keys of a button or link. */
function pressed(event) {
  const slider = event.target.closest("input[type=range]");
  const wanted = slider ? null : [...main.querySelectorAll("[data-press]")].find((one) => one.dataset.press.split(" ").includes(event.key));
  return wanted ? () => (wanted.matches("input, textarea, select") ? wanted.focus() : wanted.click()) : null;
}

/* Look again and again at a page whose work goes on and tells no events, as long as it does and somebody looks. */
function lookAgain() {
  if (!main.querySelector("[data-look]")) return;
  setTimeout(async () => {
    if (!document.hidden) await refresh(location.href);
    if (main.querySelector("[data-look]") || document.hidden) lookAgain();
    else location.reload();
  }, LOOK_MS);
}

function keys(dialog) {
  const pages = new Map([...document.querySelectorAll("nav [data-key]")].map((one) => [one.dataset.key, one]));
  const open = document.getElementById("keys-open");
  open.hidden = false;
  open.addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const writing = event.target.closest("input:not([type=checkbox], [type=range]), textarea, select");
    if (event.key === "Escape" && writing) writing.blur();
    if (writing) return;
    const does = {
      "?": () => dialog.showModal(),
      "/": () => go("/search", "q"),
      n: () => go("/", "brief"),
      j: () => step(1),
      k: () => step(-1),
    }[event.key] ?? pressed(event) ?? (pages.has(event.key) ? () => pages.get(event.key).click() : null);
    if (!does) return;
    event.preventDefault();
    does();
  });
}

/* What was just done is said once: not again when the page is loaded anew, shared, or goes on by itself. */
function sayOnce() {
  const address = new URL(location.href);
  if (!address.searchParams.has("said")) return;
  address.searchParams.delete("said");
  history.replaceState(null, "", address);
}

function begin() {
  sayOnce();
  keys(document.getElementById("keys"));
  const rows = document.querySelector("[data-live]");
  if (rows) followRows(rows);
  const head = document.querySelector("[data-live-mission]");
  if (head) followMission(head);
  for (const slider of document.querySelectorAll(".slider")) slide(slider);
  for (const select of document.querySelectorAll("[data-auto]")) {
    select.addEventListener("change", () => select.form.requestSubmit());
    select.form.querySelector("button").hidden = true;
  }
  lookAgain();
  const wanted = location.hash && document.getElementById(location.hash.slice(1));
  if (wanted && wanted !== main) wanted.focus();
  setInterval(tellTimes, 10000);
}

begin();
