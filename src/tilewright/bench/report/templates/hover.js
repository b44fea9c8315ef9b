"use strict";
// The tooltip of a picture at the pointer: for the cell of a map, the region, or the nearest point.

const NEAR = 12; // the largest distance to a point, in pixels
const told = document.createElement("div");
told.className = "tip";
told.hidden = true;
document.body.append(told);

const amount = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

function inside(box, x, y) {
  return x >= box[0] && x < box[2] && y >= box[1] && y < box[3];
}

// Each returns the text and its part of the picture, or null.
const look = {
  areas(spot, x, y) {
    const found = spot.boxes.findIndex((box) => inside(box, x, y));
    return found < 0 ? null : { text: spot.texts[found], box: spot.boxes[found] };
  },
  cells(spot, x, y) {
    const panel = spot.panels.find((each) => inside(each.box, x, y));
    if (!panel) return null;
    const [left, top, right, bottom] = panel.box;
    const wide = (right - left) / spot.columns.length, high = (bottom - top) / spot.rows.length;
    const column = Math.min(spot.columns.length - 1, Math.floor((x - left) / wide));
    const row = Math.min(spot.rows.length - 1, Math.floor((y - top) / high));
    const cell = row * spot.columns.length + column;
    const lines = [spot.rows[row], spot.columns[column]];
    for (const each of spot.panels) {
      if (each.values[cell] !== null) lines.push(`${each.label}: ${amount.format(each.values[cell])}`);
    }
    const status = spot.statuses[spot.status[cell]];
    if (status) lines.push(panel.values[cell] === null ? status : `some results: ${status}`);
    else if (panel.values[cell] === null) lines.push("no result");
    const at = [left + column * wide, top + row * high];
    return { text: lines.join("\n"), box: [...at, at[0] + wide, at[1] + high] };
  },
  points(spot, x, y, width, height) {
    let least = NEAR * NEAR, found = -1;
    spot.at.forEach(([px, py], i) => {
      const away = ((px - x) * width) ** 2 + ((py - y) * height) ** 2;
      if (away < least) { least = away; found = i; }
    });
    if (found < 0) return null;
    const value = `${amount.format(spot.values[found])} ${spot.label}`;
    const [px, py] = spot.at[found], dx = 5 / width, dy = 5 / height;
    const text = [spot.kernels[spot.kernel[found]], spot.problems[spot.problem[found]], value].join("\n");
    return { text, box: [px - dx, py - dy, px + dx, py + dy], round: true };
  },
};

function hover(frame, spots) {
  const image = frame.querySelector("img");
  const mark = document.createElement("div");
  mark.className = "mark";
  mark.hidden = true;
  frame.append(mark);
  const leave = () => { told.hidden = mark.hidden = true; };
  image.addEventListener("pointerleave", leave);
  image.addEventListener("pointermove", (event) => {
    const place = image.getBoundingClientRect(), edge = frame.getBoundingClientRect();
    const x = (event.clientX - place.left) / place.width, y = (event.clientY - place.top) / place.height;
    let found = null;
    for (const spot of spots) found = found || look[spot.kind](spot, x, y, place.width, place.height);
    if (!found) { leave(); return; }
    const [left, top, right, bottom] = found.box;
    mark.style.left = `${place.left - edge.left + left * place.width}px`;
    mark.style.top = `${place.top - edge.top + top * place.height}px`;
    mark.style.width = `${(right - left) * place.width}px`;
    mark.style.height = `${(bottom - top) * place.height}px`;
    mark.style.borderRadius = found.round ? "50%" : "0";
    told.textContent = found.text;
    told.hidden = mark.hidden = false;
    const room = document.documentElement.clientWidth - told.offsetWidth - 8;
    const below = event.clientY + 18 + told.offsetHeight < innerHeight;
    told.style.left = `${Math.max(4, Math.min(event.clientX + 14, room))}px`;
    told.style.top = `${below ? event.clientY + 18 : event.clientY - 12 - told.offsetHeight}px`;
  });
}

for (const frame of document.querySelectorAll("[data-spots]")) {
  hover(frame, JSON.parse(document.getElementById(frame.dataset.spots).textContent));
}
