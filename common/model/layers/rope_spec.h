// RopeSpec: a rotary position embedding (2104.09864) as numbers: which elements of a head rotate,
// and how fast.
#ifndef TANDEM_COMMON_MODEL_LAYERS_ROPE_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_ROPE_SPEC_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::model {

// Llama 3.1's scaling of the low rotary frequencies (2407.21783).
struct Llama3RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;

  friend bool operator==(const Llama3RopeScaling&, const Llama3RopeScaling&) = default;
};

// The base grows with the sequence beyond the original length (rope type "dynamic").
struct DynamicRopeScaling {
  double factor = 1.0;
  int64_t original_max_position_embeddings = 0;

  friend bool operator==(const DynamicRopeScaling&, const DynamicRopeScaling&) = default;
};

// YaRN (2309.00071): interpolates low frequencies and keeps high ones.
struct YarnRopeScaling {
  double factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // rounds the range of blended dimensions to whole ones
  int64_t original_max_position_embeddings = 0;

  friend bool operator==(const YarnRopeScaling&, const YarnRopeScaling&) = default;
};

// LongRoPE (2402.13753): a divisor for each frequency, by the length of the sequence.
struct LongRopeScaling {
  std::vector<double> short_factor;  // up to original_max_position_embeddings tokens
  std::vector<double> long_factor;   // beyond
  // Multiplies cosines and sines of short and of long sequences.
  double short_mscale = 1.0;
  double long_mscale = 1.0;
  int64_t original_max_position_embeddings = 0;

  friend bool operator==(const LongRopeScaling&, const LongRopeScaling&) = default;
};

struct RopeSpec {
  double theta = 10000.0;
  int64_t rotary_dim = 0;    // elements of a head that rotate, from the first on; 0: all
  bool interleaved = false;  // rotates pairs (2i, 2i + 1) instead of halves (i, i + rotary_dim / 2)
  // Frequencies that turn, of the fastest on; the others are 0 (rope type "proportional"). 0: all turn.
  int64_t num_turning = 0;
  // Divides positions (rope types "linear" and "proportional"); 1: no scaling.
  double linear_factor = 1.0;
  // Multiplies cosines and sines (YaRN's attention factor); LongRoPE has its own.
  double attention_factor = 1.0;
  // Frequencies that turn by a token's time, by its height and by its width, in this order
  // (image_places.h); together rotary_dim / 2. Empty: a token has one position.
  std::vector<int64_t> sections;
  // Time, height and width take turns frequency by frequency, as long as a section has any left, and the
  // last frequencies are time's; otherwise a section's frequencies follow each other.
  bool sections_alternate = false;
  // At most one of these.
  std::optional<Llama3RopeScaling> llama3;
  std::optional<DynamicRopeScaling> dynamic;
  std::optional<YarnRopeScaling> yarn;
  std::optional<LongRopeScaling> longrope;

  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_ROPE_SPEC_H_
