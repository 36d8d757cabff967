// Copy buttons: hidden without this file. They copy a text, or what a URL of this page's service answers.
(function () {
  "use strict";
  const SHOWN_MS = 1500;

  async function write(text) {
    if (navigator.clipboard && window.isSecureContext) {
      await navigator.clipboard.writeText(text);
      return;
    }
    // Browsers offer their clipboard to secure pages only; this works on any.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("the browser refused");
  }

  async function copy(button) {
    const word = button.dataset.word || (button.dataset.word = button.textContent);
    try {
      const url = button.dataset.copyUrl;
      await write(url ? await (await fetch(url)).text() : button.dataset.copy);
      button.textContent = "copied";
    } catch (error) {
      button.textContent = "not copied";
    }
    setTimeout(() => { button.textContent = word; }, SHOWN_MS);
  }

  function show() {
    for (const button of document.querySelectorAll("button.copy[hidden]")) button.hidden = false;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.copy");
    if (button) copy(button);
  });
  document.addEventListener("greenfast:live", show);
  show();
})();
