// Creates elements. Texts become text nodes; there is no way to pass markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `props`: `class`, `on: {event: fn}`, `data: {}`, properties `value` and `checked`, other names as attributes. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An element of a drawing. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else if (name === "value" || name === "checked") {
      element[name] = value;
    } else if (name.startsWith("on") || name === "style" || name === "srcdoc") {
      throw new Error(`no ${name} in markup`);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false);
}

/** Replaces everything inside. */
export function put(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** A bundle of nodes without an element of its own. */
export function bundle(...children) {
  const all = document.createDocumentFragment();
  all.append(...flat(children));
  return all;
}

/** Only http and https, so that no text of others becomes a link that does something. */
export function isWebAddress(text) {
  return /^https?:\/\/[^\s]+$/i.test(text);
}
