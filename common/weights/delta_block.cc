#include "common/weights/delta_block.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

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

// Signs are as good as random: no branch takes them.
uint64_t Magnitude(int32_t difference) {
  const auto sign = static_cast<uint32_t>(difference >> 31);
  return (static_cast<uint32_t>(difference) ^ sign) - sign;
}

int32_t Difference(uint64_t magnitude, uint64_t negative) {
  return static_cast<int32_t>((magnitude ^ (0 - negative)) + negative);
}

uint64_t LowBits(uint64_t value, int count) { return value & ((uint64_t{1} << count) - 1); }

// Gaps: a Rice code. Its quotient in unary, then the remainder.
int GapBits(uint64_t gap, int parameter) {
  const uint64_t quotient = gap >> parameter;
  if (quotient < kMaxQuotient) return static_cast<int>(quotient) + 1 + parameter;
  return static_cast<int>(kMaxQuotient) + kGapWidthBits + std::bit_width(gap);
}

// With `tail`, of `tail_bits`, behind it: one Put() for most changes. kMaxQuotient makes
// that possible: 16 bits in unary, 31 of the remainder and the tail's one stay below Put()'s 56.
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

// The parameter under which `bits(i, parameter)` of all i add up to least, or to nearly that: it is
// sought from `start` downhill over every fourth i. Then the bits of all.
template <typename Bits>
Choice Choose(int start, int count, Bits bits) {
  const auto sum = [&](int parameter, int step) {
    int64_t total = 0;
    for (int i = 0; i < count; i += step) total += bits(i, parameter);
    return total;
  };
  const int step = count < 64 ? 1 : 4;
  int best = std::min(start, kMaxParameter);
  int64_t best_bits = sum(best, step);
  for (const int way : {-1, 1}) {
    for (int p = best + way; p >= 0 && p <= kMaxParameter; p += way) {
      const int64_t p_bits = sum(p, step);
      if (p_bits >= best_bits) break;
      best = p;
      best_bits = p_bits;
    }
  }
  return {best, step == 1 ? best_bits : sum(best, 1)};
}

Choice ChooseForGaps(const uint64_t* gaps, int count) {
  const uint64_t mean = std::accumulate(gaps, gaps + count, uint64_t{0}) / count;
  const int start = std::max(static_cast<int>(std::bit_width(mean)) - 1, 0);
  return Choose(start, count, [&](int i, int parameter) { return GapBits(gaps[i], parameter); });
}

// Chooses the code for magnitudes minus `subtracted`.
Choice ChooseForSizes(const int32_t* differences, int count, uint64_t subtracted) {
  const auto size = [&](int i) { return Magnitude(differences[i]) - subtracted; };
  uint64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += size(i);
  return Choose(static_cast<int>(std::bit_width(sum / count)), count,
                [&](int i, int parameter) { return SizeBits(size(i), parameter); });
}

}  // namespace

bool EncodeDeltaBlock(const DeltaBlock& block, int64_t max_bits, BitWriter& writer) {
  const int count = block.count;
  const Choice gaps = ChooseForGaps(block.gaps, count);

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
  // The place of one in two costs as much as the bit that says of each change that it is one.
  const Mode mode = listed == 0 ? kOnes : listed <= count / 2 ? kListed : kEach;
  Choice places, sizes;
  int64_t mode_bits = 0;
  if (mode == kListed) {
    places = ChooseForGaps(listed_gaps, listed);
    sizes = ChooseForSizes(listed_differences, listed, 2);
    mode_bits = kCountBits + 2 * kParameterBits + places.bits + sizes.bits;
  } else if (mode == kEach) {
    sizes = ChooseForSizes(block.differences, count, 1);
    mode_bits = kParameterBits + sizes.bits;
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
    block.differences[i] = Difference(magnitude, negative);
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
    block.differences[place] = Difference(magnitude, block.differences[place] < 0);
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights
