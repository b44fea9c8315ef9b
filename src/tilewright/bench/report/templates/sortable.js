"use strict";
// Tables with sorting, search and pages. A table's data are columns of numbers, or of indices into a list of texts.
// The address after # holds the current view (#counters&sort=problem&down&find=compv4), so that it can be shared.

function sortable(host, data) {
  const name = host.id;
  const state = { sort: data.sort, down: data.down, find: "", only: {}, page: 0 };
  const column = new Map(data.columns.map((each) => [each.name, each]));
  const order = new Intl.Collator("en", { numeric: true });
  let shown = [];

  for (const each of data.columns) {
    if (each.kind === "number") continue;
    const sorted = each.texts.map((_, i) => i).sort((a, b) => order.compare(each.texts[a], each.texts[b]));
    each.rank = [];
    each.long = each.texts.some((text) => text.length > 40);
    sorted.forEach((code, place) => { each.rank[code] = place; });
  }

  // The sort key of a row; null is always last.
  const key = (each, row) => (each.kind === "number" ? each.values[row] : each.rank[each.values[row]]);

  function matching() {
    const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
    const texts = data.columns.filter((each) => each.kind !== "number");
    const hits = words.map((word) => texts.map((each) => each.texts.map((text, i) =>
      text.toLowerCase().includes(word) || (each.titles[i] || "").toLowerCase().includes(word))));
    const only = Object.entries(state.only).filter(([, value]) => value !== "").map(([column_name, value]) => {
      const each = column.get(column_name);
      return [each, each.texts.indexOf(value)];
    });
    const rows = [];
    for (let row = 0; row < data.rows; row++) {
      if (only.some(([each, code]) => each.values[row] !== code)) continue;
      if (hits.every((hit) => hit.some((texts_hit, i) => texts_hit[texts[i].values[row]]))) rows.push(row);
    }
    return rows;
  }

  function arrange() {
    const by = column.get(state.sort);
    const sign = state.down ? -1 : 1;
    shown = matching();
    shown.sort((a, b) => {
      const left = key(by, a), right = key(by, b);
      if (left === null || right === null) return (left === null) - (right === null) || a - b;
      return sign * (left - right) || a - b;
    });
    state.page = Math.max(0, Math.min(state.page, Math.ceil(shown.length / data.page) - 1));
  }

  const make = (tag, text, parent) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 15 });
  const written = (value) => (value === null ? "" : number.format(value));

  const bar = make("div", undefined, host);
  bar.className = "bar";
  const find = make("input", undefined, bar);
  find.type = "search";
  find.placeholder = "search: all words must match";
  find.setAttribute("aria-label", "search");
  find.addEventListener("input", () => { state.find = find.value; state.page = 0; show(true); });
  const choices = new Map();
  for (const each of data.columns.filter((each) => each.kind === "choice" && each.texts.length > 1)) {
    const choice = make("select", undefined, bar);
    choice.setAttribute("aria-label", each.name);
    make("option", `${each.name}: all`, choice).value = "";
    each.texts.forEach((text) => { make("option", text, choice).value = text; });
    choice.addEventListener("change", () => { state.only[each.name] = choice.value; state.page = 0; show(true); });
    choices.set(each.name, choice);
  }
  const told = make("span", undefined, bar);
  told.className = "told";
  const back = make("button", "‹ previous", bar), on = make("button", "next ›", bar);
  back.addEventListener("click", () => { state.page -= 1; show(true); });
  on.addEventListener("click", () => { state.page += 1; show(true); });

  const wide = make("div", undefined, host);
  wide.className = "scroll";
  const table = make("table", undefined, wide);
  const heads = new Map();
  const row = make("tr", undefined, make("thead", undefined, table));
  for (const each of data.columns) {
    const head = make("th", undefined, row);
    const button = make("button", each.name, head);
    if (each.about) head.title = each.about;
    if (each.kind === "number") head.className = "number";
    button.addEventListener("click", () => {
      // Numbers start with the largest, texts with the first.
      state.down = state.sort === each.name ? !state.down : each.kind === "number";
      state.sort = each.name;
      state.page = 0;
      show(true);
    });
    heads.set(each.name, head);
  }
  const body = make("tbody", undefined, table);

  function show(by_hand) {
    arrange();
    for (const [column_name, head] of heads) {
      if (column_name === state.sort) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    const first = state.page * data.page;
    const rows = shown.slice(first, first + data.page).map((place) => {
      const line = document.createElement("tr");
      for (const each of data.columns) {
        const value = each.values[place];
        const cell = make("td", each.kind === "number" ? written(value) : each.texts[value], line);
        cell.className = each.long ? "long" : each.kind;
        if (each.titles[value]) cell.title = each.titles[value];
        if (each.name === "status" && each.texts[value] !== "ok") line.className = "failed";
      }
      return line;
    });
    body.replaceChildren(...rows);
    const last = Math.min(first + data.page, shown.length);
    const all = shown.length === data.rows ? "" : ` of ${number.format(data.rows)}`;
    const found = number.format(shown.length) + all;
    told.textContent = shown.length ? `${number.format(first + 1)}–${number.format(last)} of ${found}` : `none${all}`;
    back.disabled = state.page === 0;
    on.disabled = last >= shown.length;
    if (by_hand) remember();
  }

  function remember() {
    const parts = [name, `sort=${encodeURIComponent(state.sort)}`];
    if (state.down) parts.push("down");
    if (state.find) parts.push(`find=${encodeURIComponent(state.find)}`);
    for (const [column_name, value] of Object.entries(state.only)) {
      if (value) parts.push(`only.${encodeURIComponent(column_name)}=${encodeURIComponent(value)}`);
    }
    if (state.page) parts.push(`page=${state.page + 1}`);
    history.replaceState(null, "", `#${parts.join("&")}`);
  }

  function recall() {
    const [of, ...parts] = location.hash.slice(1).split("&").map(decodeURIComponent);
    if (of !== name) return false;
    Object.assign(state, { sort: data.sort, down: parts.length ? false : data.down, find: "", only: {}, page: 0 });
    for (const part of parts) {
      const cut = part.indexOf("=");
      const [word, value] = cut < 0 ? [part, ""] : [part.slice(0, cut), part.slice(cut + 1)];
      if (word === "sort" && column.has(value)) state.sort = value;
      else if (word === "down") state.down = true;
      else if (word === "find") state.find = value;
      else if (word === "page") state.page = Number(value) - 1 || 0;
      else if (word.startsWith("only.") && choices.has(word.slice(5))) state.only[word.slice(5)] = value;
    }
    find.value = state.find;
    for (const [column_name, choice] of choices) choice.value = state.only[column_name] || "";
    return true;
  }

  const here = recall();
  show(false);
  if (here) host.scrollIntoView();
  addEventListener("hashchange", () => { if (recall()) show(false); });
}

for (const host of document.querySelectorAll(".sortable")) {
  sortable(host, JSON.parse(document.getElementById(`${host.id}-rows`).textContent));
}
