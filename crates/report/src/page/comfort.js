// A tooltip that follows the pointer and the keyboard. Without it the browser shows the titles by itself.
const tip = document.createElement("div");
tip.id = "tip";
tip.setAttribute("role", "tooltip");
tip.hidden = true;
document.body.append(tip);
const show = (mark, text) => {
  tip.textContent = text;
  tip.hidden = false;
  const at = mark.getBoundingClientRect();
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  const x = Math.max(8, Math.min(at.x + at.width / 2 - tip.offsetWidth / 2, room));
  const above = at.y - tip.offsetHeight - 8;
  tip.style.left = x + scrollX + "px";
  tip.style.top = (above > 0 ? above : at.bottom + 8) + scrollY + "px";
};
const hide = () => { tip.hidden = true; };
for (const title of document.querySelectorAll("svg title")) {
  const mark = title.parentNode;
  const text = title.textContent;
  mark.setAttribute("aria-label", text);
  title.remove();
  for (const name of ["pointerenter", "focus", "click"]) mark.addEventListener(name, () => show(mark, text));
  for (const name of ["pointerleave", "blur"]) mark.addEventListener(name, hide);
}
addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
