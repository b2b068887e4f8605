// The search, and the list of pages on small screens. The pages are complete without it.
"use strict";

(() => {
  const RESULTS_MAX = 30;
  const AROUND = 90; // characters before and after a match
  const root = document.body.dataset.root;
  const input = document.getElementById("search");
  const results = document.getElementById("results");
  const pages = document.querySelector("nav.pages details");

  if (matchMedia("(max-width: 48rem)").matches) pages.open = false;

  // The weight of an entry, or 0 where it does not have all words.
  function weight(entry, words) {
    let sum = 0;
    for (const word of words) {
      const inTitle = entry.title.toLowerCase().includes(word);
      const inPage = entry.page.toLowerCase().includes(word);
      const inText = entry.text.toLowerCase().includes(word);
      if (!inTitle && !inPage && !inText) return 0;
      sum += (inTitle ? 8 : 0) + (inPage ? 4 : 0) + (inText ? 1 : 0);
    }
    return sum;
  }

  function excerpt(text, words) {
    const lower = text.toLowerCase();
    const at = Math.max(0, Math.min(...words.map((word) => lower.indexOf(word)).filter((found) => found >= 0), text.length));
    const begin = at === text.length ? 0 : Math.max(0, at - AROUND);
    const part = document.createElement("small");
    part.textContent = (begin > 0 ? "… " : "") + text.slice(begin, begin + 2 * AROUND) + " …";
    return part;
  }

  function show() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.replaceChildren();
    results.hidden = words.length === 0;
    if (results.hidden) return;
    const found = window.searchIndex
      .map((entry) => ({ entry, weight: weight(entry, words) }))
      .filter((candidate) => candidate.weight > 0)
      .sort((a, b) => b.weight - a.weight)
      .slice(0, RESULTS_MAX);
    if (found.length === 0) results.textContent = "Nothing found.";
    for (const { entry } of found) {
      const line = document.createElement("p");
      const link = document.createElement("a");
      link.href = root + entry.url;
      link.textContent = entry.title && entry.title !== entry.page ? `${entry.page}: ${entry.title}` : entry.page;
      link.addEventListener("click", close);
      line.append(link, excerpt(entry.text, words));
      results.append(line);
    }
  }

  function close() {
    results.hidden = true;
  }

  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(input|textarea|select)$/i.test(document.activeElement.tagName)) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape") {
      close();
      input.blur();
    }
  });
  document.addEventListener("click", (event) => {
    if (!results.contains(event.target) && event.target !== input) close();
  });
})();
