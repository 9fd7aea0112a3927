// SPDX-License-Identifier: Apache-2.0
/// @file
/// Style sheets of the report and its charts.
#pragma once

#include <string_view>

namespace examples::report_style {

/// Colors of the page and of charts. Print is always on white. c0 to c8 are the classes of the
/// heat map, from far below the mean (blue) to far above (orange), two colors that people with any
/// kind of color blindness can distinguish.
inline constexpr std::string_view palette = R"(
:root{color-scheme:light dark;
--bg:#fff;--card:#f5f7f8;--ink:#1b2126;--soft:#56616b;--rule:#dde2e6;
--before:#88929c;--after:#0b7a70;
--c0:#0b4a8f;--c1:#3a86c4;--c2:#8dbde0;--c3:#cfe2f1;--c4:#f1f2f2;
--c5:#fde0bf;--c6:#f7ad63;--c7:#dd6b10;--c8:#8c3503}
@media screen and (prefers-color-scheme:dark){:root{
--bg:#13171a;--card:#1c2226;--ink:#e7ebee;--soft:#9ba7b1;--rule:#2e363c;
--before:#76818c;--after:#2fc4b2;
--c0:#a9d3f7;--c1:#5fa6e2;--c2:#2f6ca6;--c3:#233f5a;--c4:#262c31;
--c5:#553820;--c6:#9c5a17;--c7:#e58c2f;--c8:#ffc988}}
)";

/// Styles inside an <svg>. Class names of bars are one letter, since bars are many: b is before, a
/// is after.
inline constexpr std::string_view chart = R"(
text{font:12px system-ui,sans-serif;fill:var(--soft);font-variant-numeric:tabular-nums}
.b{fill:var(--before)}.a{fill:var(--after)}.crisp{shape-rendering:crispEdges}
.m,.g,.d{fill:none;vector-effect:non-scaling-stroke}
.m{stroke:var(--ink)}.g{stroke:var(--rule)}.d{stroke:var(--before);stroke-width:1.5}
.e{text-anchor:end}.n{text-anchor:middle}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}
.c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}.c8{fill:var(--c8)}
)";

/// Styles of the page around the charts.
inline constexpr std::string_view page = R"(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0 auto;max-width:1180px;padding:28px 24px 48px;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums;
print-color-adjust:exact;-webkit-print-color-adjust:exact}
h1{font-size:24px;line-height:1.25;margin:0 0 4px}
h2{font-size:19px;line-height:1.3;margin:44px 0 4px}
h3{font-size:14px;margin:0 0 6px}
p{margin:0 0 14px;color:var(--soft);max-width:76ch}
bdi,h1,h2{overflow-wrap:anywhere}
figure,dl,dd{margin:0}
svg{display:block;overflow:visible}
.verdict,.warning{color:var(--ink)}.warning b{color:var(--c8)}
code{overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,250px),1fr));gap:16px;
margin:20px 0}
.tile{background:var(--card);border-radius:8px;padding:14px 18px 16px}
.tile b{display:block;font-size:34px;line-height:1.2;color:var(--after);margin:2px 0 8px}
.four b{font-size:26px}
.tile.worse b{color:var(--c8)}
.tile b i{font-style:normal;font-weight:400;color:var(--soft)}
.tile small{display:block;font-size:13px;color:var(--soft);margin-top:8px}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,150px),1fr));gap:10px 20px;
margin:0 0 22px}
dt{font-size:12px;color:var(--soft)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:5px 0 5px 12px;text-align:right;vertical-align:baseline;white-space:nowrap}
th{font-weight:400;color:var(--soft)}
thead th{font-size:12px;vertical-align:bottom}
tbody{border-top:1px solid var(--rule)}
.l{text-align:left}thead th:first-child,td:first-child,th.f{padding-left:0}
th.f{white-space:normal;color:var(--ink);min-width:9em;max-width:24em}
.after td,.after th{font-weight:600;color:var(--ink)}
td.bar{width:34%;min-width:120px;vertical-align:middle}
td i{font-style:normal;font-weight:400;color:var(--soft)}
.key{display:flex;flex-wrap:wrap;gap:4px 20px;font-size:13px;margin:0 0 12px}
.key span{display:inline-flex;align-items:center;gap:7px}
.axes{padding:8px 8px 24px 38px}.titled{padding-bottom:44px}
.t{text-anchor:middle}
.k{fill:none;stroke:var(--after);stroke-width:2;vector-effect:non-scaling-stroke}
.o{fill:var(--ink)}
.axes+h3{margin-top:16px}
.marked{padding-top:28px}
.panels{display:grid;gap:20px 26px}
.panels figcaption{display:flex;justify-content:space-between;gap:8px;font-size:12px;
color:var(--soft);margin-bottom:5px}
.panels figcaption b{color:var(--ink)}
.panels figure{border-bottom:1px solid var(--rule)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:8px 28px}
.scale{max-width:560px;padding:0 0 10px}
footer{margin-top:44px;padding-top:12px;border-top:1px solid var(--rule);font-size:13px;
color:var(--soft)}
@media print{body{padding:0;max-width:none}h2{break-after:avoid}
figure,tr,.tile{break-inside:avoid}.wide{overflow:visible}}
)";

}  // namespace examples::report_style
