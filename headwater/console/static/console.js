// What every page does: the theme, the keys, and telling the server whether anybody looks.
(() => {
  const name = "headwater_theme";
  const cookie = () => (document.cookie.match(/(?:^|; )headwater_theme=(light|dark)/) || [])[1];
  const set = (theme) => { document.cookie = `${name}=${theme}; path=/; max-age=31536000; samesite=strict`; document.documentElement.dataset.theme = theme; };
  set(cookie() || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  window.headwater = {
    toggleTheme() { set(cookie() === "dark" ? "light" : "dark"); location.reload(); },  // charts are drawn in the theme's colours
    toggleNav() { document.querySelector(".hw")?.classList.toggle("nav-open"); },
    async notify(title, body) {
      if (!("Notification" in window)) return;
      if (Notification.permission === "default") await Notification.requestPermission();
      if (Notification.permission === "granted") new Notification(title, { body });
    },
  };
  let went = 0;
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable], .cm-editor");
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); document.querySelector("[data-jump]")?.click(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { const box = document.querySelector("[data-search] input, input[data-search]"); if (box) { event.preventDefault(); box.focus(); } else document.querySelector("[data-jump]")?.click(); return; }
    if (event.key === "?") { document.querySelector("[data-help]")?.click(); return; }
    if (event.key === "g") { went = Date.now(); return; }
    if (Date.now() - went < 1200) {
      const link = document.querySelector(`.hw-nav a[data-key="${CSS.escape(event.key)}"]`);
      went = 0;
      if (link) { event.preventDefault(); link.click(); }
    }
  });
})();
