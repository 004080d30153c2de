#include "common/weights/piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "common/weights/holdings.h"

namespace tandem::weights {
namespace {

std::vector<int64_t> Elements(const Piece& piece) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < piece.repeat; ++i) {
    for (int64_t j = 0; j < piece.length; ++j) out.push_back(piece.first + i * piece.stride + j);
  }
  return out;
}

// A range or a box of a matrix of `rows` x `columns`.
Piece RandomPiece(std::mt19937& rng, int64_t rows, int64_t columns) {
  const auto range = [&](int64_t n) {
    int64_t a = static_cast<int64_t>(rng() % n), b = static_cast<int64_t>(rng() % n);
    return std::pair(std::min(a, b), std::max(a, b) + 1);
  };
  if (rng() % 2 == 0) {
    const auto [begin, end] = range(rows * columns);
    return {0, begin, end - begin, end - begin, 1};
  }
  const auto [top, bottom] = range(rows);
  const auto [left, right] = range(columns);
  if (right - left == columns) {
    return {0, top * columns, (bottom - top) * columns, (bottom - top) * columns, 1};
  }
  const int64_t stride = bottom - top == 1 ? right - left : columns;
  return {0, top * columns + left, right - left, stride, bottom - top};
}

TEST(Piece, WhatTwoShareIsInBothWhereItSays) {
  std::mt19937 rng(7);
  for (int round = 0; round < 20000; ++round) {
    const int64_t rows = 1 + static_cast<int64_t>(rng() % 7);
    const int64_t columns = 2 + static_cast<int64_t>(rng() % 7);
    const Piece a = RandomPiece(rng, rows, columns);
    const Piece b = RandomPiece(rng, rows, columns);
    const std::vector<int64_t> in_a = Elements(a);
    const std::vector<int64_t> in_b = Elements(b);
    std::vector<int64_t> expected;
    std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(),
                          std::back_inserter(expected));

    std::vector<int64_t> found;
    for (const PieceMatch& match : Intersect(a, b)) {
      for (int64_t i = 0; i < match.piece.repeat; ++i) {
        for (int64_t j = 0; j < match.piece.length; ++j) {
          const int64_t element = match.piece.first + i * match.piece.stride + j;
          found.push_back(element);
          ASSERT_EQ(in_a[match.a_offset + i * match.a_stride + j], element);
          ASSERT_EQ(in_b[match.b_offset + i * match.b_stride + j], element);
        }
      }
    }
    ASSERT_EQ(found, expected);
  }
}

TEST(Piece, PortionsAreTheWholeInOrder) {
  std::mt19937 rng(8);
  for (int round = 0; round < 2000; ++round) {
    const Piece piece = RandomPiece(rng, 5, 6);
    // As if the sender had the whole matrix and the receiver the piece alone.
    PieceCutter cutter(piece, {1, piece.first, piece.stride}, {2, 0, piece.length});
    std::vector<int64_t> elements;
    int64_t taken = 0;
    while (cutter.left() > 0) {
      const int64_t most = 1 + static_cast<int64_t>(rng() % 9);
      Piece portion;
      Place from, to;
      cutter.Take(most, portion, from, to);
      ASSERT_LE(portion.elements(), most);
      EXPECT_EQ(from.offset, portion.first);
      EXPECT_EQ(from.stride, portion.stride);
      EXPECT_EQ(to.offset, taken);
      EXPECT_EQ(to.stride, portion.length);
      for (const int64_t element : Elements(portion)) elements.push_back(element);
      taken += portion.elements();
    }
    EXPECT_EQ(elements, Elements(piece));
  }
}

TEST(Piece, ARangeOfABoxIsAtMostThree) {
  const LogicalTensor tensor{"t", 6, 10};
  const TensorBox box{.first_row = 1, .rows = 4, .first_column = 3, .columns = 5};
  for (int64_t first = 0; first < box.elements(); ++first) {
    for (int64_t count = 1; first + count <= box.elements(); ++count) {
      const std::vector<Holding> pieces = PiecesOfBox(tensor, box, first, count);
      ASSERT_LE(pieces.size(), 3);
      int64_t at = first;
      for (const Holding& holding : pieces) {
        EXPECT_EQ(holding.offset, at);
        for (const int64_t element : Elements(holding.piece)) {
          EXPECT_EQ(element, (1 + at / 5) * 10 + 3 + at % 5);
          ++at;
        }
      }
      EXPECT_EQ(at, first + count);
    }
  }
}

}  // namespace
}  // namespace tandem::weights
