// The form of a new search: typing into a group selects it, and the filter hides named workloads.
"use strict";

for (const group of document.querySelectorAll("[data-selects]")) {
  group.addEventListener("input", () => {
    document.querySelector(`input[name=shape][value=${group.dataset.selects}]`).checked = true;
  });
}

for (const filter of document.querySelectorAll("input[data-filters]")) {
  filter.labels[0].hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.getElementById(filter.dataset.filters).children) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) && !row.querySelector(":checked");
    }
  });
  filter.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });
}
