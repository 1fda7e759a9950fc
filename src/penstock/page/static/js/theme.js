// Runs before the first paint: the colours that the reader chose, instead of those of the system.
try {
  const theme = localStorage.getItem("penstock-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // a browser that keeps nothing shows the system's colours
}
