# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The style and the script of the page, and the policy that allows these two and nothing else."""

from __future__ import annotations

import base64
import hashlib

# The colours are those of Okabe and Ito, which colour-blind people tell apart.
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1b1b; --dim: #595959; --line: #c9c9c9; --band: #f2f4f6;
  --link: #00579c; --bad: #a30000; --left: #e4e7ea; --reserved: #9aa5b1; --other: #4d4d4d; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #16191d; --ink: #e8e8e8; --dim: #a9b0b8; --line: #434a52; --band: #20252b; --link: #7fc1ff;
    --bad: #ff9d8a; --left: #343b43; --reserved: #7b8794; --other: #c9c9c9; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1600px; padding: 1rem; background: var(--paper); color: var(--ink);
  font: .94rem/1.4 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; }
a { color: var(--link); }
nav a { display: inline-block; margin-right: 1rem; }
.note { color: var(--dim); }
.bad { color: var(--bad); font-weight: 600; }
.tools { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center;
  padding: .5rem 0; background: var(--paper); border-bottom: 1px solid var(--line); }
.tools[hidden], tr[hidden] { display: none !important; }
.tools input { font: inherit; }
.tools input[type=search] { width: 18rem; max-width: 100%; padding: .2rem .4rem; }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .35rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
td { min-width: 5rem; }
tbody th { min-width: 10rem; }
td.word, th.word { white-space: nowrap; }
td.text { min-width: 11rem; }
thead th { background: var(--band); white-space: nowrap; }
th button { font: inherit; font-weight: inherit; color: inherit; background: none; border: 0; padding: 0;
  cursor: pointer; text-decoration: underline dotted; }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
tbody th { font-weight: 600; }
.num { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.wide { width: 38%; min-width: 14rem; }
.id { display: block; color: var(--dim); font: .7rem/1.4 ui-monospace, monospace; }
svg { display: block; width: 100%; height: 16px; background: var(--band); }
rect { stroke: var(--paper); stroke-width: 1px; vector-effect: non-scaling-stroke; }
.parts { display: flex; flex-wrap: wrap; gap: 0 .9rem; list-style: none; margin: .2rem 0 0; padding: 0;
  font-size: .8rem; }
.parts li::before { content: ""; display: inline-block; width: .7em; height: .7em; margin-right: .3em;
  border: 1px solid var(--dim); -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.parts li.disks::before { background: #0072b2; } rect.disks { fill: #0072b2; }
.parts li.disks2::before { background: #56b4e9; } rect.disks2 { fill: #56b4e9; }
.parts li.snapshots::before { background: #e69f00; } rect.snapshots { fill: #e69f00; }
.parts li.reserved::before { background: var(--reserved); } rect.reserved { fill: var(--reserved); }
.parts li.parked::before { background: #cc79a7; } rect.parked { fill: #cc79a7; }
.parts li.replicas::before { background: #009e73; } rect.replicas { fill: #009e73; }
.parts li.other::before { background: var(--other); } rect.other { fill: var(--other); }
.parts li.left::before { background: var(--left); } rect.left { fill: var(--left); }
ul.marks { list-style: none; margin: 0; padding: 0; }
ul.marks li { padding-left: .8em; text-indent: -.8em; }
ul.marks li::before { content: "\\2022\\a0"; }
@media screen and (max-width: 1220px) {
  table, tbody, tr, th, td, tbody th, td.text, .wide { display: block; width: auto; min-width: 0; }
  thead tr { display: flex; flex-wrap: wrap; gap: .1rem .8rem; }
  thead th { border: 0; padding: .2rem; }
  tbody tr { border-bottom: 2px solid var(--line); padding: .4rem 0; }
  tbody th, tbody td { border: 0; padding: .1rem .25rem; }
  td.num { text-align: left; }
  td[data-label]::before { content: attr(data-label) ": "; color: var(--dim); }
  td.wide::before, td.text::before { display: block; }
  td:empty { display: none; }
  .tools { position: static; }
}
@media print {
  @page { size: A4 landscape; margin: 10mm; }
  html { font-size: 10px; }
  body { max-width: none; padding: 0; }
  .tools, nav { display: none; }
  thead, tr { break-inside: avoid; }
  th button { display: contents; }
  h2 { break-after: avoid; }
  a { color: inherit; text-decoration: none; }
}
"""

# No < and no &, so that the page stays well-formed.
SCRIPT = """
"use strict";
(function () {
  var list = function (found) { return Array.prototype.slice.call(found); };
  var rows = list(document.querySelectorAll("tbody tr")).map(function (row) {
    return { row: row, text: row.textContent.toLowerCase() };
  });
  var field = document.getElementById("filter");
  var only = document.getElementById("only");
  var count = document.getElementById("count");
  function filter() {
    var words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
    var shown = 0;
    rows.forEach(function (one) {
      var fits = words.every(function (word) { return one.text.includes(word); });
      var calm = only.checked ? one.row.classList.contains("calm") : false;
      one.row.hidden = calm || !fits;
      shown += one.row.hidden ? 0 : 1;
    });
    count.textContent = shown + " of " + rows.length + " rows";
  }
  function key(row, place, numeric) {
    var cell = row.cells[place];
    return numeric ? Number(cell.dataset.v) : cell.textContent;
  }
  function sort(table, head, place) {
    var numeric = head.classList.contains("num");
    var first = numeric ? "descending" : "ascending";
    var other = numeric ? "ascending" : "descending";
    var order = head.getAttribute("aria-sort") === first ? other : first;
    var body = table.tBodies[0];
    var sorted = list(body.rows).map(function (row) { return { row: row, key: key(row, place, numeric) }; });
    sorted.sort(function (one, two) {
      var way = numeric ? one.key - two.key : one.key.localeCompare(two.key, "en", { numeric: true });
      return order === "ascending" ? way : -way;
    });
    list(table.tHead.rows[0].cells).forEach(function (cell) { cell.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", order);
    sorted.forEach(function (one) { body.appendChild(one.row); });
  }
  list(document.querySelectorAll("table")).forEach(function (table) {
    list(table.tHead.rows[0].cells).forEach(function (head, place) {
      if (head.classList.contains("wide")) { return; }
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", function () { sort(table, head, place); });
      head.textContent = "";
      head.appendChild(button);
    });
  });
  field.addEventListener("input", filter);
  only.addEventListener("change", filter);
  document.querySelector(".tools").hidden = false;
  filter();
})();
"""


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


POLICY = (
    f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'; base-uri 'none'; form-action 'none'"
)
