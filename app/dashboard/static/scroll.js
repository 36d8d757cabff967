// What scrolls sideways can be reached with the keyboard, and is announced. Not every browser does this by itself.
(function () {
  "use strict";

  function name(place) {
    const section = place.closest("section");
    const heading = section && section.querySelector("h1, h2, h3");
    return heading ? heading.textContent : "Table";
  }

  function mark() {
    for (const place of document.querySelectorAll(".scroll")) {
      if (place.scrollWidth > place.clientWidth + 1) {
        place.tabIndex = 0;
        place.setAttribute("role", "region");
        place.setAttribute("aria-label", name(place) + ", scrolls sideways");
      } else if (place.tabIndex === 0) {
        place.removeAttribute("tabindex");
        place.removeAttribute("role");
        place.removeAttribute("aria-label");
      }
    }
  }

  addEventListener("resize", mark);
  document.addEventListener("toggle", mark, true);
  document.addEventListener("greenfast:live", mark);
  mark();
})();
