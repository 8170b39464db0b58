// Sets the colour scheme before the first paint, so that a page in the dark
// theme never flashes white. A file of its own, since inline scripts are not
// allowed; the key is the one Mantine keeps the choice under.
(() => {
  let choice = "auto";
  try {
    choice = localStorage.getItem("mantine-color-scheme-value") || "auto";
  } catch {
    // No storage: follow the system.
  }
  const dark =
    choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
