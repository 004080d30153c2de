// Piece: a set of a logical tensor's elements, as evenly spaced runs. Plans consist of pieces,
// never of elements or rows, so their size grows with the number of shards, not with the model.
//
//   Piece rows{.tensor = 3, .first = 0, .length = 4096, .stride = 4096};
//   Piece column{.tensor = 3, .first = 512, .length = 512, .stride = 4096, .repeat = 64};
//   PieceMatches both = Intersect(rows, column);   // one run of 512 elements
#ifndef TANDEM_COMMON_WEIGHTS_PIECE_H_
#define TANDEM_COMMON_WEIGHTS_PIECE_H_

#include <array>
#include <cstdint>

namespace tandem::weights {

// `repeat` runs of `length` elements in row-major order of the tensor; run i starts at first + i *
// stride. If a piece has several runs, its stride is the tensor's row length and no run crosses the
// end of a row. A piece of one run is any contiguous range; its stride is its length.
struct Piece {
  int32_t tensor = 0;  // in manifest order
  int64_t first = 0;
  int64_t length = 0;
  int64_t stride = 0;
  int64_t repeat = 1;

  int64_t elements() const { return length * repeat; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

// A piece's location in one rank's memory: run i is at offset + i * stride of the block.
struct Place {
  int32_t block = 0;  // unit of the shard (trainer), or tensor (rollout)
  int64_t offset = 0;
  int64_t stride = 0;
};

// The intersection of two pieces and where it starts in each, counted in the piece's own elements,
// in the order in which a holder stores them.
struct PieceMatch {
  Piece piece;
  int64_t a_offset = 0;
  int64_t a_stride = 0;
  int64_t b_offset = 0;
  int64_t b_stride = 0;
};

// At most three: the rest of a row, whole rows, the beginning of a row.
struct PieceMatches {
  std::array<PieceMatch, 3> match;
  int size = 0;

  const PieceMatch* begin() const { return match.data(); }
  const PieceMatch* end() const { return match.data() + size; }
};

// Intersects two pieces of the same tensor.
PieceMatches Intersect(const Piece& a, const Piece& b);

// Cuts a piece into portions that are pieces themselves. `from` and `to` locate the full piece;
// Take() returns the portion's own places.
class PieceCutter {
 public:
  PieceCutter(const Piece& piece, const Place& from, const Place& to)
      : piece_(piece), from_(from), to_(to) {}

  int64_t left() const { return piece_.elements() - done_; }
  // Takes the next portion: as many elements as fit into `most` (at least 1) and form a piece.
  void Take(int64_t most, Piece& piece, Place& from, Place& to);

 private:
  Piece piece_;
  Place from_;
  Place to_;
  int64_t done_ = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_PIECE_H_
