// Piece: a set of elements of a logical tensor, as runs at even distances. A plan is made of pieces
// and never of elements or rows, so that its size follows the number of shards, not the model's.
//
//   Piece rows{.tensor = 3, .first = 0, .length = 4096, .stride = 4096};
//   Piece column{.tensor = 3, .first = 512, .length = 512, .stride = 4096, .repeat = 64};
//   // One run of 512 elements.
//   PieceMatches both = Intersect(rows, column);
#ifndef TANDEM_COMMON_WEIGHTS_PIECE_H_
#define TANDEM_COMMON_WEIGHTS_PIECE_H_

#include <array>
#include <cstdint>

namespace tandem::weights {

// `repeat` runs of `length` elements in row-major order of the tensor; run i begins at
// first + i * stride. All pieces of more than one run of a tensor have its row's length as stride,
// and no run crosses the end of a row. A piece of one run is any contiguous range; its stride is
// its length.
struct Piece {
  int32_t tensor = 0;  // in manifest order
  int64_t first = 0;
  int64_t length = 0;
  int64_t stride = 0;
  int64_t repeat = 1;

  int64_t elements() const { return length * repeat; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

// Where the runs of a piece lie in one rank's memory: run i at offset + i * stride of the block.
struct Place {
  int32_t block = 0;  // the unit whose shard it is (trainer), or the tensor (rollout)
  int64_t offset = 0;
  int64_t stride = 0;
};

// What two pieces share, and where it begins in each: counted in the piece's own elements, one
// after another, as a holder stores them.
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

// Of two pieces of one tensor.
PieceMatches Intersect(const Piece& a, const Piece& b);

// The elements [done, elements) of a piece in portions, each again one piece. `from` and `to` are
// where the whole lies; those of a portion are answered with it.
class PieceCutter {
 public:
  PieceCutter(const Piece& piece, const Place& from, const Place& to)
      : piece_(piece), from_(from), to_(to) {}

  int64_t left() const { return piece_.elements() - done_; }
  // The next portion: as many elements as fit into `most` (at least 1) and are a piece.
  void Take(int64_t most, Piece& piece, Place& from, Place& to);

 private:
  Piece piece_;
  Place from_;
  Place to_;
  int64_t done_ = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_PIECE_H_
