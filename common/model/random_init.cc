#include "common/model/random_init.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "common/model/segment_box.h"

namespace tandem::model {
namespace {

// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): four independent
// words for every counter, without state.
std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter) {
  uint32_t key_low = static_cast<uint32_t>(key);
  uint32_t key_high = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * x[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(second >> 32) ^ x[1] ^ key_low, static_cast<uint32_t>(second),
         static_cast<uint32_t>(first >> 32) ^ x[3] ^ key_high, static_cast<uint32_t>(first)};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return x;
}

// FNV-1a over the seed and the name.
uint64_t Key(uint64_t seed, const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325;
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001B3; };
  for (int i = 0; i < 8; ++i) add(static_cast<uint8_t>(seed >> (8 * i)));
  for (char c : name) add(static_cast<uint8_t>(c));
  return hash;
}

// Four standard normals (Box and Muller).
std::array<float, 4> Normals(uint64_t key, uint64_t counter) {
  const std::array<uint32_t, 4> words = Philox(key, counter);
  std::array<float, 4> normals;
  for (int i = 0; i < 4; i += 2) {
    // In (0, 1], so that the logarithm is finite.
    const float u = (static_cast<float>(words[i] >> 8) + 1.0f) * 0x1p-24f;
    const float angle =
        2.0f * std::numbers::pi_v<float> * (static_cast<float>(words[i + 1] >> 8) * 0x1p-24f);
    const float radius = std::sqrt(-2.0f * std::log(u));
    normals[i] = radius * std::cos(angle);
    normals[i + 1] = radius * std::sin(angle);
  }
  return normals;
}

template <typename T>
void Draw(uint64_t key, float scale, int64_t first, int64_t count, T* out) {
  at::parallel_for(0, count, 16384, [&](int64_t begin, int64_t end) {
    std::array<float, 4> normals{};
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t element = static_cast<uint64_t>(first + i);
      if (i == begin || element % 4 == 0) normals = Normals(key, element / 4);
      out[i] = static_cast<T>(normals[element % 4] * scale);
    }
  });
}

// Logarithms of numbers drawn evenly from 0.01 to 16.
template <typename T>
void DrawDecays(uint64_t key, int64_t first, int64_t count, T* out) {
  constexpr float kLeast = 0.01f;
  constexpr float kMost = 16.0f;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = Philox(key, static_cast<uint64_t>(first + i))[0];
    const float share = static_cast<float>(word >> 8) * 0x1p-24f;
    out[i] = static_cast<T>(std::log(kLeast + (kMost - kLeast) * share));
  }
}

}  // namespace

void RandomInit(const ModelSpec& spec, const ParameterTable& table, ParameterTable::SegmentRef ref,
                uint64_t seed, int64_t first, int64_t count, at::ScalarType dtype, void* out) {
  const Parameter& parameter = table.parameter(ref.parameter);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "RandomInit", [&] {
    scalar_t* const typed = static_cast<scalar_t*>(out);
    const Segment& segment = table.segment(ref);
    const bool is_norm = parameter.role == ParameterRole::kNorm;
    if (is_norm || parameter.role == ParameterRole::kBias || segment.initial_value.has_value()) {
      const float value = segment.initial_value.value_or(is_norm ? 1.0f : 0.0f);
      std::fill(typed, typed + count, static_cast<scalar_t>(value));
    } else {
      const uint64_t key = Key(seed, segment.name);
      const float scale = static_cast<float>(spec.initializer_range);
      ForRunsOfBox(segment, first, count, [&](const BoxRun& run) {
        scalar_t* const to = typed + (run.local - first);
        if (parameter.role == ParameterRole::kDecay) {
          DrawDecays(key, run.logical, run.count, to);
        } else {
          Draw(key, scale, run.logical, run.count, to);
        }
        return absl::OkStatus();
      }).IgnoreError();
    }
  });
}

void RandomInit(const ModelSpec& spec, uint64_t seed, Arena& arena) {
  const ParameterTable& table = arena.table();
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const ParameterTable::SegmentRef ref = table.segments()[i];
    RandomInit(spec, table, ref, seed, 0, table.segment(ref).numel, arena.DTypeOf(ref.parameter),
               arena.SegmentBytes(i).data());
  }
}

}  // namespace tandem::model
