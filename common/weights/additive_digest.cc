#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/weights/additive_digest.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <array>
#include <cstring>

#include "common/weights/additive_digest.h"
#include "common/weights/additive_digest_constants.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::weights::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

enum class Words { kAdd, kCopy, kStream };

// sums[l] += sum of factors_l[j] * word j of `from`, which is at no particular address; with kCopy
// and kStream `to` gets the words as they were added, with kStream past the caches.
template <Words kWhat>
HWY_INLINE void AddOrCopyWords(const std::byte* from, std::byte* to, int64_t words,
                               const uint32_t* factors_0, const uint32_t* factors_1,
                               uint64_t* sums) {
  int64_t j = 0;
  const auto one_by_one = [&](int64_t end) {
    for (; j < end; ++j) {
      uint32_t w;
      std::memcpy(&w, from + j * sizeof(w), sizeof(w));
      if constexpr (kWhat != Words::kAdd) std::memcpy(to + j * sizeof(w), &w, sizeof(w));
      sums[0] += uint64_t{factors_0[j]} * w;
      sums[1] += uint64_t{factors_1[j]} * w;
    }
  };
#if HWY_TARGET != HWY_SCALAR
  // Products of 32-bit words in even places fill whole registers; those in odd places are shifted
  // there first.
  const hn::ScalableTag<uint32_t> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  const hn::Repartition<uint8_t, decltype(d)> d8;
  // How far ahead memory is asked for: it may be another core's, or RAM. A third faster than
  // without if the bytes are not in the cache.
  constexpr int64_t kAheadBytes = 2048;
  const auto odd = [&](auto v) { return hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, v))); };
  auto even_0 = hn::Zero(d64), odd_0 = hn::Zero(d64), even_1 = hn::Zero(d64), odd_1 = hn::Zero(d64);
  const int64_t step = hn::Lanes(d);
  if constexpr (kWhat == Words::kStream) {
    // Whole registers go to their own addresses; words that lie across words go the other way.
    const auto into_word = reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t);
    if (into_word != 0) {
      return AddOrCopyWords<Words::kCopy>(from, to, words, factors_0, factors_1, sums);
    }
    const auto place = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) / sizeof(uint32_t));
    one_by_one(std::min(words, (step - place % step) % step));
  }
  for (; j + step <= words; j += step) {
    const int64_t at = j * static_cast<int64_t>(sizeof(uint32_t));
    const auto bytes = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(from + at));
    hwy::Prefetch(from + at + kAheadBytes);
    if constexpr (kWhat == Words::kCopy) {
      hn::StoreU(bytes, d8, reinterpret_cast<uint8_t*>(to + at));
    } else if constexpr (kWhat == Words::kStream) {
      hn::Stream(bytes, d8, reinterpret_cast<uint8_t*>(to + at));
    }
    const auto w = hn::BitCast(d, bytes);
    const auto f_0 = hn::LoadU(d, factors_0 + j);
    const auto f_1 = hn::LoadU(d, factors_1 + j);
    even_0 = hn::Add(even_0, hn::MulEven(w, f_0));
    even_1 = hn::Add(even_1, hn::MulEven(w, f_1));
    odd_0 = hn::Add(odd_0, hn::MulEven(odd(w), odd(f_0)));
    odd_1 = hn::Add(odd_1, hn::MulEven(odd(w), odd(f_1)));
  }
  // Highway's own sum of lanes overflows in signed arithmetic on AVX-512.
  const auto add_lanes = [&](auto v, uint64_t& sum) HWY_ATTR {
    uint64_t lanes[hn::MaxLanes(d64)];
    hn::StoreU(v, d64, lanes);
    for (uint64_t lane : lanes) sum += lane;
  };
  add_lanes(hn::Add(even_0, odd_0), sums[0]);
  add_lanes(hn::Add(even_1, odd_1), sums[1]);
#endif
  one_by_one(words);
}

void AddWords(const std::byte* from, int64_t words, const uint32_t* factors_0,
              const uint32_t* factors_1, uint64_t* sums) {
  AddOrCopyWords<Words::kAdd>(from, nullptr, words, factors_0, factors_1, sums);
}

void CopyWords(const std::byte* from, std::byte* to, int64_t words, const uint32_t* factors_0,
               const uint32_t* factors_1, uint64_t* sums) {
  AddOrCopyWords<Words::kCopy>(from, to, words, factors_0, factors_1, sums);
}

void StreamWords(const std::byte* from, std::byte* to, int64_t words, const uint32_t* factors_0,
                 const uint32_t* factors_1, uint64_t* sums) {
  AddOrCopyWords<Words::kStream>(from, to, words, factors_0, factors_1, sums);
}

}  // namespace tandem::weights::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <bit>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace tandem::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie");

constexpr int64_t kWordBytes = kDigestWordBytes;
constexpr int64_t kBlockWords = kDigestBlockWords;

using Factors = std::array<std::array<uint32_t, kBlockWords>, 2>;

constexpr Factors MakeFactors() {
  Factors factors{};
  for (uint64_t lane = 0; lane < 2; ++lane) {
    for (uint64_t j = 0; j < kBlockWords; ++j) {
      factors[lane][j] = DigestWordFactor(lane, j);
    }
  }
  return factors;
}

alignas(64) constexpr Factors kFactors = MakeFactors();

HWY_EXPORT(AddWords);
HWY_EXPORT(CopyWords);
HWY_EXPORT(StreamWords);

// Collects the words of a block, whatever ranges they come in, and multiplies once at its end.
class BlockSums {
 public:
  // `streams`: what is copied goes past the caches.
  explicit BlockSums(DigestSum& sum, bool streams = false) : sum_(sum), streams_(streams) {}
  BlockSums(const BlockSums&) = delete;
  BlockSums& operator=(const BlockSums&) = delete;
  ~BlockSums() { EndBlock(); }

  // Copies the bytes to `to` as well, unless null.
  void Add(int64_t offset, const std::byte* from, int64_t size, std::byte* to = nullptr) {
    const auto advance = [&](int64_t by) {
      offset += by;
      from += by;
      size -= by;
      if (to != nullptr) to += by;
    };
    if (size > 0 && offset % kWordBytes != 0) {
      const int64_t head = std::min(size, kWordBytes - offset % kWordBytes);
      AddWithinWord(offset, from, head, to);
      advance(head);
    }
    while (size >= kWordBytes) {
      const int64_t word = offset / kWordBytes;
      const int64_t place = word % kBlockWords;
      const int64_t words = std::min(size / kWordBytes, kBlockWords - place);
      StartBlock(word / kBlockWords);
      const uint32_t* const factors_0 = kFactors[0].data() + place;
      const uint32_t* const factors_1 = kFactors[1].data() + place;
      if (to == nullptr) {
        HWY_DYNAMIC_DISPATCH(AddWords)(from, words, factors_0, factors_1, block_sums_);
      } else if (streams_) {
        HWY_DYNAMIC_DISPATCH(StreamWords)(from, to, words, factors_0, factors_1, block_sums_);
      } else {
        HWY_DYNAMIC_DISPATCH(CopyWords)(from, to, words, factors_0, factors_1, block_sums_);
      }
      advance(words * kWordBytes);
    }
    if (size > 0) AddWithinWord(offset, from, size, to);
  }

 private:
  // Treats the word's other bytes as zeros; later additions of them complete the word's term.
  void AddWithinWord(int64_t offset, const std::byte* from, int64_t size, std::byte* to) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, from, size);
    if (to != nullptr) std::memcpy(to, &bytes, size);
    const uint64_t w = bytes << (8 * (offset % kWordBytes));
    const int64_t word = offset / kWordBytes;
    StartBlock(word / kBlockWords);
    for (int lane = 0; lane < 2; ++lane) {
      block_sums_[lane] += kFactors[lane][word % kBlockWords] * w;
    }
  }

  void StartBlock(int64_t block) {
    if (block == block_) return;
    EndBlock();
    block_ = block;
  }

  void EndBlock() {
    for (uint64_t lane = 0; lane < 2; ++lane) {
      const uint64_t factor = DigestBlockFactor(lane, static_cast<uint64_t>(block_));
      sum_.lanes[lane] += factor * block_sums_[lane];
      block_sums_[lane] = 0;
    }
  }

  DigestSum& sum_;
  const bool streams_;
  int64_t block_ = 0;
  uint64_t block_sums_[2] = {0, 0};
};

}  // namespace

void DigestSum::Add(const DigestSum& other) {
  for (int lane = 0; lane < 2; ++lane) lanes[lane] += other.lanes[lane];
}

DigestSum DigestSum::Finish(int64_t size_bytes) const {
  DigestSum finished;
  for (uint64_t lane = 0; lane < 2; ++lane) {
    const uint64_t size = DigestMix(kDigestSizeSeed + 2 * static_cast<uint64_t>(size_bytes) + lane);
    finished.lanes[lane] = DigestMix(lanes[lane] + size);
  }
  return finished;
}

std::string DigestSum::Hex() const {
  return absl::StrCat(absl::Hex(lanes[0], absl::kZeroPad16), absl::Hex(lanes[1], absl::kZeroPad16));
}

void AddRange(int64_t offset_bytes, absl::Span<const std::byte> bytes, DigestSum& sum) {
  if (offset_bytes < 0) std::abort();
  BlockSums(sum).Add(offset_bytes, bytes.data(), bytes.size());
}

void CopyRange(int64_t offset_bytes, absl::Span<const std::byte> from, std::byte* to,
               DigestSum& sum) {
  if (offset_bytes < 0 || to == nullptr) std::abort();
  BlockSums(sum).Add(offset_bytes, from.data(), static_cast<int64_t>(from.size()), to);
}

void StreamRange(int64_t offset_bytes, absl::Span<const std::byte> from, std::byte* to,
                 DigestSum& sum) {
  if (offset_bytes < 0 || to == nullptr) std::abort();
  BlockSums(sum, /*streams=*/true)
      .Add(offset_bytes, from.data(), static_cast<int64_t>(from.size()), to);
  // Orders the non-temporal stores before whatever tells another thread that the bytes are there.
  hwy::FlushStream();
}

void AddStrided(int64_t offset_bytes, int64_t stride_bytes, int64_t row_bytes,
                absl::Span<const std::byte> rows, DigestSum& sum) {
  const int64_t size = rows.size();
  if (size == 0) return;
  if (row_bytes <= 0 || size % row_bytes != 0) std::abort();
  BlockSums blocks(sum);
  for (int64_t at = 0; at < size; at += row_bytes, offset_bytes += stride_bytes) {
    if (offset_bytes < 0) std::abort();
    blocks.Add(offset_bytes, rows.data() + at, row_bytes);
  }
}

DigestSum TensorDigestSum(absl::Span<const std::byte> tensor) {
  DigestSum sum;
  AddRange(0, tensor, sum);
  return sum.Finish(tensor.size());
}

}  // namespace tandem::weights
#endif  // HWY_ONCE
