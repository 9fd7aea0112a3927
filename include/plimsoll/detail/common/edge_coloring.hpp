// SPDX-License-Identifier: Apache-2.0
/// @file
/// Edge coloring of graphs: no two edges of a vertex have one color.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// A simple graph of at most 65535 vertices whose edges are colored one after another. With as many
/// colors as the largest degree every edge of a bipartite graph gets one (Kőnig), with one color
/// more every edge of any graph (Vizing; the fans are Misra and Gries's).
struct edge_coloring {
  static constexpr std::uint16_t none = 0xffff;

  std::uint16_t* neighbors;  ///< `[vertices, colors]`: the other end of the vertex's edge, or none
  std::int32_t* fan;         ///< `[colors]`: neighbors of one vertex
  std::int32_t* fan_colors;  ///< `[colors]`: colors of their edges
  index_t colors;            ///< columns of `neighbors`

  [[nodiscard]] PLIMSOLL_HD std::uint16_t* row(index_t v) const { return neighbors + v * colors; }

  template <class Team>
  PLIMSOLL_HD void clear(Team& team, index_t vertices) const {
    std::uint16_t* const all = neighbors;
    team.for_each(vertices * colors, [all](index_t i) { all[i] = none; });
  }

  /// Takes its color from an edge.
  template <class Team>
  PLIMSOLL_HD void remove(Team& team, index_t u, index_t v, index_t color) const {
    edge_coloring const all = *this;
    team.single([=] {
      all.row(u)[color] = none;
      all.row(v)[color] = none;
    });
  }

  /// Gives an edge one of the first `most` colors, and other edges others of these. Returns false,
  /// and changes nothing, if it finds no way. Both ends must have a free color.
  ///
  /// A fan of u is a list of its neighbors, v first, in which the edge to each has a color that is
  /// free on the neighbor before. If a color is free on u and on the last one, every edge of the
  /// fan takes the color of the next, and the last one that color. Otherwise let d be free on the
  /// last one, c on u, and take the path from u whose edges have the colors d, c, d, and so on.
  /// Unless it ends at the last neighbor, an exchange of c and d on it frees d on u. If all such
  /// paths end there, the fan grows by the edge of color d. It never grows to a neighbor that it
  /// has: the paths of that d still end at an earlier neighbor. In a bipartite graph no path ends
  /// at v.
  template <class Team>
  PLIMSOLL_HD bool color(Team& team, index_t u, index_t v, index_t most) const {
    std::uint16_t const* const at_u = row(u);
    team.store(fan, static_cast<std::int32_t>(v));
    index_t last = v;
    for (index_t size = 1;; ++size) {
      std::uint16_t const* const at_last = row(last);
      auto const is_free = [=](index_t x) { return at_last[x] == none; };
      auto const is_free_on_u = [=](index_t x) { return at_u[x] == none; };
      index_t const common =
          team.find(0, most, [=](index_t x) { return is_free(x) && is_free_on_u(x); });
      if (common < most) {
        rotate(team, u, size, common);
        return true;
      }
      index_t const first = team.find(0, most, is_free);
      for (index_t d = first; d < most; d = team.find(d + 1, most, is_free)) {
        for (index_t c = team.find(0, most, is_free_on_u); c < most;
             c = team.find(c + 1, most, is_free_on_u)) {
          if (end_of_path(u, d, c) != last) {
            exchange(team, u, d, c);
            std::int32_t* const tints = fan_colors;
            team.for_each(size - 1, [=](index_t i) {
              tints[i + 1] = static_cast<std::int32_t>(tints[i + 1] == d ? c : tints[i + 1]);
            });
            rotate(team, u, size, d);
            return true;
          }
        }
      }
      if (first == most) {
        return false;
      }
      last = at_u[first];
      team.store(fan + size, static_cast<std::int32_t>(last));
      team.store(fan_colors + size, static_cast<std::int32_t>(first));
    }
  }

 private:
  /// Gives every edge of the fan the color of the next, and the last one `color`, which is free on
  /// both its ends.
  template <class Team>
  PLIMSOLL_HD void rotate(Team& team, index_t u, index_t size, index_t color) const {
    edge_coloring const all = *this;
    team.for_each(size, [=](index_t i) {
      std::uint16_t* const row_of_end = all.row(all.fan[i]);
      if (i > 0) {
        row_of_end[all.fan_colors[i]] = none;
      }
      index_t const next = i + 1 < size ? all.fan_colors[i + 1] : color;
      row_of_end[next] = static_cast<std::uint16_t>(u);
      all.row(u)[next] = static_cast<std::uint16_t>(all.fan[i]);
    });
  }

  /// Returns the end of the path from u whose edges have the colors d, c, d, ...; c is free on u.
  [[nodiscard]] PLIMSOLL_HD index_t end_of_path(index_t u, index_t d, index_t c) const {
    index_t end = u;
    for (index_t color = d; row(end)[color] != none; color = c + d - color) {
      end = row(end)[color];
    }
    return end;
  }

  /// Exchanges the two colors on that path.
  template <class Team>
  PLIMSOLL_HD void exchange(Team& team, index_t u, index_t d, index_t c) const {
    constexpr int stretch = 64;  // even, so that each begins with an edge of color d
    edge_coloring const all = *this;
    for (index_t vertex = u; vertex != none;) {
      vertex = team.broadcast([=] {
        index_t here = vertex;
        for (int i = 0; i < stretch && here != none; ++i) {
          std::uint16_t* const colors_of = all.row(here);
          here = colors_of[i % 2 == 0 ? d : c];
          std::uint16_t const other = colors_of[c];
          colors_of[c] = colors_of[d];
          colors_of[d] = other;
        }
        return here;
      });
    }
  }
};

}}}  // namespace plimsoll::detail
