// SPDX-License-Identifier: Apache-2.0
// Measures the report as drawn in a frame, and writes the result as JSON to <pre id="measured"> of the
// surrounding page.
addEventListener('load', () => {
  const elements = document.getElementsByTagName('*').length - 2;  // without this script and the policy

  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((c) =>
      c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  };
  const background = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    const alpha = channels(color)[3] ?? 1;
    return alpha > 0 ? color : background(element.parentElement);
  };
  const foreground = (element) => {
    const style = getComputedStyle(element);
    return element instanceof SVGElement ? style.fill : style.color;
  };

  const hasText = (element) => element.checkVisibility() && !element.closest('title, style, script') &&
    [...element.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim() !== '');
  const texts = [...document.body.querySelectorAll('*')].filter(hasText);
  const contrasts = texts.map((t) => contrast(foreground(t), background(t)));
  const faintest = contrasts.indexOf(Math.min(...contrasts));

  const panels = [...document.querySelectorAll('svg[data-scale]')];
  const bars = [...document.querySelectorAll('rect[data-load]')];
  const latencies = [...document.querySelectorAll('rect[data-latency]')];
  const of_both_sides = [...document.querySelectorAll('.key rect')];
  const height = (element) => element.getBoundingClientRect().height;
  const line = (panel) => {
    const drawn = panel.querySelector('.m')?.getBoundingClientRect();
    return drawn ? panel.getBoundingClientRect().bottom - (drawn.top + drawn.bottom) / 2 : null;
  };

  const measured = {
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
    width: document.documentElement.clientWidth,
    elements,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    texts: texts.length,
    contrast: contrasts[faintest],
    faintest: texts[faintest].textContent.replace(/[^\w .:]/g, '?').slice(0, 40),
    font: Math.min(...texts.map((t) => parseFloat(getComputedStyle(t).fontSize))),
    bar_contrast: Math.min(
      ...of_both_sides.map((b) => contrast(foreground(b), background(b.ownerSVGElement)))),
    panels: panels.map((p) => ({
      layer: p.dataset.layer, scale: p.dataset.scale, height: height(p), line: line(p)})),
    bars: bars.map((b) => ({
      side: b.getAttribute('class'), layer: b.dataset.layer, rank: b.dataset.rank,
      load: b.dataset.load, height: height(b)})),
    latency_bars: latencies.map((b) => ({
      side: b.getAttribute('class'), layer: b.dataset.layer, rank: b.dataset.rank,
      latency: b.dataset.latency, height: height(b), panel: height(b.ownerSVGElement),
      full: b.ownerSVGElement.dataset.full, comparison: b.ownerSVGElement.dataset.comparison})),
  };
  const result = parent.document.createElement('pre');
  result.id = 'measured';
  result.textContent = JSON.stringify(measured);
  parent.document.body.append(result);
});
