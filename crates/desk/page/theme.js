// Light or dark, before the first paint: what the person chose here, else what their system says.
// Runs in the head, touches one attribute, knows nothing else.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("countersign-theme");
  } catch {
    // No storage: the system's word counts.
  }
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
})();
