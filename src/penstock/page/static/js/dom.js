// Elements, and a tree on the screen that becomes another one with as little change as possible: focus, scroll positions,
// what the reader typed and open details remain. Text reaches the page by text nodes alone.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes, `on: {event: function}`, `widget: {kind, data, create}`, then children (nodes, text, null). */
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** Make an element of SVG. */
export const svg = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") element.listeners = value;
    else if (name === "widget") element.widget = value;
    else if (name === "style") for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    else if (name === "value" && "value" in element) element.value = String(value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  if (element.tagName === "SELECT" && attributes?.value !== undefined) element.value = attributes.value;
  return element;
}

/** Make the children of `root` equal to `children`. */
export function render(root, ...children) {
  const next = document.createElement(root.tagName);
  next.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  patchChildren(root, next);
}

const call = (event) => event.currentTarget.listeners?.[event.type]?.(event);

/** Start listeners and widgets of a tree that is on the page now. */
function start(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  for (const type of Object.keys(node.listeners ?? {})) node.addEventListener(type, call);
  node.started = true;
  if (node.widget) node.live = node.widget.create(node, node.widget.data);
  for (const child of node.childNodes) start(child);
}

function stop(node) {
  node.live?.close();
  for (const child of node.childNodes) stop(child);
}

const same = (old, next) =>
  old.nodeType === next.nodeType &&
  old.nodeName === next.nodeName &&
  old.widget?.kind === next.widget?.kind &&
  key(old) === key(next);

const key = (node) => node.dataset?.key;

function patchChildren(old, next) {
  const keyed = new Map();
  for (const child of old.childNodes) if (key(child) !== undefined) keyed.set(key(child), child);
  let place = old.firstChild;
  for (const child of [...next.childNodes]) {
    const known = key(child) === undefined ? place : keyed.get(key(child));
    if (known && same(known, child)) {
      if (known === place) place = place.nextSibling;
      else old.insertBefore(known, place);
      patch(known, child);
    } else {
      old.insertBefore(child, place);
      start(child);
      if (place && key(child) === undefined && key(place) === undefined) place = remove(place);
    }
  }
  while (place) place = remove(place);
}

function remove(node) {
  const after = node.nextSibling;
  stop(node);
  node.remove();
  return after;
}

function patch(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  patchAttributes(old, next);
  for (const type of Object.keys(next.listeners ?? {})) if (!old.listeners?.[type]) old.addEventListener(type, call);
  old.listeners = next.listeners;
  if (next.widget) old.live.update(next.widget.data);
  else patchChildren(old, next);
}

/** `open` of details belongs to the reader, and `value` of a field is no attribute: both remain. The policy forbids to set `style`. */
function patchAttributes(old, next) {
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  for (const { name, value } of [...next.attributes]) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (name !== "open" && !next.hasAttribute(name)) old.removeAttribute(name);
}
