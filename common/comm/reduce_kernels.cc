#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/comm/reduce_kernels.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cstring>

#include "common/comm/reduce_kernels.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::comm::HWY_NAMESPACE {

// Plain loops of a fixed length, which compilers turn into each target's vectors. A block's values
// stay in the first-level cache from source to source, and bfloat16 is added in float32 and rounded
// once.
constexpr int64_t kBlock = 1024;

// The element type in memory, and the type of the sums.
template <typename T>
struct Same {
  using Stored = T;
  using Value = T;
  static Value Load(Stored x) { return x; }
  static Stored Store(Value x) { return x; }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value Load(Stored x) {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  // To the nearest, ties to even.
  static Stored Store(Value x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
  }
};

struct Sum {
  template <typename T>
  static T Join(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Max {
  template <typename T>
  static T Join(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct Min {
  template <typename T>
  static T Join(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

template <typename Element, typename Join>
void ReduceBlock(const typename Element::Stored* const* sources, size_t num_sources,
                 typename Element::Stored* out, int64_t numel) {
  typename Element::Value values[kBlock];
  for (int64_t i = 0; i < numel; ++i) values[i] = Element::Load(sources[0][i]);
  for (size_t s = 1; s < num_sources; ++s) {
    const typename Element::Stored* const source = sources[s];
    for (int64_t i = 0; i < numel; ++i) {
      values[i] = Join::Join(values[i], Element::Load(source[i]));
    }
  }
  for (int64_t i = 0; i < numel; ++i) out[i] = Element::Store(values[i]);
}

template <typename Element, typename Join>
void ReduceAll(absl::Span<const void* const> sources, void* out, int64_t numel) {
  using Stored = typename Element::Stored;
  const Stored* at[kMaxReduceSources];
  HWY_ASSERT(sources.size() <= kMaxReduceSources);
  Stored* const to = static_cast<Stored*>(out);
  const size_t count = sources.size();
  for (int64_t begin = 0; begin < numel; begin += kBlock) {
    for (size_t s = 0; s < count; ++s) at[s] = static_cast<const Stored*>(sources[s]) + begin;
    ReduceBlock<Element, Join>(at, count, to + begin, std::min(kBlock, numel - begin));
  }
}

template <typename Element>
void ReduceType(ReduceKind kind, absl::Span<const void* const> sources, void* out, int64_t numel) {
  switch (kind) {
    case ReduceKind::kSum:
      return ReduceAll<Element, Sum>(sources, out, numel);
    case ReduceKind::kMax:
      return ReduceAll<Element, Max>(sources, out, numel);
    case ReduceKind::kMin:
      return ReduceAll<Element, Min>(sources, out, numel);
  }
}

void ReduceSources(ReduceKind kind, tandem::comm::ReduceType type,
                   absl::Span<const void* const> sources, void* out, int64_t numel) {
  switch (type) {
    case tandem::comm::ReduceType::kFloat:
      return ReduceType<Same<float>>(kind, sources, out, numel);
    case tandem::comm::ReduceType::kDouble:
      return ReduceType<Same<double>>(kind, sources, out, numel);
    case tandem::comm::ReduceType::kBFloat16:
      return ReduceType<BFloat16>(kind, sources, out, numel);
    case tandem::comm::ReduceType::kInt8:
      return ReduceType<Same<int8_t>>(kind, sources, out, numel);
    case tandem::comm::ReduceType::kUInt8:
      return ReduceType<Same<uint8_t>>(kind, sources, out, numel);
    case tandem::comm::ReduceType::kInt32:
      return ReduceType<Same<int32_t>>(kind, sources, out, numel);
    case tandem::comm::ReduceType::kInt64:
      return ReduceType<Same<int64_t>>(kind, sources, out, numel);
  }
}

}  // namespace tandem::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::comm {

HWY_EXPORT(ReduceSources);

void Reduce(ReduceKind kind, ReduceType type, absl::Span<const void* const> sources, void* out,
            int64_t numel) {
  HWY_DYNAMIC_DISPATCH(ReduceSources)(kind, type, sources, out, numel);
}

}  // namespace tandem::comm

#endif  // HWY_ONCE
