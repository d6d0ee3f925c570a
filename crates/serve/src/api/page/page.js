"use strict";
const at = (id) => document.getElementById(id);
const make = (name, text, className) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
};

const PRECISIONS = ["f32", "bf16", "int8"];
const KEEPS = [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2];
const ALPHAS = [0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1, 1.5];
/** The paper's, or its better heir where the model has a calibration. */
let sampler = "mca";

/** Attention as the model is served, until a slider of it is moved: plans can say more than sliders. */
let attention;

/** What the sliders say, as a request has it. */
function plan() {
  const keep = KEEPS[at("keep").value], alpha = ALPHAS[at("alpha").value];
  const values = alpha ? `${sampler}:${alpha}` : "exact";
  return { precision: PRECISIONS[at("precision").value], attention: attention ?? (keep < 1 ? `${values},keep=${keep}` : values) };
}

function showSliders() {
  const keep = KEEPS[at("keep").value], alpha = ALPHAS[at("alpha").value];
  const say = (id, text) => { at(id + "-value").textContent = text; at(id).setAttribute("aria-valuetext", text); };
  say("precision", PRECISIONS[at("precision").value]);
  const served = attention && attention !== "exact" ? "as served" : undefined;
  say("keep", keep < 1 ? `${Math.round(100 * keep)}%` : served ?? "all");
  say("alpha", alpha ? `${alpha} (${sampler})` : served ?? "exact");
}

async function post(path, body) {
  const headers = { "content-type": "application/json" };
  if (at("key").value) headers.authorization = "Bearer " + at("key").value;
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  const answer = await response.json();
  if (response.status === 401) at("key-row").hidden = false;
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

/** One request at a time; while it runs only the latest wish is remembered. */
let running = false, wanted = false;
async function update() {
  showSliders();
  wanted = true;
  if (running) return;
  running = true;
  while (wanted) {
    wanted = false;
    const text = at("text").value.trim();
    if (!text) { forget(); continue; }
    try {
      show(await post("/explain", { text, sparing: plan() }));
      at("problem").hidden = true;
    } catch (error) {
      at("problem").textContent = error.message;
      at("problem").hidden = false;
    }
  }
  running = false;
  document.body.dataset.settled = String(Number(document.body.dataset.settled ?? 0) + 1);
}

/** No text, no answer. */
function forget() {
  at("answer").replaceChildren(make("p", "Write a text.", "faint"));
  for (const id of ["figures", "spent"]) at(id).replaceChildren();
  at("problem").hidden = true;
}

const percent = (share, digits = 1) => (100 * share).toFixed(digits) + "%";
const count = (n) => n >= 1e9 ? (n / 1e9).toFixed(2) + " G" : n >= 1e6 ? (n / 1e6).toFixed(1) + " M" : (n / 1e3).toFixed(1) + " k";

function show(found) {
  const bars = found.answer.slice(0, 6).map(({ label, score }) => {
    const bar = make("div", undefined, "bar");
    const track = make("div", undefined, "track"), fill = make("div");
    fill.style.width = percent(Math.min(Math.max(score, 0), 1));
    track.append(fill);
    bar.append(make("span", label), track, make("span", percent(score)));
    return bar;
  });
  at("answer").replaceChildren(...(bars.length ? bars : [make("p", "A vector: this model names no labels.")]));

  const figure = (name, value, note, className) => {
    const box = make("div"), dd = make("dd", value, className);
    if (note) dd.append(make("small", note));
    box.append(make("dt", name), dd);
    return box;
  };
  const agreement = found.same === null ? "–" : found.same ? "same answer" : "another answer";
  const left = found.layers.at(-1)?.filter((share) => share > 0).length ?? found.tokens.length;
  at("figures").replaceChildren(
    figure("Against the exact model", agreement, `output changed by ${percent(found.change)}`, found.same === false ? "bad" : "good"),
    figure("FLOPs", count(found.flops), `${percent(found.flops / found.flops_exact)} of ${count(found.flops_exact)}`),
    figure("Time, median of 7", found.milliseconds.toFixed(2) + " ms", `exact model ${found.milliseconds_exact.toFixed(2)} ms`),
    figure("Tokens", String(found.tokens.length), left < found.tokens.length ? `${left} reach the last layer` : "all reach the last layer"),
  );
  table(found);
}

function table(found) {
  const values = found.values && !/drop|skip|keep|merge/.test(found.attention);
  const shares = values ? found.values : found.layers;
  at("spent-note").textContent = values
    ? "Share of the value product computed for every token (a twelfth of a layer's products), layer by layer."
    : "Share of a layer's products computed for every token. A token that leaves costs nothing from there on.";
  const head = make("tr");
  head.append(make("th", "layer"));
  for (const token of found.tokens) {
    const cell = make("th", token.joined ? "·" + token.text : token.text, token.special ? "special" : "");
    cell.scope = "col";
    head.append(cell);
  }
  const rows = shares.map((layer, number) => {
    const row = make("tr"), name = make("th", String(number));
    name.scope = "row";
    row.append(name);
    layer.forEach((share, place) => {
      const cell = make("td", String(Math.round(100 * share)));
      cell.style.backgroundColor = `rgb(var(--spent) / ${Math.max(share, 0.04)})`;
      if (share > 0.55) cell.style.color = "var(--spent-ink)";
      cell.title = `${found.tokens[place].text}, layer ${number}: ${Math.round(100 * share)}%`;
      row.append(cell);
    });
    return row;
  });
  const thead = make("thead"), tbody = make("tbody");
  thead.append(head);
  tbody.append(...rows);
  at("spent").replaceChildren(make("caption", "Percent spent on each token, a row per layer"), thead, tbody);
}

async function about() {
  const headers = at("key").value ? { authorization: "Bearer " + at("key").value } : {};
  const response = await fetch("/info", { headers });
  if (response.status === 401) { at("key-row").hidden = false; return; }
  const info = await response.json();
  if (!response.ok) { at("model").textContent = info.error; setTimeout(about, 500); return; }
  const kind = Object.keys(info.model_type)[0];
  at("model").textContent = `${info.served_model_name}: ${kind}, served in ${info.sparing.precision}, attention ${info.sparing.attention}`;
  sampler = info.sparing.calibrated ? "graded" : "mca";
  begin(info.sparing);
  update();
  if (info.sparing.report) {
    at("report").hidden = at("report-link").hidden = false;
    document.querySelector("#report iframe").src = "/report";
  }
}

/** The sliders begin where the model is served, as far as they can say it. */
let begun = false;
function begin(served) {
  if (begun) return;
  begun = true;
  at("precision").value = Math.max(0, PRECISIONS.indexOf(served.precision));
  const alpha = ALPHAS.indexOf(Number(/^[a-z]+:([\d.]+)/.exec(served.attention)?.[1])), keep = KEEPS.indexOf(Number(/keep=([\d.]+)/.exec(served.attention)?.[1]));
  at("alpha").value = Math.max(0, alpha);
  at("keep").value = Math.max(0, keep);
  attention = served.attention;
}

at("form").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["text", "precision"]) at(id).addEventListener("input", update);
for (const id of ["keep", "alpha"]) at(id).addEventListener("input", () => { attention = undefined; update(); });
at("key").addEventListener("change", about);
showSliders();
about();
