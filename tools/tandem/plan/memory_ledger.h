// MemoryLedger: simulates a trainer's tensors as sizes. Code that follows the trainer step by step
// takes and drops sizes where the trainer allocates and frees tensors; the ledger records the peak
// sum and its composition.
//
//   MemoryLedger ledger;
//   Size x = ledger.Take(MemoryKind::kActivations, tokens * hidden * 4);
//   Size saved = x;      // shared, as tensors share storage
//   x.reset();           // still counted: `saved` holds it
//   ledger.peak().total();
#ifndef TANDEM_TOOLS_TANDEM_PLAN_MEMORY_LEDGER_H_
#define TANDEM_TOOLS_TANDEM_PLAN_MEMORY_LEDGER_H_

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
  kOptimizer,        // float32 moments or momentum
  kReference,        // the frozen reference: masters, shards and gathered units
  kCritic,           // the critic's masters, gradients, moments and gathered units
  kGatheredUnits,    // whole units in compute dtype, while in use
  kGradientBuffers,  // gradients of whole units on their way to the shards
  kActivations,      // what the forward pass keeps for the backward pass, and its temporaries
  kHead,             // chunks of logits, and the head's gradient
  kBatch,            // the packed micro-batches and per-token data
  kTransfer,         // buckets of a weight update
};
inline constexpr size_t kNumMemoryKinds = 11;

// "gathered units".
const char* MemoryKindName(MemoryKind kind);
// "gathered_units", the key in JSON.
std::string MemoryKindKey(MemoryKind kind);

using KindBytes = std::array<int64_t, kNumMemoryKinds>;

struct MemorySnapshot {
  KindBytes bytes{};
  std::string place;  // position in the step

  int64_t of(MemoryKind kind) const { return bytes[static_cast<size_t>(kind)]; }
  int64_t total() const;
};

class MemoryLedger;

// Counts while any copy of it exists. The ledger must outlive it.
using Size = std::shared_ptr<const void>;

// Single-threaded.
class MemoryLedger {
 public:
  Size Take(MemoryKind kind, int64_t bytes);
  // Sets the position in the step, for the peak's `place`.
  void SetPlace(std::string place) { place_ = std::move(place); }

  // Records the peak as if the sum had changed by `change` and back.
  void Reach(const KindBytes& change);
  // The peak is what is taken now.
  void ForgetPeak();

  const MemorySnapshot& now() const { return now_; }
  const MemorySnapshot& peak() const { return peak_; }

 private:
  MemorySnapshot now_, peak_;
  int64_t total_ = 0;
  int64_t peak_total_ = 0;
  std::string place_;
};

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_MEMORY_LEDGER_H_
