#include "common/weights/delta_block.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"

namespace tandem::weights {
namespace {

// The widths of delta_format.md.
constexpr int kModeBits = 2;
constexpr int kParameterBits = 5;
constexpr int kCountBits = 10;
constexpr int kGapWidthBits = 6;
constexpr int kMaxParameter = 31;
constexpr uint64_t kMaxQuotient = 16;  // a longer gap is written as it is

enum Mode : uint64_t { kOnes = 0, kListed = 1, kEach = 2 };

uint64_t Magnitude(int32_t difference) {
  const auto bits = static_cast<uint32_t>(difference);
  return difference < 0 ? 0u - bits : bits;
}

uint64_t LowBits(uint64_t value, int count) { return value & ((uint64_t{1} << count) - 1); }

// Gaps: a Rice code. Its quotient in unary, then the remainder.
int GapBits(uint64_t gap, int parameter) {
  const uint64_t quotient = gap >> parameter;
  if (quotient < kMaxQuotient) return static_cast<int>(quotient) + 1 + parameter;
  return static_cast<int>(kMaxQuotient) + kGapWidthBits + std::bit_width(gap);
}

// With `tail`, of `tail_bits`, behind it: one Put() for most changes.
void PutGap(uint64_t gap, int parameter, uint64_t tail, int tail_bits, BitWriter& writer) {
  const uint64_t quotient = gap >> parameter;
  if (quotient < kMaxQuotient) {
    const int unary = static_cast<int>(quotient) + 1;
    writer.Put(LowBits(~uint64_t{0}, unary - 1) | LowBits(gap, parameter) << unary |
                   tail << (unary + parameter),
               unary + parameter + tail_bits);
    return;
  }
  const int width = std::bit_width(gap);
  writer.Put(LowBits(~uint64_t{0}, kMaxQuotient) | uint64_t(width) << kMaxQuotient,
             kMaxQuotient + kGapWidthBits);
  writer.Put(gap | tail << width, width + tail_bits);
}

// The gap, and the bits behind it in `tail`.
uint64_t TakeGap(int parameter, int tail_bits, BitReader& reader, uint64_t& tail) {
  const uint64_t bits = reader.Peek();
  const int quotient = std::countr_one(bits);
  if (quotient < static_cast<int>(kMaxQuotient)) {
    const int unary = quotient + 1;
    tail = LowBits(bits >> (unary + parameter), tail_bits);
    reader.Skip(unary + parameter + tail_bits);
    return static_cast<uint64_t>(quotient) << parameter | LowBits(bits >> unary, parameter);
  }
  reader.Skip(kMaxQuotient);
  const int width = static_cast<int>(reader.Take(kGapWidthBits));
  if (width > kMaxGapBits) return std::numeric_limits<uint64_t>::max();
  const uint64_t gap = reader.Take(width);
  tail = reader.Take(tail_bits);
  return gap;
}

// Sizes of differences: an exponential Golomb code. The width in unary, then the bits.
int SizeBits(uint64_t size, int parameter) {
  return 2 * std::bit_width(size + (uint64_t{1} << parameter)) - 1 - parameter;
}

void PutSize(uint64_t size, int parameter, BitWriter& writer) {
  const uint64_t shifted = size + (uint64_t{1} << parameter);
  const int width = std::bit_width(shifted) - 1;
  writer.Put(LowBits(~uint64_t{0}, width - parameter), width - parameter + 1);
  writer.Put(LowBits(shifted, width), width);
}

uint64_t TakeSize(int parameter, BitReader& reader) {
  const int width = std::min(std::countr_one(reader.Peek()), 33) + parameter;
  reader.Skip(width - parameter + 1);
  if (width > 33) return std::numeric_limits<uint32_t>::max();  // more than any magnitude
  return (uint64_t{1} << width) + reader.Take(width) - (uint64_t{1} << parameter);
}

struct Choice {
  int parameter = 0;
  int64_t bits = 0;
};

// Goes from `start` downhill: the bits have one minimum, or are near it anyway.
template <typename Bits>
Choice BestParameter(int start, Bits bits) {
  Choice best{start, bits(start)};
  for (const int step : {-1, 1}) {
    for (int p = best.parameter + step; p >= 0 && p <= kMaxParameter; p += step) {
      const int64_t of_p = bits(p);
      if (of_p >= best.bits) break;
      best = {p, of_p};
    }
  }
  return best;
}

Choice BestForGaps(const uint64_t* gaps, int count) {
  uint64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += gaps[i];
  const int start = std::clamp(static_cast<int>(std::bit_width(sum / count)) - 1, 0, kMaxParameter);
  return BestParameter(start, [&](int parameter) {
    int64_t bits = 0;
    for (int i = 0; i < count; ++i) bits += GapBits(gaps[i], parameter);
    return bits;
  });
}

// Of the sizes beyond `subtracted`.
Choice BestForSizes(const int32_t* differences, int count, uint64_t subtracted) {
  uint64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += Magnitude(differences[i]) - subtracted;
  return BestParameter(std::bit_width(sum / count), [&](int parameter) {
    int64_t bits = 0;
    for (int i = 0; i < count; ++i)
      bits += SizeBits(Magnitude(differences[i]) - subtracted, parameter);
    return bits;
  });
}

}  // namespace

bool EncodeDeltaBlock(const DeltaBlock& block, int64_t max_bits, BitWriter& writer) {
  const int count = block.count;
  const Choice gaps = BestForGaps(block.gaps, count);

  // Changes by more than one.
  int listed = 0;
  uint64_t listed_gaps[kDeltaBlockChanges];
  int32_t listed_differences[kDeltaBlockChanges];
  for (int i = 0, last = -1; i < count; ++i) {
    if (Magnitude(block.differences[i]) == 1) continue;
    listed_gaps[listed] = i - last - 1;
    listed_differences[listed++] = block.differences[i];
    last = i;
  }
  Mode mode = kOnes;
  int64_t mode_bits = 0;
  Choice places, sizes;
  if (listed > 0) {
    mode = kListed;
    places = BestForGaps(listed_gaps, listed);
    sizes = BestForSizes(listed_differences, listed, 2);
    mode_bits = kCountBits + 2 * kParameterBits + places.bits + sizes.bits;
    if (listed > count / 4) {
      const Choice each = BestForSizes(block.differences, count, 1);
      if (kParameterBits + each.bits < mode_bits) {
        mode = kEach;
        mode_bits = kParameterBits + each.bits;
        sizes = each;
      }
    }
  }
  const int64_t bits = kModeBits + kParameterBits + gaps.bits + count + mode_bits;
  if (bits > max_bits - writer.bits()) return false;

  writer.Put(mode, kModeBits);
  writer.Put(gaps.parameter, kParameterBits);
  if (mode == kListed) {
    writer.Put(listed - 1, kCountBits);
    writer.Put(places.parameter, kParameterBits);
  }
  if (mode != kOnes) writer.Put(sizes.parameter, kParameterBits);
  for (int i = 0; i < count; ++i) {
    PutGap(block.gaps[i], gaps.parameter, block.differences[i] < 0, 1, writer);
    if (mode == kEach) PutSize(Magnitude(block.differences[i]) - 1, sizes.parameter, writer);
  }
  if (mode == kListed) {
    for (int i = 0; i < listed; ++i) {
      PutGap(listed_gaps[i], places.parameter, 0, 0, writer);
      PutSize(Magnitude(listed_differences[i]) - 2, sizes.parameter, writer);
    }
  }
  return true;
}

absl::Status DecodeDeltaBlock(int element_size, BitReader& reader, DeltaBlock& block) {
  const int count = block.count;
  const uint64_t max_magnitude = uint64_t{1} << (8 * element_size - 1);
  const uint64_t mode = reader.Take(kModeBits);
  if (mode > kEach) {
    return absl::DataLossError(absl::StrCat("mode: expected 0, 1 or 2, found ", mode));
  }
  const int gap_parameter = static_cast<int>(reader.Take(kParameterBits));
  int listed = 0, place_parameter = 0, size_parameter = 0;
  if (mode == kListed) {
    listed = static_cast<int>(reader.Take(kCountBits)) + 1;
    place_parameter = static_cast<int>(reader.Take(kParameterBits));
  }
  if (mode != kOnes) size_parameter = static_cast<int>(reader.Take(kParameterBits));

  const auto too_long = [](uint64_t gap) { return gap >> kMaxGapBits != 0; };
  const auto gap_error = [](int change) {
    return absl::DataLossError(absl::StrCat("change ", change, ": expected a gap of less than 2^",
                                            kMaxGapBits, " elements, found more"));
  };
  const auto size_error = [&](int change, uint64_t magnitude) {
    return absl::DataLossError(absl::StrCat("change ", change,
                                            ": expected a difference of at most ", max_magnitude,
                                            ", found ", magnitude));
  };
  for (int i = 0; i < count; ++i) {
    uint64_t negative;
    block.gaps[i] = TakeGap(gap_parameter, 1, reader, negative);
    if (too_long(block.gaps[i])) return gap_error(i);
    uint64_t magnitude = 1;
    if (mode == kEach) {
      magnitude = TakeSize(size_parameter, reader) + 1;
      if (magnitude > max_magnitude) return size_error(i, magnitude);
    }
    block.differences[i] = static_cast<int32_t>(negative != 0 ? 0 - magnitude : magnitude);
  }
  int64_t place = -1;
  for (int i = 0; i < listed; ++i) {
    uint64_t nothing;
    const uint64_t gap = TakeGap(place_parameter, 0, reader, nothing);
    if (gap >= static_cast<uint64_t>(count - place - 1)) {
      return absl::DataLossError(absl::StrCat("listed difference ", i, " of ", listed,
                                              ": expected one of the block's ", count,
                                              " changes after change ", place, ", found none"));
    }
    place += 1 + static_cast<int64_t>(gap);
    const uint64_t magnitude = TakeSize(size_parameter, reader) + 2;
    if (magnitude > max_magnitude) return size_error(place, magnitude);
    const bool negative = block.differences[place] < 0;
    block.differences[place] = static_cast<int32_t>(negative ? 0 - magnitude : magnitude);
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights
