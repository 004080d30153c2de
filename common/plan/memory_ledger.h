// MemoryLedger: a trainer's tensors as sizes alone. Code that follows the trainer step by step
// takes and drops sizes where the trainer makes and drops tensors; the ledger remembers the largest
// sum and what it consisted of.
//
//   MemoryLedger ledger;
//   Size x = ledger.Take(MemoryKind::kActivations, tokens * hidden * 4);
//   Size saved = x;      // shared, as tensors share storage
//   x.reset();           // still counted: `saved` holds it
//   ledger.peak().total();
#ifndef TANDEM_COMMON_PLAN_MEMORY_LEDGER_H_
#define TANDEM_COMMON_PLAN_MEMORY_LEDGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::plan {

enum class MemoryKind {
  kParameters,       // float32 masters and the shards in compute dtype
  kGradients,        // float32 shards
  kOptimizer,        // two float32 moments
  kReference,        // the frozen reference: masters, shards and gathered units
  kCritic,           // the critic's masters, gradients, moments and gathered units
  kGatheredUnits,    // units in compute dtype, whole, while they are computed with
  kGradientBuffers,  // gradients of whole units on their way to the shards
  kActivations,      // what the forward pass keeps for the backward pass, and its temporaries
  kHead,             // chunks of logits, and the head's gradient
  kBatch,            // the packed micro-batches and what is known of their tokens
  kTransfer,         // buckets of a weight update
};
inline constexpr size_t kNumMemoryKinds = 11;

// "gathered units".
const char* MemoryKindName(MemoryKind kind);
// "gathered_units", the key in JSON.
std::string MemoryKindKey(MemoryKind kind);

struct MemorySnapshot {
  std::array<int64_t, kNumMemoryKinds> bytes{};  // by kind
  std::string place;                             // where in the step

  int64_t of(MemoryKind kind) const { return bytes[static_cast<size_t>(kind)]; }
  int64_t total() const;
};

class MemoryLedger;

// Counts while any copy of it lives. The ledger outlives it.
using Size = std::shared_ptr<const void>;

// One thread.
class MemoryLedger {
 public:
  Size Take(MemoryKind kind, int64_t bytes);
  // Where the step stands, for the peak's `place`.
  void SetPlace(std::string place) { place_ = std::move(place); }

  const MemorySnapshot& now() const { return now_; }
  const MemorySnapshot& peak() const { return peak_; }

 private:
  MemorySnapshot now_, peak_;
  int64_t total_ = 0;
  int64_t peak_total_ = 0;
  std::string place_;
};

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_MEMORY_LEDGER_H_
