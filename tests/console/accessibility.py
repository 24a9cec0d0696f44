"""What makes a page hard to use without eyes or mouse, found in the page itself."""

from __future__ import annotations

#: What a person with a keyboard, or with a screen reader, would stumble over; one line for each.
TROUBLES = """
() => {
  // On its way to another page, which has tests of its own.
  if (document.readyState === "loading" || !document.querySelector("main.hw-page")) return [];
  const found = [];
  const seen = (one) => one.getClientRects().length > 0 && getComputedStyle(one).visibility !== "hidden" && !one.closest("[aria-hidden=true]");
  const text = (one) => (one.innerText || one.textContent || "").trim();
  const byId = (ids) => (ids || "").split(" ").map((id) => text(document.getElementById(id) || document.createElement("i"))).join("");
  const named = (one) => one.getAttribute("aria-label") || byId(one.getAttribute("aria-labelledby")) || one.title
    || [...(one.labels || [])].map((label) => text(label) || label.getAttribute("aria-label")).join("") || one.alt;
  const tell = (what, one) => found.push(`${what}: ${one.outerHTML.slice(0, 300)}`);
  for (const one of document.querySelectorAll("button, [role=button], a[href]")) {
    const words = [...one.querySelectorAll("*")].filter((each) => each.matches("[aria-hidden=true], .q-icon")).map(text);
    const own = words.reduce((left, word) => left.replace(word, ""), text(one)).trim();
    if (seen(one) && !named(one) && !own) tell("a control without a name", one);
  }
  for (const one of document.querySelectorAll("input:not([type=hidden]), textarea, select"))
    if (seen(one) && !named(one) && !one.closest("label, .q-toggle, .q-checkbox, .q-radio")?.innerText.trim()) tell("a field without a name", one);
  for (const one of document.querySelectorAll("img:not([alt]), svg[role=img]:not([aria-label])")) if (seen(one)) tell("a picture without words", one);
  for (const one of document.querySelectorAll("table")) if (seen(one) && !one.caption && !named(one)) tell("a table without a name", one);
  for (const one of document.querySelectorAll("[tabindex]")) if (one.tabIndex > 0) tell("a tab order of its own", one);
  for (const one of document.querySelectorAll("[role=dialog], [role=alertdialog]")) if (seen(one) && !named(one)) tell("a dialog without a name", one);
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids.filter((one, n) => ids.indexOf(one) !== n))) found.push(`twice the id ${id}`);
  const heads = [...document.querySelectorAll("h1")].filter(seen);
  if (heads.length !== 1) found.push(`${heads.length} headings of the first order`);
  if (!document.title || !document.documentElement.lang) found.push("a page without title or language");
  if (document.querySelectorAll("main:not([role=presentation])").length !== 1) found.push("not one main part");
  return found;
}
"""
