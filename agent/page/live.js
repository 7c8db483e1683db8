"use strict";
// The page is whole without this; it only fetches itself again and puts the new
// content in, keeping what was opened, and where the keyboard is.
(() => {
  const every = 5000, note = document.getElementById("live");
  const open = () => new Map([...document.querySelectorAll("details[id]")].map(d => [d.id, d.open]));
  async function next() {
    if (!document.hidden) {
      try {
        const reply = await fetch(location.pathname, {cache: "no-store"});
        if (!reply.ok) throw new Error(reply.status);
        const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
        const was = open(), focus = document.activeElement && document.activeElement.id;
        document.title = fresh.title;
        document.querySelector("main").replaceWith(fresh.querySelector("main"));
        for (const [id, state] of was) { const d = document.getElementById(id); if (d) d.open = state; }
        if (focus && document.activeElement.id !== focus) { const f = document.getElementById(focus); if (f) f.focus({preventScroll: true}); }
        note.textContent = "renewed every 5 s";
      } catch (e) {
        note.textContent = "no answer from gpuslotd: this is how it was";
      }
    }
    setTimeout(next, every);
  }
  note.textContent = "renewed every 5 s";
  setTimeout(next, every);
})();
