// Sets the chosen theme before the first paint; without a choice the system decides.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("countersign-theme");
  } catch {
    // No storage: the system decides.
  }
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
})();
