// The link to the other edition opens the section that is being read, and the choice is kept
// for the next visit to the start page.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.edition-link");
  if (!link) return;
  const above = [...document.querySelectorAll("article section[id]")].filter(
    (section) => section.getBoundingClientRect().top < innerHeight / 3);
  // the last one above is the innermost; the page's own section needs no anchor
  link.hash = above.length > 1 ? above.at(-1).id : "";
  try {
    localStorage.setItem("edition", link.dataset.edition);
  } catch { /* a browser that stores nothing still follows the link */ }
});

// The browser goes to the section in the address before MathJax has set the formulas above it,
// which then push the section down; go there again, unless the reader has moved on.
addEventListener("load", async () => {
  const section = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!section || !window.MathJax) return;
  let moved = false;
  for (const way of ["wheel", "touchstart", "keydown", "mousedown"])
    addEventListener(way, () => { moved = true; }, { once: true });
  await MathJax.startup.promise;
  if (!moved) section.scrollIntoView({ behavior: "instant" });
});
