"""Checks of the console's pages, which a browser runs; and the link by which one comes in."""

from __future__ import annotations

import sys

from tests.support import forked
from tests.support.daemon import END_S, ROOT, Daemon


def link_of(running: Daemon) -> str:
    """What `batos console` prints."""
    command = [sys.executable, "-m", "batos", "console", "--connect", running.endpoint]
    return forked.run(command, capture_output=True, text=True, timeout=END_S, cwd=ROOT, check=True).stdout.strip()


# Every text against what is behind it, by the formula of WCAG 2: at least 4.5 to 1.
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function light([r, g, b]) {
  const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}
function behind(element) {
  for (let one = element; one; one = one.parentElement) {
    const colour = rgba(getComputedStyle(one).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255];
}
const poor = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.checkVisibility()) continue;
  const [a, b] = [light(rgba(getComputedStyle(element).color)), light(behind(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push([element.outerHTML.slice(0, 120), ratio.toFixed(2)]);
}
return [behind(document.body).slice(0, 3), poor];
"""


# What a reader that sees no screen needs: a name for every control, an id for one thing only, one heading of the first rank,
# no gaps between ranks, and names that are there.
NAMED = """
const faults = [];
for (const one of document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a, progress')) {
  const own = (one.getAttribute('aria-label') || one.textContent || '').trim();
  const given = [...(one.labels || [])].map(label => label.textContent).join('').trim();
  if (!own && !given) faults.push('no name: ' + one.outerHTML.slice(0, 120));
}
const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push('twice: ' + id);
const ranks = [...document.querySelectorAll('main :is(h1, h2, h3, h4)')].map(one => +one.tagName[1]);
if (ranks.filter(rank => rank === 1).length !== 1) faults.push('first headings: ' + ranks);
ranks.forEach((rank, n) => { if (n && rank > ranks[n - 1] + 1) faults.push('a gap between headings: ' + ranks); });
for (const one of document.querySelectorAll('[aria-labelledby]')) {
  if (!document.getElementById(one.getAttribute('aria-labelledby'))) faults.push(one.outerHTML.slice(0, 80));
}
return faults;
"""
