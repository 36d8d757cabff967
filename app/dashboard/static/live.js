// Keeps a page current: when the server reports a change, this fetches the page again and replaces its parts marked
// data-live. The server renders everything; without this file a reload does the same.
(function () {
  "use strict";
  const LEAST_PAUSE_MS = 1000;
  const RETRY_MS = 5000;
  const state = document.getElementById("live-state");
  const served = new Map();  // by part: its HTML as it came, before other scripts added to it
  let last = 0, timer = null, busy = false, again = false;

  function say(text) {
    if (!state || state.textContent === text) return;
    state.textContent = text;
    state.classList.toggle("lost", text !== "live");
  }

  // A part in which somebody types or selects text stays as it is until the next update.
  function inUse(part) {
    const selection = document.getSelection();
    const copying = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    const active = document.activeElement;
    return copying || (active !== document.body && part.contains(active) && active.matches("input, select, textarea"));
  }

  function replaceParts(fresh) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next || next.innerHTML === (served.get(part.id) || part.innerHTML) || inUse(part)) continue;
      served.set(part.id, next.innerHTML);
      const scrolled = Array.from(part.querySelectorAll(".scroll"), (place) => place.scrollLeft);
      const open = Array.from(part.querySelectorAll("details"), (details) => details.open);
      const focused = part.contains(document.activeElement) ? document.activeElement : null;
      const mark = focused && (focused.getAttribute("href") || focused.getAttribute("value"));
      next.querySelectorAll("details").forEach((details, index) => { details.open = open[index] || false; });
      part.replaceChildren(...Array.from(next.childNodes, (node) => document.importNode(node, true)));
      part.querySelectorAll(".scroll").forEach((place, index) => { place.scrollLeft = scrolled[index] || 0; });
      if (mark) {
        const same = Array.from(part.querySelectorAll("a, button")).find(
          (control) => (control.getAttribute("href") || control.getAttribute("value")) === mark);
        if (same) same.focus({ preventScroll: true });
      }
    }
    document.dispatchEvent(new CustomEvent("greenfast:live"));
  }

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.ok) replaceParts(fresh);
      last = Date.now();
    } catch (error) {
      say("no connection");
    }
    busy = false;
    if (again) { again = false; soon(); }
  }

  function soon() {
    if (timer !== null || document.hidden) { again = again || document.hidden; return; }
    timer = setTimeout(() => { timer = null; refresh(); }, Math.max(0, last + LEAST_PAUSE_MS - Date.now()));
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && again) { again = false; soon(); }
  });

  const events = document.body.dataset.events;
  let shown = document.body.dataset.shown;

  function follow() {
    const stream = new EventSource(events);
    let status = document.body.dataset.status;
    // A queued or paused search is not live.
    const word = () => (status === "running" ? "live" : "");
    stream.onopen = () => say(word());
    stream.onerror = () => {
      say("reconnecting");
      // The browser itself repeats lost connections, but no refusals.
      if (stream.readyState === EventSource.CLOSED) refused();
    };
    // The first event of the stream repeats the state that this page shows.
    stream.addEventListener("progress", (event) => {
      const search = JSON.parse(event.data);
      status = search.status;
      say(word());
      const now = `${search.status} ${search.trials_done} ${search.queue_position || 0} ${search.workers_alive}`;
      if (now !== shown) soon();
      shown = null;
    });
    stream.addEventListener("end", () => { stream.close(); say(""); soon(); });
  }

  async function refused() {
    const answer = await fetch(events, { method: "HEAD" }).catch(() => null);
    if (answer && answer.status === 404) say("this search was removed");
    else setTimeout(follow, RETRY_MS);
  }

  if (events) follow();
  const every = Number(document.body.dataset.refreshS || 0);
  if (every) setInterval(soon, every * 1000);
})();
