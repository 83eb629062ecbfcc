"use strict";
// Everything that a conversation says is put into the page with textContent: it is never markup.
const rows = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const TEXT = 0, MESSAGE = 1, TRAINED = 2, IDS = 3, LOG_PROBS = 4;
let shown = [];
let current = -1;

function element(kind, text, properties) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  return Object.assign(made, properties);
}

function filter() {
  const least = parseFloat(byId("least").value), most = parseFloat(byId("most").value);
  shown = rows.map((row, number) => number).filter((number) => {
    const reward = rows[number].reward;
    if (Number.isNaN(least) && Number.isNaN(most)) return true;
    return reward !== null && !(reward < least) && !(reward > most);
  });
  byId("count").textContent = `${shown.length} of ${rows.length}`;
  const list = byId("rows");
  list.replaceChildren(...shown.map((number) => {
    const row = rows[number];
    const button = element("button", undefined, {onclick: () => show(number)});
    button.dataset.row = number;
    button.append(element("span", row.name));
    if (row.reward !== null) {
      button.append(element("span", String(row.reward), {className: "reward"}));
    }
    return button;
  }));
  byId("nothing").hidden = shown.length > 0;
  show(shown.includes(current) ? current : shown.length ? shown[0] : -1);
}

function show(number) {
  current = number;
  const facts = byId("facts"), text = byId("text");
  facts.replaceChildren();
  text.replaceChildren();
  byId("token").textContent = "Point at a token to see what it is.";
  for (const button of byId("rows").children) {
    const chosen = Number(button.dataset.row) === number;
    button.setAttribute("aria-current", chosen);
    if (chosen) button.scrollIntoView({block: "nearest"});
  }
  if (number < 0) return;
  const row = rows[number];
  const told = row.reward === null ? row.facts : [["reward", String(row.reward)], ...row.facts];
  for (const [name, value] of told) {
    const fact = element("span");
    fact.append(element("b", name), value);
    facts.append(fact);
  }
  const edges = document.body.classList.contains("edges");
  const heat = document.body.classList.contains("heat");
  const parts = document.createDocumentFragment();
  const whose = owners(row.pieces);
  let last = null;
  row.pieces.forEach((piece, place) => {
    const message = piece[MESSAGE];
    const role = message === null ? "" : row.roles[message] ?? "";
    if (whose[place] !== null && whose[place] !== last) {
      last = whose[place];
      const who = element("span", called(row, last), {className: "who"});
      who.dataset.role = row.roles[last] ?? "";
      parts.append(who);
    }
    const shownText = edges ? piece[TEXT].replaceAll("\n", "⏎\n") : piece[TEXT];
    const span = element("span", shownText, {className: "piece"});
    span.dataset.place = place;
    span.dataset.role = role;
    span.classList.toggle("message", message !== null);
    span.classList.toggle("trained", piece[TRAINED] === 1);
    if (heat && piece[LOG_PROBS].length) {
      const sum = piece[LOG_PROBS].reduce((a, b) => a + Number(b), 0);
      // The less likely, the redder: full at a probability of one in a hundred.
      const share = Math.min(1, Math.max(0, -sum / Math.log(100))) || 0;
      span.style.background = `rgba(226, 59, 46, ${(0.75 * share).toFixed(3)})`;
    }
    parts.append(span);
  });
  text.append(parts);
}

// The message of each piece; in what is trained, the template's pieces count to the message they frame.
function owners(pieces) {
  const found = pieces.map((piece) => piece[MESSAGE]);
  for (let place = pieces.length - 2; place >= 0; place -= 1) {
    const inside = pieces[place][TRAINED] && pieces[place + 1][TRAINED];
    if (found[place] === null && inside) found[place] = found[place + 1];
  }
  return found;
}

function called(row, message) {
  return `${message} ${row.roles[message] ?? ""}`.trim();
}

function explain(span) {
  for (const other of byId("text").querySelectorAll(".chosen")) other.classList.remove("chosen");
  span.classList.add("chosen");
  const row = rows[current], piece = row.pieces[Number(span.dataset.place)];
  const panel = byId("token");
  panel.replaceChildren();
  const add = (name, value, kind = "span") => {
    const fact = element("span");
    fact.append(element("b", name), element(kind, value));
    panel.append(fact);
  };
  if (piece[IDS].length) add(piece[IDS].length > 1 ? "ids" : "id", piece[IDS].join(", "));
  add("text", JSON.stringify(piece[TEXT]), "code");
  if (piece[LOG_PROBS].length) add("log-prob", piece[LOG_PROBS].join(", "));
  add("mask", piece[TRAINED] ? "1 (trained)" : "0");
  const message = piece[MESSAGE];
  add("message", message === null ? "none (template)" : called(row, message));
}

function move(by) {
  const place = shown.indexOf(current) + by;
  if (place >= 0 && place < shown.length) {
    show(shown[place]);
    document.querySelector("main").scrollTop = 0;
  }
}

function flip(name) {
  const on = document.body.classList.toggle(name);
  byId(name).setAttribute("aria-pressed", on);
  show(current);
}

byId("text").addEventListener("mouseover", (event) => {
  if (event.target.dataset.place !== undefined) explain(event.target);
});
for (const name of ["edges", "heat", "bare"]) byId(name).onclick = () => flip(name);
for (const name of ["least", "most"]) byId(name).oninput = filter;
byId("previous").onclick = () => move(-1);
byId("next").onclick = () => move(1);
document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = {
    j: () => move(1), ArrowRight: () => move(1), k: () => move(-1), ArrowLeft: () => move(-1),
    t: () => flip("edges"), l: () => flip("heat"), s: () => flip("bare"),
  }[event.key];
  if (act) {
    act();
    event.preventDefault();
  }
});
filter();
