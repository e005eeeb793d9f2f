// Before the first paint: the colours that were chosen here, or those of the system.
(() => {
  const KEY = "topics-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden
    }
  }

  function isDark() {
    const theme = root.dataset.theme;
    return theme ? theme === "dark" : system.matches;
  }

  function show() {
    const button = document.getElementById("theme");
    button?.setAttribute("aria-pressed", String(isDark()));
    document.dispatchEvent(new Event("themechange"));
  }

  const theme = chosen();
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme")?.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem(KEY, root.dataset.theme);
      } catch {
        // it holds for this page
      }
      show();
    });
  });
})();
