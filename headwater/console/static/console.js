// What every page does: the theme, the keys, and the notifications of the browser.
(() => {
  const name = "headwater_theme";
  const cookie = () => (document.cookie.match(/(?:^|; )headwater_theme=(light|dark)/) || [])[1];
  const set = (theme) => { document.cookie = `${name}=${theme}; path=/; max-age=31536000; samesite=strict`; document.documentElement.dataset.theme = theme; };
  const known = cookie();
  set(known || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  if (!known && cookie() === "dark") location.reload();  // the server has drawn its charts in light colours
  const tellNotify = () => { document.documentElement.dataset.notify = "Notification" in window ? Notification.permission : "denied"; };
  tellNotify();
  window.headwater = {
    toggleTheme() { set(cookie() === "dark" ? "light" : "dark"); location.reload(); },  // charts are drawn in the theme's colours
    toggleNav() { document.querySelector(".hw")?.classList.toggle("nav-open"); },
    // A tag keeps several pages of one browser from showing the same thing several times.
    notify(title, body, tag, href) {
      if (!("Notification" in window) || Notification.permission !== "granted") return;
      try {
        const shown = new Notification(title, { body, tag });
        shown.onclick = () => { focus(); shown.close(); if (href) location.href = href; };
      } catch { /* some phones only let a service worker notify */ }
    },
    async askToNotify() {
      if ("Notification" in window) await Notification.requestPermission();
      tellNotify();
    },
  };
  let went = 0;
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable], .cm-editor");
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); document.querySelector("[data-jump]")?.click(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { const box = document.querySelector("[data-search] input, input[data-search]"); if (box) { event.preventDefault(); box.focus(); } else document.querySelector("[data-jump]")?.click(); return; }
    if (event.key === "?") { document.querySelector("[data-help]")?.click(); return; }
    if (Date.now() - went < 1200) {
      const link = document.querySelector(`.hw-nav a[data-key="${CSS.escape(event.key)}"]`);
      went = 0;
      if (link) { event.preventDefault(); link.click(); return; }
    }
    if (event.key === "g") went = Date.now();
  });
})();
