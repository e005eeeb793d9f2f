// A question before what cannot be taken back: a dialog of the browser, which keeps the focus.
import { el } from "./dom.js";

/** Ask; true when it was agreed to. Escape and Cancel, where the focus begins, say no. */
export function confirmed(question, yes) {
  return new Promise((resolve) => {
    const no = el("button", { type: "button", click: () => dialog.close() }, "Cancel");
    const go = el("button", { type: "button", class: "primary", click: () => dialog.close("yes") }, yes);
    const dialog = el("dialog", { class: "confirm", "aria-labelledby": "question" },
      el("p", { id: "question" }, question), el("div", { class: "answers" }, no, go));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}
