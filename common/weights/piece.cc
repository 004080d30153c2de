#include "common/weights/piece.h"

#include <algorithm>
#include <utility>

namespace tandem::weights {
namespace {

// Intersects a contiguous range [first, first + length) with a piece of several runs.
PieceMatches IntersectRange(const Piece& range, const Piece& runs) {
  PieceMatches out;
  const int64_t width = runs.stride;
  const int64_t end = range.first + range.length;
  const auto add = [&](int64_t run, int64_t count, int64_t begin, int64_t stop) {
    if (count <= 0 || begin >= stop) return;
    PieceMatch& m = out.match[out.size++];
    m.piece = {runs.tensor, begin, stop - begin, count == 1 ? stop - begin : width, count};
    m.a_offset = begin - range.first;
    m.a_stride = m.piece.stride;
    m.b_offset = run * runs.length + begin - (runs.first + run * width);
    m.b_stride = count == 1 ? m.piece.length : runs.length;
  };
  // The runs that the range touches: those that begin before its end and end after its beginning.
  const int64_t touched_from = range.first < runs.first + runs.length
                                   ? 0
                                   : (range.first - runs.first - runs.length) / width + 1;
  const int64_t touched_to =
      end <= runs.first ? 0 : std::min(runs.repeat, (end - runs.first - 1) / width + 1);
  if (touched_from >= touched_to) return out;
  const auto begin_of = [&](int64_t run) { return runs.first + run * width; };
  const auto part = [&](int64_t run) {
    add(run, 1, std::max(range.first, begin_of(run)), std::min(end, begin_of(run) + runs.length));
  };
  // Only the first and the last of them can be cut.
  int64_t whole_from = touched_from;
  int64_t whole_to = touched_to;
  if (begin_of(touched_from) < range.first || begin_of(touched_from) + runs.length > end) {
    part(whole_from++);
  }
  const bool last_cut = whole_to > whole_from && begin_of(whole_to - 1) + runs.length > end;
  if (last_cut) --whole_to;
  add(whole_from, whole_to - whole_from, begin_of(whole_from), begin_of(whole_from) + runs.length);
  if (last_cut) part(whole_to);
  return out;
}

PieceMatches IntersectRanges(const Piece& a, const Piece& b) {
  PieceMatches out;
  const int64_t begin = std::max(a.first, b.first);
  const int64_t end = std::min(a.first + a.length, b.first + b.length);
  if (begin >= end) return out;
  const int64_t n = end - begin;
  out.match[out.size++] = {{a.tensor, begin, n, n, 1}, begin - a.first, n, begin - b.first, n};
  return out;
}

// Two boxes of the same matrix.
PieceMatches IntersectBoxes(const Piece& a, const Piece& b) {
  PieceMatches out;
  const int64_t width = a.stride;
  const int64_t a_row = a.first / width;
  const int64_t b_row = b.first / width;
  const int64_t a_column = a.first - a_row * width;
  const int64_t b_column = b.first - b_row * width;
  const int64_t row = std::max(a_row, b_row);
  const int64_t rows = std::min(a_row + a.repeat, b_row + b.repeat) - row;
  const int64_t column = std::max(a_column, b_column);
  const int64_t columns = std::min(a_column + a.length, b_column + b.length) - column;
  if (rows <= 0 || columns <= 0) return out;
  const bool one = rows == 1;
  out.match[out.size++] = {{a.tensor, row * width + column, columns, one ? columns : width, rows},
                           (row - a_row) * a.length + column - a_column,
                           one ? columns : a.length,
                           (row - b_row) * b.length + column - b_column,
                           one ? columns : b.length};
  return out;
}

}  // namespace

PieceMatches Intersect(const Piece& a, const Piece& b) {
  if (a.repeat == 1 && b.repeat == 1) return IntersectRanges(a, b);
  if (a.repeat > 1 && b.repeat > 1) return IntersectBoxes(a, b);
  if (a.repeat == 1) return IntersectRange(a, b);
  PieceMatches out = IntersectRange(b, a);
  for (int i = 0; i < out.size; ++i) {
    std::swap(out.match[i].a_offset, out.match[i].b_offset);
    std::swap(out.match[i].a_stride, out.match[i].b_stride);
  }
  return out;
}

void PieceCutter::Take(int64_t most, Piece& piece, Place& from, Place& to) {
  const int64_t run = done_ / piece_.length;
  const int64_t within = done_ - run * piece_.length;
  int64_t length = piece_.length;
  int64_t repeat = 1;
  if (within > 0 || most < length) {
    length = std::min(most, length - within);
  } else {
    repeat = std::min(most / length, piece_.repeat - run);
  }
  const auto stride = [&](int64_t whole) { return repeat == 1 ? length : whole; };
  piece = {piece_.tensor, piece_.first + run * piece_.stride + within, length,
           stride(piece_.stride), repeat};
  from = {from_.block, from_.offset + run * from_.stride + within, stride(from_.stride)};
  to = {to_.block, to_.offset + run * to_.stride + within, stride(to_.stride)};
  done_ += length * repeat;
}

}  // namespace tandem::weights
